"""One V2 record, written and malformed in each of its fields. Ids (tests/ids.md): DR1 to DR20.

The numbers follow Java's DefaultRecordTest. Where Java has a second reader, which passes over keys and values, there is the
other twin of the kernel here: both must refuse.
"""

from __future__ import annotations

import pytest

from spark_producer.errors import CorruptRecord, RecordBatchError
from spark_producer.kernel import MAX_HEADERS, Limits, V2Batch, compiled_decode, decode
from spark_producer.kernel.decoded_v2 import COLUMNS
from spark_producer.legacy_formats.batch_format import BatchProducer
from spark_producer.legacy_formats.single_row import Header, record_size
from spark_producer.record.batch_v2 import HEADER_SIZE, read_header
from spark_producer.record.codecs import Codec, Compressor
from spark_producer.record.reading import ConsumerRecord, read_records, single_records
from tests.unit.record.builders import builder_of
from tests.unit.record.test_reading import own_batch, records_of, zigzag

TWINS = (decode.decode_v2, compiled_decode.decode_v2)
BASE, DELTA, OFFSET = 1_700_000_000_000, 323, 10
HEADERS: list[Header] = [("foo", b"value"), ("bar", None), ('"A\\ênñüC"', b"value")]
START = b"\x00\x04\x00"
"""attributes, timestamp delta 2, offset delta 0"""
NULL = b"\x01"


def record_of(fields: bytes) -> bytes:
    """A record that ends with its fields, so that nothing but these can be wrong."""
    return zigzag(len(fields)) + fields


def refusal(record: bytes) -> str:
    """Why the reader refuses the one record of a batch, packed or not; both twins stop where it begins."""
    batch = V2Batch(memoryview(record), 1, base_offset=700, last_offset_delta=0, base_timestamp=0)
    for twin in TWINS:
        found = twin([batch], COLUMNS, Limits())
        assert (found.rows, found.batch, found.position, found.full) == (0, 0, 0, False)
    reasons = set()
    for codec in Codec:
        with pytest.raises(CorruptRecord, match="record at offset 700: ") as caught:
            records_of(own_batch(bytes(Compressor(codec).compress(record)), attributes=codec))
        reasons.add(str(caught.value).partition(": ")[2])
    (reason,) = reasons
    return reason


@pytest.mark.covers("DR1", "DR19")
@pytest.mark.parametrize(
    ("key", "value", "headers"),
    [(b"hi", b"there", []), (None, b"there", []), (b"hi", None, []), (None, None, []), (b"hi", b"there", HEADERS)],
)
@pytest.mark.parametrize("sequence", [723, -1])
def test_a_record_is_read_as_written_with_a_sequence_and_without(
    key: bytes | None, value: bytes | None, headers: list[Header], sequence: int
) -> None:
    producer = BatchProducer() if sequence < 0 else BatchProducer(5, 0, sequence)
    builder = builder_of(base_offset=37, producer=producer)
    builder.append(BASE, None, None)
    before = builder.uncompressed_size
    builder.append(BASE + DELTA, key, value, headers, offset=37 + OFFSET)
    size = record_size(2, DELTA, OFFSET, key, value, headers)
    assert builder.uncompressed_size - before == size
    data = builder.close()
    assert len(data) == HEADER_SIZE + before + size
    assert records_of(bytes(data))[1] == ConsumerRecord(37 + OFFSET, BASE + DELTA, key, value, tuple(headers))
    assert read_header(data).last_sequence == (-1 if sequence < 0 else sequence + OFFSET)


@pytest.mark.covers("DR2", "DR3")
@pytest.mark.parametrize(
    ("count", "reason"), [(4, "ends inside its header"), (8, "header"), (2, "bytes more than its fields have")]
)
def test_a_header_count_too_high_or_too_low(count: int, reason: str) -> None:
    entries = b"".join(
        zigzag(len(name.encode())) + name.encode() + (NULL if content is None else zigzag(len(content)) + content)
        for name, content in HEADERS
    )
    good, bad = (START + b"\x04hi\x0athere" + zigzag(number) + entries for number in (len(HEADERS), count))
    assert len(records_of(own_batch(record_of(good)))[0].headers) == 3
    assert reason in refusal(record_of(bad))


@pytest.mark.covers("DR4", "DR5")
def test_a_key_longer_than_its_record() -> None:
    assert "key length is 105" in refusal(record_of(START + zigzag(105)))


@pytest.mark.covers("DR6", "DR7")
def test_a_value_longer_than_its_record() -> None:
    assert "value length is 105" in refusal(record_of(START + NULL + zigzag(105)))


@pytest.mark.covers("DR8", "DR9")
@pytest.mark.parametrize("count", [-1, 100])
def test_a_header_count_that_cannot_be(count: int) -> None:
    assert f"header count is {count}" in refusal(record_of(START + NULL + NULL + zigzag(count)))


@pytest.mark.parametrize("rest", [b"\0\0", b"\0\x01", b"\x02\xff\x01", b"\x01\x01"])
def test_a_record_full_of_headers_is_refused_by_their_count(rest: bytes) -> None:
    """1 MiB of them, which zstd packs into 100 bytes, whatever the last one is like; up to the maximum they are read."""
    count = (1 << 20) // 2
    assert refusal(record_of(START + NULL * 2 + zigzag(count) + bytes(2 * count - 2) + rest)) == (
        f"header count is {count}, more than {MAX_HEADERS}"
    )


def test_as_many_headers_as_the_reader_takes_are_written_and_no_more() -> None:
    headers: list[Header] = [("", None)] * MAX_HEADERS
    builder = builder_of(size=1 << 18)
    builder.append(BASE, None, None, headers)
    with pytest.raises(RecordBatchError, match=f"a record has {MAX_HEADERS + 1} headers, more than {MAX_HEADERS}"):
        builder.append(BASE, None, None, [*headers, ("", None)])
    (batch,) = read_records(builder.close())
    (record,) = single_records(batch)
    assert len(record.headers) == MAX_HEADERS


@pytest.mark.covers("DR10", "DR11")
def test_a_header_key_longer_than_its_record() -> None:
    assert "header key length is 105" in refusal(record_of(START + NULL + NULL + zigzag(1) + zigzag(105)))


@pytest.mark.covers("DR12", "DR13")
def test_a_header_key_that_is_null() -> None:
    assert "a header key is null" in refusal(record_of(START + NULL + NULL + zigzag(1) + NULL + NULL))


@pytest.mark.covers("DR14", "DR15")
def test_a_header_value_longer_than_its_record() -> None:
    entry = zigzag(1) + b"k" + zigzag(105)
    assert "header value length is 105" in refusal(record_of(START + NULL + NULL + zigzag(1) + entry))


@pytest.mark.covers("DR16")
def test_a_record_that_ends_before_its_timestamp() -> None:
    assert "ends inside its timestamp delta" in refusal(record_of(b"\x00"))


@pytest.mark.covers("DR17")
def test_a_record_that_ends_inside_its_timestamp() -> None:
    assert "ends inside its timestamp delta" in refusal(record_of(b"\x00\x80\x80"))


@pytest.mark.covers("DR18")
@pytest.mark.parametrize("delta", [b"\xff" * 10 + b"\x01", b"\xff" * 9 + b"\x02"])
def test_a_timestamp_of_more_than_64_bits(delta: bytes) -> None:
    assert "timestamp delta is a varint" in refusal(record_of(b"\x00" + delta + b"\x00" + NULL + NULL + b"\x00"))


@pytest.mark.covers("DR20")
def test_a_record_longer_than_what_is_there() -> None:
    assert "record length is 10, 4 bytes are left" in refusal(zigzag(10) + bytes(4))
