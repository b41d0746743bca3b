"""The rows of the queries: numbered, with checksums, in files that Spark reads again in the same order after every death.

One file is one task, `FILES` of them are a micro-batch. A key belongs to one file of each batch, so its rows have an order.

Owns: the files, and what a row says. Must not know: who reads or writes them.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

FILES = 2
"""Files of a micro-batch, which are as many tasks."""
KEYS = 5
"""Keys of each file."""
FIRST_TIME = 1_700_000_000
"""Spark takes files in the order of their times."""


class Row(NamedTuple):
    """The content of a row."""

    batch: int
    file: int
    number: int
    key: str

    def text(self, width: int) -> str:
        """The value: all of this, a checksum, and padding up to `width` characters."""
        body = f"{self.batch} {self.file} {self.number} {self.key}"
        return f"{body} {zlib.crc32(body.encode()):08x} ".ljust(width, ".")


class Amount(NamedTuple):
    """The size of a query: micro-batches, rows in each, and characters of a row.

    If it is `uneven`, of three batches one is large, one is small, and one has a small file and a large one.
    """

    batches: int = 6
    rows: int = 1_000
    width: int = 60
    uneven: bool = False

    def rows_of(self, batch: int, file: int) -> range:
        """Numbers of the rows of a file."""
        small = self.uneven and (batch % 3 == 1 or (batch % 3 == 2 and file == 0))
        return range(file, self.rows // 20 if small else self.rows, FILES)


def row_of(value: bytes | None) -> Row | None:
    """Return the row that a value encodes; None if it is damaged, or from another writer."""
    parts = (value or b"").split(b" ")
    if len(parts) < 5 or f"{zlib.crc32(b' '.join(parts[:4])):08x}".encode() != parts[4]:
        return None
    batch, file, number = map(int, parts[:3])
    return Row(batch, file, number, parts[3].decode())


def rows_of_batch(amount: Amount, batch: int) -> Iterator[Row]:
    """The rows of a micro-batch, file by file."""
    for file in range(FILES):
        for number in amount.rows_of(batch, file):
            yield Row(batch, file, number, f"k{file}.{number % KEYS}")


def expected(amount: Amount) -> set[Row]:
    """All rows of a query."""
    return {row for batch in range(amount.batches) for row in rows_of_batch(amount, batch)}


def write_files(folder: Path, amount: Amount, batches: range | None = None) -> None:
    """The files of some batches (None: all), each put there at once."""
    folder.mkdir(parents=True, exist_ok=True)
    for batch in range(amount.batches) if batches is None else batches:
        lines: dict[int, list[str]] = {file: [] for file in range(FILES)}
        for row in rows_of_batch(amount, batch):
            lines[row.file].append(row.text(amount.width) + "\n")
        for file, text in lines.items():
            hidden = folder / f".{batch:05d}-{file}"
            hidden.write_text("".join(text))
            moment = FIRST_TIME + FILES * batch + file
            os.utime(hidden, (moment, moment))
            hidden.rename(folder / f"{batch:05d}-{file}.txt")
