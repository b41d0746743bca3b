"""Directories of deleted topics, which are on their way out.

Owns: `.deleted` in the data directory. No partition can be there: the name of its directory ends in `-` and a number.
Must not know: topics.
"""

from __future__ import annotations

import re
import shutil
import uuid
from pathlib import Path
from typing import Final

from spark_producer.broker.storage.disk import make_private_directory

NAME: Final = ".deleted"

_OLD_GRAVE: Final = re.compile(r"\.deleted-[0-9a-f]{32}")
"""Where earlier versions put them, beside the partitions. A partition of a topic `.deleted-…` cannot be meant: its directory
has a second `-`, and no partition of a topic `.deleted` has a number of 32 digits."""


class Graves:
    """The graves of a data directory."""

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir
        self._place = data_dir / NAME

    def clear(self) -> None:
        """Remove what a crash left over.

        Raises:
            OSError: the disk refused.
        """
        for path in self._data_dir.iterdir():
            if path.name == NAME or _OLD_GRAVE.fullmatch(path.name):
                shutil.rmtree(path)

    def bury(self, directory: Path) -> None:
        """Remove a directory: in one step from where it is, then from the disk.

        Raises:
            OSError: the disk refused; what was moved already is removed by the next `clear`.
        """
        make_private_directory(self._place)
        grave = self._place / uuid.uuid4().hex
        directory.rename(grave)
        shutil.rmtree(grave)
