"""The kernel alone, and the readers and codecs around it, on one core: `python -m benchmarks.kernel`.

It compares both twins of the kernel, kafka-python's builder, and a copy of the same bytes. The figures are medians of paired
rounds: in each round everything runs once, one after the other.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from kafka.record.memory_records import MemoryRecordsBuilder

from benchmarks import codecs, reader, zstd_levels
from benchmarks.machine import kernel_facts
from spark_producer.kernel import BinaryColumn, RecordColumns, compiled, compiled_murmur2, portable
from spark_producer.kernel.portable_murmur2 import murmur2

ROOT = Path(__file__).parent.parent
ROWS, PARTITIONS, BATCH_BYTES, BASE = 10_000, 4, 262_144, 1_700_000_000_000
TWINS: tuple[tuple[str, Any, Callable[[BinaryColumn], Any]], ...] = (
    ("portable", portable, murmur2),
    ("compiled", compiled, compiled_murmur2.murmur2),
)


@dataclass(frozen=True)
class Shape:
    """The shape of rows: lengths in bytes, and headers per row."""

    name: str
    shortest: int
    longest: int
    headers: int = 0


SHAPES = (
    Shape("100 B values", 100, 100),
    Shape("50–150 B values", 50, 150),
    Shape("1,000 B values", 1000, 1000),
    Shape("100 B values, 2 headers", 100, 100, 2),
)


class Rows:
    """The rows of a shape, made once: Arrow columns, and the same rows as Python objects."""

    def __init__(self, shape: Shape) -> None:
        random = np.random.default_rng(7)
        lengths = random.integers(shape.shortest, shape.longest + 1, ROWS).tolist()
        self.keys = [b"%09d" % number for number in random.integers(0, 10**9, ROWS)]
        self.values = [random.bytes(length) for length in lengths]
        self.header_entries = [(f"header-{number}", b"some value") for number in range(shape.headers)]
        self.key, self.value = pa.array(self.keys, pa.binary()), pa.array(self.values, pa.binary())
        self.header_keys = pa.array([key.encode() for key, _ in self.header_entries] * ROWS, pa.binary())
        self.header_values = pa.array([value for _, value in self.header_entries] * ROWS, pa.binary())
        self.slots = random.integers(0, PARTITIONS, ROWS).astype(np.int32)
        self.space = memoryview(bytearray(BATCH_BYTES))
        self.plain_bytes = b"".join(self.values) + b"".join(self.keys)

    def encode(self, twin: Any) -> int:
        """Group and encode into batches in one buffer after the other, as the accumulator does. Return the bytes written."""
        headers = None
        if self.header_entries:
            counts = np.full(ROWS, len(self.header_entries))
            headers = twin.encode_headers(counts, BinaryColumn(self.header_keys), BinaryColumn(self.header_values))
        columns = RecordColumns(BinaryColumn(self.value), BinaryColumn(self.key), headers, BASE)
        rows, bounds = twin.group_rows(self.slots, PARTITIONS)
        arranged, written = twin.ArrangedRows(columns, rows), 0
        row = 0
        for stop in bounds[1:].tolist():
            while row < stop:
                row, end, _ = twin.encode_v2(arranged, row, stop, 0, BASE, self.space, 61, BATCH_BYTES)
                written += end - 61
        return written

    def hash_keys(self, hashed: Callable[[BinaryColumn], object]) -> None:
        """Hash the key of each row."""
        hashed(BinaryColumn(self.key))

    def build_with_kafka_python(self) -> None:
        """Build the same records with kafka-python's builder, row by row."""
        builder = MemoryRecordsBuilder(magic=2, compression_type=0, batch_size=1 << 30)
        for key, value in zip(self.keys, self.values, strict=True):
            builder.append(timestamp=BASE, key=key, value=value, headers=self.header_entries)
        builder.close()

    def copy(self) -> None:
        """Copy keys and values, buffer by buffer."""
        for start in range(0, len(self.plain_bytes), BATCH_BYTES):
            piece = self.plain_bytes[start : start + BATCH_BYTES]
            self.space[: len(piece)] = piece


def nanoseconds(call: Callable[[], object]) -> float:
    """Return the CPU nanoseconds of this thread per row."""
    start = time.thread_time_ns()
    call()
    return (time.thread_time_ns() - start) / ROWS


def measure(work: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Return the median nanoseconds per row of each, over paired rounds."""
    taken: dict[str, list[float]] = {name: [] for name in work}
    for number in range(rounds + 2):
        for name, call in work.items():
            spent = nanoseconds(call)
            if number >= 2:
                taken[name].append(spent)
    return {name: statistics.median(values) for name, values in taken.items()}


def rows_of_table(rounds: int) -> list[str]:
    """Return one line of Markdown per shape and contender."""
    lines = []
    for shape in SHAPES:
        rows = Rows(shape)
        work: dict[str, Callable[[], object]] = {
            f"group and encode, {name}": partial(rows.encode, twin) for name, twin, _ in TWINS
        }
        work |= {f"murmur2 of 9 B keys, {name}": partial(rows.hash_keys, hashed) for name, _, hashed in TWINS}
        work |= {"kafka-python's builder": rows.build_with_kafka_python, "copy of the same bytes": rows.copy}
        found, size = measure(work, rounds), rows.encode(compiled) / ROWS
        copied = found["copy of the same bytes"]
        for name, spent in found.items():
            speed = f"{size / spent:.2f}" if "murmur2" not in name else ""
            lines.append(f"| {shape.name} | {name} | {spent:.1f} | {speed} | {spent / copied:.1f} |")
            print(lines[-1], flush=True)
    return lines


def main(given: list[str]) -> None:
    """Run and write the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.kernel", description=__doc__)
    parser.add_argument("--rounds", type=int, default=21, help="measured rounds")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "benchmarks_kernel.md", help="the page")
    options = parser.parse_args(given)
    lines = rows_of_table(options.rounds)
    page = [
        "# The kernel, on one core", "",
        f"{ROWS:,} rows, grouped into {PARTITIONS} partitions and encoded as V2 records into batches of {BATCH_BYTES:,} "
        f"bytes.", "",
        "| rows | | ns per record | GB/s | × a copy |", "|---|---|--:|--:|--:|", *lines, "",
        "## Reading", "", f"{reader.RECORDS:,} records in V2 batches of {reader.BATCH_BYTES:,} bytes into Arrow columns, "
        "checksums verified; nanoseconds per record (`python -m benchmarks.reader`).", "", *reader.table(), "",
        "## Codecs", "", f"JSON records in one batch of {codecs.BATCH_BYTES:,} bytes; × compares with the library that the codec "
        "uses, on the same buffers. The last column is encoding, packing and sealing together (`python -m benchmarks.codecs`).",
        "", *codecs.table(codecs.BATCH_BYTES), "",
        "## Levels of zstd", "", "How many times smaller records become, and the megabytes that one core packs in a second: in "
        f"batches as Java's producer makes them by default, of {zstd_levels.JAVA_BATCH // 1024} KiB compressed, and in batches "
        f"of {zstd_levels.BATCH >> 20} MiB (`python -m benchmarks.zstd_levels`).", "",
        *zstd_levels.table(), "",
        "## How it is made", "", f"Medians of {options.rounds} paired rounds, of reading the best of several, CPU time of the "
        "thread. Made by `python -m benchmarks.kernel`; do not edit.", "", *kernel_facts(), "",
    ]  # fmt: skip
    options.out.write_text("\n".join(page))


if __name__ == "__main__":
    main(sys.argv[1:])
