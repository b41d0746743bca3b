"""A whole batch cut into two whole batches, as its reader sees them."""

from __future__ import annotations

import pytest

from spark_producer.kernel.varint import encode_varint
from spark_producer.record.batch_v2 import HEADER_SIZE, TRANSACTIONAL_BIT, batches, check_crc, write_header
from spark_producer.record.codecs import Codec, Compressor
from spark_producer.record.reading import read_records, single_records
from spark_producer.record.splitting import halve

BASE = 1_700_000_000_000


def batch_of(codec: Codec, sizes: list[int]) -> bytes:
    """Records of these sizes, each a millisecond after the one before, with a header."""
    records = bytearray()
    for number, size in enumerate(sizes):
        value = (b"%d " % number).ljust(size, b"x")
        body = b"\x00" + encode_varint(number) * 2 + b"\x02k" + encode_varint(len(value)) + value + b"\x02\x02h\x02v"
        records += encode_varint(len(body)) + body
    data = memoryview(bytearray(HEADER_SIZE) + Compressor(codec).compress(records))
    write_header(
        data, records_count=len(sizes), base_timestamp=BASE, max_timestamp=BASE + len(sizes) - 1,
        attributes=codec | TRANSACTIONAL_BIT,
    )  # fmt: skip
    return bytes(data)


def read(data: bytes) -> list[tuple[bytes | None, int, object]]:
    return [
        (each.value, each.timestamp, each.headers)
        for table in read_records(memoryview(data))
        for each in single_records(table)
    ]


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("sizes", [[5, 5], [2000, 1], [1, 2000], [300] * 50])
def test_two_halves_hold_the_records_of_the_whole(codec: Codec, sizes: list[int]) -> None:
    whole = batch_of(codec, sizes)
    halves = halve(whole)
    assert [row for half in halves for row in read(half)] == read(whole)
    counts = []
    for half in halves:
        [(header, data)] = batches(half)
        check_crc(header, data)
        assert header.is_transactional
        assert (header.base_sequence, header.last_offset_delta) == (-1, header.records_count - 1)
        counts.append(header.records_count)
        assert header.max_timestamp == BASE + sum(counts) - 1
    assert all(counts)
    assert sum(counts) == len(sizes)
