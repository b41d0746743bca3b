"""How much memory what is read of a file at once may take: a few kilobytes of zeros unpack to gigabytes."""

from __future__ import annotations

import pyarrow as pa

MAX_UNPACKED = 512 << 20
"""The most bytes that are unpacked at once, where they are more than `MAX_RATIO` times those of the file."""

MAX_RATIO = 10
"""Honest files rarely unpack to more than ten times their size, and what they unpack at once is less than `MAX_UNPACKED`."""

MAX_COLUMNS = 65_536
"""The most columns of a file. Each takes some kilobytes while it is read, however few rows there are."""


def check_unpacked(what: str, unpacked: int, packed: int) -> None:
    """Look whether what a file says can be unpacked.

    Raises:
        pyarrow.ArrowInvalid: it is too much.
    """
    if unpacked > max(MAX_UNPACKED, MAX_RATIO * packed):
        raise pa.ArrowInvalid(
            f"{what} says that its {packed:,} bytes unpack to {unpacked:,}, and at most {MAX_UNPACKED >> 20} MiB, or {MAX_RATIO} "
            "times as many, are unpacked at once: write the file again with smaller batches or row groups"
        )


def check_columns_count(count: int) -> None:
    """Look whether a file has a number of columns that can be read.

    Raises:
        pyarrow.ArrowInvalid: it has more.
    """
    if count > MAX_COLUMNS:
        raise pa.ArrowInvalid(f"it has {count:,} columns, and at most {MAX_COLUMNS:,} are read: leave some out")
