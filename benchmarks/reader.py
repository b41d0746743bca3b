"""Readers of record batches on one core: `python -m benchmarks.reader`.

It compares pyproducer's reader with both twins of the kernel, for all columns and for the values alone, with kafka-python's
reader and a copy of the bytes.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple
from unittest.mock import patch

import numpy as np
import pyarrow as pa
from kafka.record import MemoryRecords

from spark_producer.kernel import (
    ArrangedRows,
    BinaryColumn,
    RecordColumns,
    compiled_decode,
    decode,
    encode_headers,
    encode_v2,
)
from spark_producer.record import batch_decoder
from spark_producer.record.batch_v2 import HEADER_SIZE, write_header
from spark_producer.record.codecs import Codec, Compressor
from spark_producer.record.reading import read_records

RECORDS = 120_000
BATCH_BYTES = 131_072
SECONDS = 0.7
"""The seconds of each measurement, whose best round counts."""


class Shape(NamedTuple):
    name: str
    shortest: int
    longest: int
    headers: int = 0
    codec: Codec = Codec.NONE
    batch_bytes: int = BATCH_BYTES


SHAPES = (
    Shape("100 B, all alike", 100, 100),
    Shape("60-140 B", 60, 140),
    Shape("60-140 B, 2 headers", 60, 140, headers=2),
    Shape("1000 B, all alike", 1000, 1000),
    Shape("1000 B, 2 headers", 1000, 1000, headers=2),
    Shape("60-140 B, 16 KiB batches", 60, 140, batch_bytes=16_384),
    Shape("60-140 B, 10 records a batch", 60, 140, batch_bytes=1200),
    Shape("60-140 B, lz4", 60, 140, codec=Codec.LZ4),
    Shape("60-140 B, zstd", 60, 140, codec=Codec.ZSTD),
)


def log_of(shape: Shape) -> bytes:
    """Return batches of `RECORDS` records with 9-byte keys, one after the other."""
    random = np.random.default_rng(7)
    letters = random.integers(97, 123, 4096, dtype=np.uint8).tobytes() * 2
    lengths = random.integers(shape.shortest, shape.longest + 1, RECORDS)
    starts = random.integers(0, 4096, RECORDS)
    values = [letters[start : start + length] for start, length in zip(starts.tolist(), lengths.tolist(), strict=True)]
    keys = [b"%09d" % number for number in range(RECORDS)]
    columns = RecordColumns(_binary(values), _binary(keys), _headers(shape.headers), 1_700_000_000_000)
    rows, first, batches = ArrangedRows(columns, np.arange(RECORDS)), 0, []
    while first < RECORDS:
        out = bytearray(shape.batch_bytes)
        following, end, latest = encode_v2(
            rows, first, RECORDS, 0, 1_700_000_000_000, memoryview(out), HEADER_SIZE, len(out)
        )
        packed = bytes(Compressor(shape.codec).compress(out[HEADER_SIZE:end]))
        batch = bytearray(HEADER_SIZE) + packed
        write_header(
            memoryview(batch),
            records_count=following - first,
            base_timestamp=1_700_000_000_000,
            max_timestamp=latest,
            attributes=shape.codec,
        )
        batches.append(struct.pack(">q", first) + bytes(batch[8:]))
        first = following
    return b"".join(batches)


def _binary(values: list[bytes]) -> BinaryColumn:
    return BinaryColumn(pa.array(values, pa.binary()))


def _headers(each: int) -> BinaryColumn | None:
    if not each:
        return None
    counts = np.full(RECORDS, each)
    return encode_headers(counts, _binary([b"trace"] * (RECORDS * each)), _binary([b"0123456789"] * (RECORDS * each)))


def read_ours(log: bytes) -> int:
    return sum(batch.num_rows for batch in read_records(log))


def read_values(log: bytes) -> int:
    return sum(batch.num_rows for batch in read_records(log, columns=frozenset({"value"})))


def read_kafka_python(log: bytes) -> int:
    return sum(1 for _ in _foreign(log))


def _foreign(log: bytes) -> Iterator[object]:
    records = MemoryRecords(log)
    while (batch := records.next_batch()) is not None:
        batch.validate_crc()
        yield from batch


def copy(log: bytes) -> int:
    bytearray(log)
    return RECORDS


def seconds_of(read: Callable[[bytes], int], log: bytes) -> float:
    """Return the seconds of the best of the rounds that fit into `SECONDS`, of which there are at least three."""
    best, spent, rounds = float("inf"), 0.0, 0
    while spent < SECONDS or rounds < 3:
        start = time.process_time()
        if read(log) != RECORDS:
            raise AssertionError(f"{read.__name__} did not find {RECORDS} records")
        taken = time.process_time() - start
        best, spent, rounds = min(best, taken), spent + taken, rounds + 1
    return best


def table() -> list[str]:
    """Return one line of Markdown for each shape."""
    lines = [
        "| records, with 9 B keys | compiled, ns | values only, ns | portable, ns | values only, ns | compiled, MB/s "
        "| × kafka-python | × a copy's time |",
        "|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for shape in SHAPES:
        log = log_of(shape)
        theirs, copied = (seconds_of(read, log) for read in (read_kafka_python, copy))
        found = []
        for twin in (compiled_decode, decode):
            with patch.object(batch_decoder, "decode_v2", twin.decode_v2):  # a process chooses one of them, once
                found += [seconds_of(read, log) for read in (read_ours, read_values)]
        ours = found[0]
        figures = " | ".join(f"{seconds / RECORDS * 1e9:.1f}" for seconds in found)
        lines.append(
            f"| {shape.name} | {figures} | {len(log) / ours / 1e6:.0f} | {theirs / ours:.1f} | {ours / copied:.1f} |"
        )
    return lines


if __name__ == "__main__":
    print("\n".join(table()))
