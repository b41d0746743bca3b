"""The names of the journal's files: the file's id in hexadecimal, and `.txn`, as BookKeeper names them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from spark_producer.broker.storage.file_ops import FileOps

_NAME: Final = re.compile(r"([0-9a-f]{1,16})\.txn")
FIRST_ID: Final = 1
"""The id of the first file of a data directory. Each next file has the next id, and no id is used twice."""


def name_of(file_id: int) -> str:
    """Return the name of a file."""
    return f"{file_id:x}.txn"


def ids_in(directory: Path, files: FileOps) -> list[int]:
    """Return the ids of the files in a directory, in order. Other names there do not matter.

    Raises:
        OSError: the directory cannot be read.
    """
    found = (_NAME.fullmatch(name) for name in files.names(directory))
    return sorted(int(match[1], 16) for match in found if match is not None)
