"""Bounds on the memory that a batch or page of a file may take: a few kilobytes of zeros decompress to gigabytes."""

from __future__ import annotations

import pyarrow as pa

MAX_UNPACKED = 512 << 20
"""Maximum bytes that are decompressed at once, unless they are less than `MAX_RATIO` times the bytes in the file."""

MAX_RATIO = 10
"""The maximum ratio above `MAX_UNPACKED`: real large batches rarely decompress to more than ten times their size."""

MAX_COLUMNS = 65_536
"""The maximum columns of a file. Each takes some kilobytes while it is read, however few rows there are."""


def check_unpacked(what: str, unpacked: int, packed: int) -> None:
    """Check how many bytes a batch or page decompresses to; `what` names it in the error.

    Raises:
        pyarrow.ArrowInvalid: they are too many.
    """
    if unpacked > max(MAX_UNPACKED, MAX_RATIO * packed):
        raise pa.ArrowInvalid(
            f"{what} has {packed:,} bytes that decompress to {unpacked:,}: more than {MAX_UNPACKED >> 20} MiB, and more than "
            f"{MAX_RATIO} times their size. Write the file again with smaller batches or row groups"
        )


def check_columns_count(count: int) -> None:
    """Check that a file has at most `MAX_COLUMNS` columns.

    Raises:
        pyarrow.ArrowInvalid: it has more.
    """
    if count > MAX_COLUMNS:
        raise pa.ArrowInvalid(f"it has {count:,} columns, more than {MAX_COLUMNS:,}. Leave some out")
