"""Batches of all shapes, formats and codecs, made by the package from a seed, with the records that they must hold.

Owns: the shapes. Must not know: who reads them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from random import Random
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from spark_producer.kernel import ArrangedRows, BinaryColumn, RecordColumns, encode_headers
from spark_producer.legacy_formats.batch_format import BatchFormat
from spark_producer.legacy_formats.builder import MemoryRecordsBuilder
from spark_producer.record.batch_v2 import TimestampType
from spark_producer.record.codecs import ONLY_IN_V2, Codec, Compressor
from tests.unit.record.foreign_records import NOW, Row

FORMATS = [(magic, codec) for magic in (0, 1, 2) for codec in Codec if magic == 2 or codec not in ONLY_IN_V2]
LEVELS = {Codec.GZIP: (-1, 1, 6, 9), Codec.LZ4: (1, 9, 12, 17), Codec.ZSTD: (-5, 1, 3, 9)}


class Generated(NamedTuple):
    """One batch and its records."""

    magic: int
    codec: Codec
    data: memoryview
    rows: list[Row]


def generate(
    seed: int, count: int, formats: Sequence[tuple[int, Codec]] = FORMATS, *, in_a_log: bool = False
) -> Iterator[Generated]:
    """`count` batches, the formats in turn: offsets from 0 without gaps, as producers send them, or as they lie in a log."""
    random = Random(seed)
    for number in range(count):
        magic, codec = formats[number % len(formats)]
        rows = rows_of_any_shape(random, magic)
        if in_a_log:
            rows = moved_into_a_log(random, rows)
        compressor = Compressor(codec, random.choice(LEVELS.get(codec, (0,))))
        yield Generated(magic, codec, build(magic, rows, compressor), rows)


def moved_into_a_log(random: Random, rows: Sequence[Row]) -> list[Row]:
    """The rows from any offset but 0 on, half of the time with gaps, as compaction leaves them."""
    offset = random.choice((1, 1000, 2**31, 2**50)) + random.randrange(1000)
    widest = random.choice((1, 50))
    moved = []
    for row in rows:
        moved.append(row._replace(offset=offset))
        offset += random.randint(1, widest)
    return moved


def build(magic: int, rows: Sequence[Row], compressor: Compressor) -> memoryview:
    """The batch, encoded from columns as a producer does; one call for each run of offsets."""
    kind = TimestampType.CREATE_TIME if magic else TimestampType.NONE
    batch_format = BatchFormat(magic=magic, base_offset=rows[0].offset, timestamp_type=kind)
    builder = MemoryRecordsBuilder(
        memoryview(bytearray(4096)), batch_format, compressor=compressor, write_limit=1 << 30
    )
    arranged = ArrangedRows(columns_of(rows), np.arange(len(rows)))
    offsets = [row.offset for row in rows]
    starts = [0, *(np.flatnonzero(np.diff(offsets) != 1) + 1).tolist(), len(rows)]
    for first, stop in itertools.pairwise(starts):
        assert builder.append_rows(arranged, first, stop, offset=offsets[first]) == stop
    return builder.close()


def columns_of(rows: Sequence[Row]) -> RecordColumns:
    """Rows as columns; what all rows share is left out or given once, as for a DataFrame without the column."""
    keys = [row.key for row in rows]
    times = [row.timestamp for row in rows]
    entries = [entry for row in rows for entry in row.headers]
    headers = None
    if entries:
        counts = np.array([len(row.headers) for row in rows])
        names = BinaryColumn(pa.array([name.encode() for name, _ in entries], pa.binary()))
        headers = encode_headers(counts, names, BinaryColumn(pa.array([value for _, value in entries], pa.binary())))
    return RecordColumns(
        BinaryColumn(pa.array([row.value for row in rows], pa.binary())),
        None if all(key is None for key in keys) else BinaryColumn(pa.array(keys, pa.binary())),
        headers,
        times[0] if len(set(times)) == 1 else np.array(times),
    )


def rows_of_any_shape(random: Random, magic: int) -> list[Row]:
    """Records alike or not, few or many, packing well or not at all."""
    count = random.choice((1, 2, 5, 20, 70, 200))
    alike, times_alike = random.random() < 0.3, random.random() < 0.4
    with_headers = magic == 2 and random.random() < 0.4
    width = random.choice((1, 8, 100, 1000)) if count <= 20 else random.choice((1, 8, 100))
    return [
        Row(
            offset,
            -1 if magic == 0 else NOW if times_alike else NOW + random.randrange(-100_000, 100_000),
            _bytes(random, 9) if alike else random.choice((None, b"", _bytes(random, random.randrange(30)))),
            _bytes(random, width)
            if alike
            else random.choice((None, b"", b"\x00" * width, _bytes(random, random.randrange(1, 2 * width)))),
            _headers(random) if with_headers else (),
        )
        for offset in range(count)
    ]


def _bytes(random: Random, length: int) -> bytes:
    return random.randbytes(length) if random.random() < 0.5 else bytes(random.choices(b"abcdef", k=length))


def _headers(random: Random) -> tuple[tuple[str, bytes | None], ...]:
    values = (None, b"", b"1", b"\xff" * 70)
    return tuple(
        (random.choice(("", "a", "trace", "ü" * 40)), random.choice(values)) for _ in range(random.randrange(4))
    )
