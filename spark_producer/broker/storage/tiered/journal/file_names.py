"""The names of journal files: the id of the file in hexadecimal, and `.txn`, as in BookKeeper."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from spark_producer.broker.storage.file_ops import FileOps

_NAME: Final = re.compile(r"([0-9a-f]{1,16})\.txn")
FIRST_ID: Final = 1
"""Id of the first file of a data directory. Each new file has the next id, and no id is used twice."""


def name_of(file_id: int) -> str:
    """Return the name of a file."""
    return f"{file_id:x}.txn"


def ids_in(directory: Path, files: FileOps) -> list[int]:
    """Return the sorted ids of the journal files in a directory. Other names are ignored.

    Raises:
        OSError: the directory cannot be read.
    """
    found = (_NAME.fullmatch(name) for name in files.names(directory))
    return sorted(int(match[1], 16) for match in found if match is not None)
