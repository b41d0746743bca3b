"""The directories of deleted topics, which wait in `.deleted` in the data directory until they are removed.

No partition can have that name, because the names of partitions' directories end in `-` and a number.
"""

from __future__ import annotations

import re
import shutil
import uuid
from pathlib import Path
from typing import Final

from spark_producer.broker.storage.disk import make_private_directory

NAME: Final = ".deleted"

_OLD_NAME: Final = re.compile(r"\.deleted-[0-9a-f]{32}")
"""The names under which earlier versions put them beside the partitions. No partition is named so: the directory of a topic
`.deleted-…` has a second `-`, and no partition of a topic `.deleted` has a number of 32 digits."""


class PendingDeletes:
    """The place in a data directory for directories that are to be removed."""

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir
        self._deleted_directory = data_dir / NAME

    def clear(self) -> None:
        """Remove the directories that a crash has left over.

        Raises:
            OSError: the disk refused.
        """
        for path in self._data_dir.iterdir():
            if path.name == NAME or _OLD_NAME.fullmatch(path.name):
                shutil.rmtree(path)

    def delete(self, directory: Path) -> None:
        """Remove a directory: first move it away in one step, then delete it.

        Raises:
            OSError: the disk refused; a directory that was moved already is removed by the next `clear`.
        """
        make_private_directory(self._deleted_directory)
        target = self._deleted_directory / uuid.uuid4().hex
        directory.rename(target)
        shutil.rmtree(target)
