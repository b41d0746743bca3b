"""Orphaned logs: directories with records of no topic, after the state file was lost or changed, or a deletion was interrupted.

They are moved to `.lost` in the data directory when a topic of that name is created. No partition can have that name, because the
directory of a partition ends in `-` and a number.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Collection
from pathlib import Path
from typing import Final

from spark_producer.broker.storage.disk import make_private_directory

NAME: Final = ".lost"
_PARTITION: Final = re.compile(r".+-[0-9]{1,5}")


def find_orphaned(data_dir: Path, owned: Collection[str]) -> list[str]:
    """Return the sorted names of partition directories with records that are not in `owned`.

    Raises:
        OSError: the disk refused.
    """
    found = (path for path in data_dir.iterdir() if _PARTITION.fullmatch(path.name) and path.name not in owned)
    return sorted(path.name for path in found if _holds_records(path))


def set_aside(directory: Path) -> Path | None:
    """Move a directory with records to `.lost` and return its new path; return None if it has no records.

    Raises:
        OSError: the disk refused.
    """
    if not _holds_records(directory):
        return None
    lost_directory = directory.parent / NAME
    make_private_directory(lost_directory)
    return directory.rename(lost_directory / f"{directory.name}.{uuid.uuid4().hex}")


def _holds_records(directory: Path) -> bool:
    return directory.is_dir() and any(path.stat().st_size for path in directory.glob("*.log"))
