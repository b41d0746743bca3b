"""The codecs against the bare libraries on the same bytes: `python -m benchmarks.codecs [batch bytes]`.

The bytes are flights as JSON, some 250 bytes a record.
"""

from __future__ import annotations

import importlib
import random
import sys
import time
import zlib
from collections.abc import Callable
from types import ModuleType
from typing import Any

import lz4.frame
import numpy as np
import pyarrow as pa
import zstandard

from spark_producer.kernel import ArrangedRows, BinaryColumn, RecordColumns
from spark_producer.legacy_formats.builder import MemoryRecordsBuilder
from spark_producer.record.codecs import Codec, Compressor, decompress

isal_zlib: ModuleType | None
try:
    isal_zlib = importlib.import_module("isal.isal_zlib")
except ImportError:
    isal_zlib = None

ROUNDS = 60
LIMIT = 1 << 28
BATCH_BYTES = 262_144


def flights(count: int) -> list[bytes]:
    """Return JSON records of few words and many numbers, which are random."""
    rng = random.Random(1)
    return [
        b'{"year":2013,"month":%d,"day":%d,"carrier":"%s","flight":%d,"tailnum":"N%d","origin":"JFK","dest":"%s",'
        b'"dep_time":%d,"arr_time":%d,"air_time":%d,"distance":%d,"time_hour":"2013-01-01T05:00:00Z","dep_delay":%d}'
        % (
            rng.randrange(1, 13), rng.randrange(1, 32), rng.choice((b"UA", b"AA", b"DL", b"B6")), rng.randrange(5000),
            rng.randrange(10**6), rng.choice((b"LAX", b"ATL", b"BOS", b"ORD")), rng.randrange(2400),
            rng.randrange(2400), rng.randrange(600), rng.randrange(3000), rng.randrange(300),
        )
        for _ in range(count)
    ]  # fmt: skip


def seconds(rounds: int, *calls: Callable[[], Any]) -> list[float]:
    """Return the best of several rounds of each call. The calls take turns, so that the machine treats them alike."""
    best = [float("inf")] * len(calls)
    for _ in range(rounds):
        for number, call in enumerate(calls):
            start = time.perf_counter()
            call()
            best[number] = min(best[number], time.perf_counter() - start)
    return best


def libraries(data: memoryview) -> dict[str, tuple[Compressor, Callable[[], Any], Callable[[Any], Any]]]:
    """Return name → our compressor, and the bare library's functions that pack and unpack."""
    snappy, zstd, unzstd = pa.Codec("snappy"), zstandard.ZstdCompressor(1), zstandard.ZstdDecompressor()
    size = len(data)
    table: dict[str, tuple[Compressor, Callable[[], Any], Callable[[Any], Any]]] = {
        "snappy": (Compressor(Codec.SNAPPY), lambda: snappy.compress(data), lambda z: snappy.decompress(z, size)),
        "lz4": (
            Compressor(Codec.LZ4), lambda: lz4.frame.compress(data, block_linked=False), lz4.frame.decompress
        ),
        "zstd-1": (Compressor(Codec.ZSTD), lambda: zstd.compress(data), unzstd.decompress),
        "zlib-6": (Compressor(Codec.GZIP, 6), lambda: zlib.compress(data, 6, 31), lambda z: zlib.decompress(z, 31)),
    }  # fmt: skip
    if isal_zlib is None:
        print("isal is not installed: pip install 'pyproducer[isal]'")
        return table
    level = isal_zlib.Z_DEFAULT_COMPRESSION
    table["gzip by isal"] = (
        Compressor(Codec.GZIP), lambda: isal_zlib.compress(data, level, 31), lambda z: isal_zlib.decompress(z, 31)
    )  # fmt: skip
    return table


def table(size: int, rounds: int = ROUNDS) -> list[str]:
    """Return one line of Markdown for each codec: size, and MB/s of packing and unpacking against the bare library."""
    values = flights(size // 150)
    rows = ArrangedRows(
        RecordColumns(BinaryColumn(pa.array(values, pa.binary())), timestamps=1), np.arange(len(values))
    )
    buffer = memoryview(bytearray(size))

    def build(compressor: Compressor | None) -> memoryview:
        builder = MemoryRecordsBuilder(buffer, compressor=compressor)
        builder.append_rows(rows, 0, len(rows))
        return builder.close()

    def compare(name: str, ours: Compressor, bare_pack: Callable[[], Any], bare_unpack: Callable[[Any], Any]) -> str:
        packed = bytes(ours.compress(records))
        pack, bare, batch = seconds(rounds, lambda: ours.compress(records), bare_pack, lambda: build(ours))
        unpack, bare_un = seconds(rounds, lambda: decompress(ours.codec, packed, LIMIT), lambda: bare_unpack(packed))
        speed = [len(records) / each / 1e6 for each in (pack, unpack)]
        return (
            f"| {name} | {len(records) / len(packed):.2f} | {speed[0]:.0f} | {bare / pack:.2f} | {speed[1]:.0f} "
            f"| {bare_un / unpack:.2f} | {batch * 1e6:.0f} |"
        )

    records = memoryview(bytes(build(None)[61:]))
    plain = seconds(rounds, lambda: build(None))[0]
    return [
        "| codec | ratio | pack, MB/s | × the bare library | unpack, MB/s | × the bare library | a batch, µs |",
        "|---|--:|--:|--:|--:|--:|--:|",
        f"| none | 1.00 | | | | | {plain * 1e6:.0f} |",
        *(compare(name, ours, pack, unpack) for name, (ours, pack, unpack) in libraries(records).items()),
    ]


if __name__ == "__main__":
    print("\n".join(table(int(sys.argv[1]) if len(sys.argv) > 1 else BATCH_BYTES)))
