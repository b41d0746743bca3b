"""Directories of deleted topics: they are moved to `.deleted` in the data directory, and then removed.

No partition can have that name, because the directory of a partition ends in `-` and a number.
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
"""Names that earlier versions used, beside the partitions. No partition has such a name: the directory of a topic `.deleted-…`
has a second `-`, and no partition of a topic `.deleted` has a number of 32 digits."""


class PendingDeletes:
    """The directories of a data directory that are being deleted."""

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir
        self._deleted_directory = data_dir / NAME

    def clear(self) -> None:
        """Remove the directories whose deletion a crash interrupted.

        Raises:
            OSError: the disk refused.
        """
        for path in self._data_dir.iterdir():
            if path.name == NAME or _OLD_NAME.fullmatch(path.name):
                shutil.rmtree(path)

    def delete(self, directory: Path) -> None:
        """Delete a directory: move it away atomically, then remove it.

        Raises:
            OSError: the disk refused; if the directory was already moved, the next `clear` removes it.
        """
        make_private_directory(self._deleted_directory)
        target = self._deleted_directory / uuid.uuid4().hex
        directory.rename(target)
        shutil.rmtree(target)
