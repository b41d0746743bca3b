"""Targets: batches of records, as brokers send them and as files hold them."""

from __future__ import annotations

import contextlib
import random

from spark_producer.errors import CorruptRecord, RecordBatchError
from spark_producer.kernel import compiled_decode
from spark_producer.kernel.decoded_v2 import COLUMNS
from spark_producer.legacy_formats.record_sets import convert
from spark_producer.record.batch_v2 import HEADER_SIZE
from spark_producer.record.codecs import Codec, Compressor, decompress
from spark_producer.record.control import EndMarker, end_marker_batch, read_end_marker
from tests.fuzz.target import compared, single
from tests.unit.kernel import test_decode_v2 as kernel
from tests.unit.record import test_damage as logs
from tests.unit.record.plain_reader import read_plainly

MAX_UNPACKED = 1 << 16
"""bytes; small, so that a bomb is soon found"""


def _logs() -> list[bytes]:
    return [*(one for batches in logs.LOGS.values() for one in batches), b"".join(logs.LOGS["V2 and V1"])]


def _batches(data: bytes) -> None:
    """Without checksums, which would find nearly all damage; a second reader says what is there."""
    found = logs.read(data, verify_crc=False)
    if compared(data, 4):
        assert found == read_plainly(data, verify_crc=False, limit=logs.LIMIT)


def _record_lists() -> list[bytes]:
    chance, contents = random.Random(35), (None, b"", b"key", bytes(60))
    found = []
    for count in range(1, 41):
        headers: list[tuple[bytes, bytes | None]] = [(b"h", None)] * chance.randrange(3)
        rows: list[kernel.Row] = [
            (chance.randrange(-70, 70), chance.choice(contents), chance.choice(contents), headers) for _ in range(count)
        ]
        found.append(bytes([count]) + b"".join(kernel.record(row, place) for place, row in enumerate(rows)))
    return found


def _records(data: bytes) -> None:
    """Both kernels find the same. The first byte is the number of records that the batch claims."""
    if not data:
        return
    batch = kernel.batch(data[1:], data[0])
    if compared(data, 32):
        kernel.decode(batch)
        return
    found = compiled_decode.decode_v2([batch], COLUMNS, kernel.NO_LIMITS)
    for column in (found.keys, found.values):
        assert column is not None
        column.validate(full=True)


def _packed() -> list[bytes]:
    contents = (b"", b"x", b"some text " * 30, bytes(5_000), random.Random(35).randbytes(300))
    return [bytes([codec]) + bytes(Compressor(codec).compress(content)) for codec in Codec for content in contents]


def _decompress(data: bytes) -> None:
    if data:
        with contextlib.suppress(CorruptRecord):
            assert len(decompress(data[0] % 6, data[1:], MAX_UNPACKED)) <= MAX_UNPACKED


def _convert(data: bytes) -> None:
    version = "0.9.0" if compared(data, 2) else "0.10.2"
    with contextlib.suppress(CorruptRecord, RecordBatchError):
        for _ in convert(data, message_format_version=version):
            pass


def _markers() -> list[bytes]:
    ends = [EndMarker(commits, epoch) for commits in (True, False) for epoch in (0, 7)]
    return [bytes(end_marker_batch(end, producer_id=5, producer_epoch=1, timestamp=0)[HEADER_SIZE:]) for end in ends]


def _marker(data: bytes) -> None:
    with contextlib.suppress(CorruptRecord):
        read_end_marker(memoryview(data))


TARGETS = (
    single("batches", "batches of all formats and codecs, beside a second reader", _logs, _batches),
    single("records", "records within a V2 batch, by both kernels", _record_lists, _records),
    single("codecs", "gzip, snappy, lz4 and zstd", _packed, _decompress),
    single("downconvert", "a file of `pyproducer downconvert`", _logs, _convert),
    single("markers", "the ends of transactions in a log", _markers, _marker),
)
