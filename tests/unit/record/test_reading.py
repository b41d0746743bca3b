"""The reader of V2 batches: judged by kafka-python's builder, and by bytes that no builder would write."""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from crc32c import crc32c
from hypothesis import example, given
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatchBuilder

from spark_producer.errors import CorruptRecord
from spark_producer.record import batch_decoder, decoded_columns
from spark_producer.record.batch_v2 import CRC_START, HEADER_SIZE, write_header
from spark_producer.record.codecs import Codec, Compressor
from spark_producer.record.decoded_columns import RECORD_SCHEMA
from spark_producer.record.reading import ConsumerRecord, read_records, single_records

Content = tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]


def foreign_batch(
    records: list[Content], *, base_offset: int = 0, first_timestamp: int = 1000, codec: int = 0
) -> bytes:
    """A batch by kafka-python; each record is 3 ms after the last one."""
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=codec,
        is_transactional=False,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=1 << 30,
    )
    for number, (key, value, headers) in enumerate(records):
        builder.append(number, first_timestamp + 3 * number, key, value, headers)
    return struct.pack(">q", base_offset) + bytes(builder.build())[8:]


def own_batch(body: bytes, records: int = 1, *, attributes: int = 0, base_offset: int = 700) -> bytes:
    """A batch with a true header and CRC around any `body`."""
    batch = bytearray(HEADER_SIZE) + body
    write_header(
        memoryview(batch), records_count=records, base_timestamp=1000, max_timestamp=5000, attributes=attributes
    )
    batch[:8] = struct.pack(">q", base_offset)
    return bytes(batch)


def patched(batch: bytes, position: int, content: bytes) -> bytes:
    """`batch` with other bytes at `position` and the CRC that fits them."""
    changed = bytearray(batch)
    changed[position : position + len(content)] = content
    changed[17:21] = struct.pack(">I", crc32c(bytes(changed[CRC_START:])))
    return bytes(changed)


def zigzag(value: int) -> bytes:
    rest, out = (value << 1) ^ (value >> 63), bytearray()
    while rest >= 0x80:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes([*out, rest])


def record_bytes(
    *,
    size: int | None = None,
    offset_delta: int = 0,
    timestamp_delta: bytes = b"\x00",
    key: bytes = b"\x01",
    value: bytes = b"\x01",
    headers: bytes = b"\x00",
) -> bytes:
    """One record with any of its fields replaced."""
    content = b"\x00" + timestamp_delta + zigzag(offset_delta) + key + value + headers
    return zigzag(len(content) if size is None else size) + content


def records_of(data: bytes, **arguments: Any) -> list[ConsumerRecord]:
    """The rows of `data`."""
    return [record for batch in read_records(data, **arguments) for record in single_records(batch)]


contents = st.tuples(
    st.none() | st.binary(max_size=40),
    st.none() | st.binary(max_size=300),
    st.lists(st.tuples(st.text(max_size=10), st.none() | st.binary(max_size=10)), max_size=4),
)


@given(st.lists(contents, min_size=1, max_size=20), st.integers(0, 2**62), st.integers(0, 2**60))
def test_records_of_kafka_python_come_back(records: list[Content], base_offset: int, first_timestamp: int) -> None:
    batch = foreign_batch(records, base_offset=base_offset, first_timestamp=first_timestamp)
    assert records_of(batch) == [
        ConsumerRecord(base_offset + number, first_timestamp + 3 * number, key, value, tuple(headers))
        for number, (key, value, headers) in enumerate(records)
    ]


def test_several_batches_and_half_a_batch_at_the_end() -> None:
    first = foreign_batch([(None, b"a", []), (None, b"b", [])])
    second = foreign_batch([(b"k", None, [])], base_offset=2)
    for cut in (0, 1, 60, 61, len(first) - 1):
        found = records_of(first + second + first[:cut])
        assert [(record.offset, record.key, record.value) for record in found] == [
            (0, None, b"a"),
            (1, None, b"b"),
            (2, b"k", None),
        ]


def test_a_batch_that_compaction_emptied_has_no_records() -> None:
    assert records_of(patched(own_batch(b"", 1), 57, struct.pack(">i", 0))) == []


def test_offsets_may_have_gaps_after_compaction() -> None:
    body = record_bytes(offset_delta=2) + record_bytes(offset_delta=7)
    batch = patched(own_batch(body, 2), 23, struct.pack(">i", 9))
    assert [record.offset for record in records_of(batch)] == [702, 707]


def test_log_append_time_replaces_the_records_timestamps() -> None:
    body = record_bytes(timestamp_delta=zigzag(17))
    assert records_of(own_batch(body))[0].timestamp == 1017
    assert records_of(own_batch(body, attributes=0x08))[0].timestamp == 5000


def test_control_batches_are_skipped() -> None:
    marker = own_batch(record_bytes(key=b"\x08\x00\x00\x00\x01"), attributes=0x20)
    assert records_of(marker + own_batch(record_bytes())) == [ConsumerRecord(700, 1000, None, None, ())]


@pytest.mark.parametrize("codec", [1, 3, 4])  # kafka-python has snappy only with another package
def test_batches_that_kafka_python_compressed_come_back(codec: int) -> None:
    many: list[Content] = [(b"%d" % number, b"a" * number, [("h", b"x")]) for number in range(300)]
    found = records_of(foreign_batch(many, codec=codec) + foreign_batch(many[:1], base_offset=300, codec=codec))
    assert [(each.key, each.value, list(each.headers)) for each in found] == many + many[:1]
    assert [each.offset for each in found] == list(range(301))


@pytest.mark.parametrize(("codec", "reason"), [(1, "gzip"), (2, "snappy"), (3, "LZ4"), (4, "zstd"), (7, "codec 7 is")])
def test_a_damaged_stream_names_its_codec(codec: int, reason: str) -> None:
    with pytest.raises(CorruptRecord, match=rf"offset 700: (?i:{reason})") as caught:
        records_of(own_batch(b"whatever", attributes=codec))
    assert caught.value.__dict__["offset"] == 700


@pytest.mark.parametrize("frame", [True, False], ids=["xerial", "raw"])
def test_snappy_as_java_and_as_others_frame_it(frame: bool) -> None:
    bodies = [record_bytes(value=zigzag(100) + bytes(100), offset_delta=number) for number in range(3)]
    blocks = [pa.Codec("snappy").compress(body, asbytes=True) for body in bodies]
    framed = b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01" + b"".join(
        struct.pack(">i", len(block)) + block for block in blocks
    )
    stream = framed if frame else pa.Codec("snappy").compress(b"".join(bodies), asbytes=True)
    found = records_of(own_batch(stream, 3, attributes=2))
    assert [(each.offset, each.value) for each in found] == [(700 + number, bytes(100)) for number in range(3)]


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_a_batch_may_not_unpack_to_more_than_the_limit(codec: Codec) -> None:
    body = record_bytes(value=zigzag(100_000) + bytes(100_000))
    batch = own_batch(bytes(Compressor(codec).compress(body)), attributes=codec)
    assert len(batch) < 10_000
    assert len(records_of(batch, limit=len(body))) == 1
    with pytest.raises(CorruptRecord, match=f"offset 700: .*{len(body) - 1}"):
        records_of(batch, limit=len(body) - 1)


def test_a_flipped_bit_fails_the_crc() -> None:
    batch = bytearray(foreign_batch([(None, b"value", [])], base_offset=41))
    batch[-2] ^= 1
    with pytest.raises(CorruptRecord, match="offset 41: CRC"):
        records_of(bytes(batch))


MALFORMED = {
    "record length past the end": (record_bytes(size=1000), "record length is 1000"),
    "negative record length": (record_bytes(size=-1), "record length is -1"),
    "record shorter than its fields": (record_bytes(size=3), "ends inside its key length"),
    "record longer than its fields": (record_bytes(size=9) + bytes(3), "3 bytes more than its fields"),
    "no record at all": (b"", "ends inside its record length"),
    "varint without an end": (b"\x80" * 12, "varint of more than 5 bytes"),
    "varint of 33 bits": (b"\xff\xff\xff\xff\x7f", "varint out of range"),
    "timestamp delta without an end": (
        record_bytes(timestamp_delta=b"\x80" * 11),
        "timestamp delta is a varint of more",
    ),
    "timestamp delta of 65 bits": (
        record_bytes(timestamp_delta=b"\xff" * 9 + b"\x7f"),
        "timestamp delta is a varint out",
    ),
    "offset delta past the batch": (record_bytes(offset_delta=5), "offset delta 5 lies outside of 0 … 0"),
    "negative offset delta": (record_bytes(offset_delta=-1), "offset delta -1 lies outside"),
    "key length past the record": (record_bytes(key=zigzag(100)), "key length is 100"),
    "key length below -1": (record_bytes(key=zigzag(-2)), "key length is -2"),
    "value length past the record": (record_bytes(value=zigzag(2**30)), "value length is 1073741824"),
    "negative header count": (record_bytes(headers=zigzag(-1)), "header count is -1"),
    "more headers than bytes": (record_bytes(headers=zigzag(2**31 - 1)), "header count is 2147483647"),
    "null header key": (record_bytes(headers=b"\x02\x01\x01"), "a header key is null"),
    "header value past the record": (record_bytes(headers=b"\x02\x02a\x08"), "header value length is 4"),
}


NO_TEXT = {
    "a": b"\x02\x02a\x01", "b\ufffd": b"\x02\x04b\xff\x01", "\ufffd": b"\x02\x04\xe2\x82\x01",
    "\ufffdc": b"\x02\x08\xed\xa0\x80c\x01", "\ufffdd": b"\x02\x06\xed\xa0d\x01",
}  # fmt: skip
"""Name as it is read → headers of a record with one header, whose value is null"""


@pytest.mark.parametrize(("body", "reason"), MALFORMED.values(), ids=MALFORMED.keys())
def test_malformed_records_name_offset_and_reason(body: bytes, reason: str) -> None:
    with pytest.raises(CorruptRecord) as caught:
        records_of(own_batch(body))
    assert "offset 700" in str(caught.value)
    assert reason in str(caught.value)


def test_the_offset_named_is_that_of_the_bad_record() -> None:
    with pytest.raises(CorruptRecord, match="offset 701: record length") as caught:
        records_of(own_batch(record_bytes() + record_bytes(size=99), 2))
    assert caught.value.__dict__["offset"] == 701


@pytest.mark.covers("RB7–RB10")
@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize(
    ("claimed", "reason"),
    [(1, "offset 701: 15 bytes are left after the last"), (4, "offset 703: the record ends inside its record length")],
)
def test_fewer_and_more_records_than_claimed(codec: Codec, claimed: int, reason: str) -> None:
    body = record_bytes() + record_bytes(offset_delta=1) + record_bytes(offset_delta=2, value=b"\x02x")
    batch = own_batch(bytes(Compressor(codec).compress(body)), claimed, attributes=codec)
    with pytest.raises(CorruptRecord, match=reason):
        records_of(batch + own_batch(record_bytes(), base_offset=800))


def test_rows_before_the_damage_come_first() -> None:
    good, bad = own_batch(record_bytes()), own_batch(record_bytes() + record_bytes(size=99), 2, base_offset=701)
    batches = read_records(good + bad + good)
    assert [record.offset for record in single_records(next(batches))] == [700, 701]
    with pytest.raises(CorruptRecord, match="offset 702: record length is 99"):
        next(batches)


@pytest.mark.parametrize("damage", [b"\x09", b"\x01"], ids=["bad magic", "bad checksum"])
def test_batches_before_a_bad_header_come_first(damage: bytes) -> None:
    bad = bytearray(own_batch(record_bytes(), base_offset=701))
    bad[16:17] = damage
    batches = read_records(own_batch(record_bytes()) + bytes(bad))
    assert [record.offset for record in single_records(next(batches))] == [700]
    with pytest.raises(CorruptRecord, match=r"magic 9|at offset 701: the message"):
        next(batches)


def test_a_wrong_checksum_passes_if_it_is_not_checked() -> None:
    batch = bytearray(own_batch(record_bytes()))
    batch[17] ^= 1
    assert len(records_of(bytes(batch), verify_crc=False)) == 1


@pytest.mark.parametrize("base", [-1, 2**63 - 5])
def test_offsets_out_of_64_bits(base: int) -> None:
    batch = patched(own_batch(record_bytes(), base_offset=base), 23, struct.pack(">i", 10))
    with pytest.raises(CorruptRecord, match=f"offset {base}: a batch with last offset delta 10 cannot start there"):
        records_of(batch)


def test_timestamps_out_of_64_bits() -> None:
    body = record_bytes() + record_bytes(offset_delta=1, timestamp_delta=zigzag(2**63 - 1))
    with pytest.raises(
        CorruptRecord, match="offset 701: timestamp delta 9223372036854775807 does not fit into 64 bits"
    ):
        records_of(own_batch(body, 2))


def test_deltas_may_be_negative() -> None:
    assert records_of(own_batch(record_bytes(timestamp_delta=zigzag(-1000))))[0].timestamp == 0
    assert records_of(own_batch(record_bytes(timestamp_delta=zigzag(-1001))))[0].timestamp == -1


@pytest.mark.slow
@pytest.mark.parametrize("packed", [False, True])
def test_a_batch_of_more_records_than_are_decoded_at_once(packed: bool) -> None:
    rows = batch_decoder.ROWS_AT_ONCE + 5
    body = b"".join(record_bytes(offset_delta=delta, value=b"\x02x" if delta % 3 else b"\x01") for delta in range(rows))
    content, codec = (bytes(Compressor(Codec.LZ4).compress(body)), 3) if packed else (body, 0)
    batches = list(read_records(own_batch(content, rows, attributes=codec)))
    assert [batch.num_rows for batch in batches] == [batch_decoder.ROWS_AT_ONCE, 5]
    assert pa.concat_arrays([batch.column("offset") for batch in batches]).to_pylist() == list(range(700, 700 + rows))
    assert batches[1].column("value").null_count == 1
    for claimed, reason in ((rows + 1, "ends inside its record length"), (rows - 1, "bytes are left after the last")):
        with pytest.raises(CorruptRecord, match=f"offset {700 + min(rows, claimed)}: .*{reason}"):
            records_of(own_batch(content, claimed, attributes=codec))


@pytest.mark.covers("RB17")
@pytest.mark.parametrize("codec", Codec)
def test_piece_by_piece_gives_what_all_at_once_does(codec: Codec, monkeypatch: pytest.MonkeyPatch) -> None:
    """A few rows at a time, in batches one by one, and the whole log in one go."""
    body = b"".join(
        record_bytes(offset_delta=delta, value=zigzag(delta % 50) + bytes(delta % 50), headers=b"\x02\x02h\x02x")
        for delta in range(100)
    )
    packed = bytes(Compressor(codec).compress(body))
    log = [own_batch(packed, 100, attributes=codec, base_offset=base) for base in (0, 100, 200)]
    eager = records_of(b"".join(log))
    assert [each.offset for each in eager] == list(range(300))
    assert [each for batch in log for each in records_of(batch)] == eager
    monkeypatch.setattr(batch_decoder, "ROWS_AT_ONCE", 7)  # else 65,536, too many to compare one by one
    pieces = list(read_records(b"".join(log)))
    assert [piece.num_rows for piece in pieces] == [*[7] * 42, 6]
    assert [each for piece in pieces for each in single_records(piece)] == eager


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_a_batch_of_more_headers_than_are_decoded_at_once(codec: Codec, monkeypatch: pytest.MonkeyPatch) -> None:
    bodies = [
        record_bytes(offset_delta=delta, headers=zigzag(delta % 7) + b"\x02h\x02x" * (delta % 7)) for delta in range(60)
    ]
    data = own_batch(bytes(Compressor(codec).compress(b"".join(bodies))), 60, attributes=codec)
    whole = records_of(data)
    assert [len(record.headers) for record in whole] == [delta % 7 for delta in range(60)]
    monkeypatch.setattr(batch_decoder, "HEADERS_AT_ONCE", 11)  # else 524,288
    pieces = list(read_records(data))
    assert [record for piece in pieces for record in single_records(piece)] == whole
    headers = [sum(len(record.headers) for record in single_records(piece)) for piece in pieces]
    assert max(headers) <= 11
    assert all(
        here + len(following.column("headers")[0]) > 11 for here, following in zip(headers, pieces[1:], strict=False)
    )
    monkeypatch.setattr(decoded_columns, "MAX_REPAIRED_BYTES", 1)  # else 64 MiB
    bodies[40] = record_bytes(offset_delta=40, headers=b"\x02\x02\xff\x01")
    data = own_batch(bytes(Compressor(codec).compress(b"".join(bodies))), 60, attributes=codec)
    with pytest.raises(CorruptRecord, match="offset 740: a header key is not UTF-8"):
        records_of(data)


def test_header_keys_that_are_no_text_are_read_as_far_as_they_go() -> None:
    """As Java's consumer does, which tests/kafka/test_formats.py asks."""
    bodies = [record_bytes(offset_delta=place, headers=headers) for place, headers in enumerate(NO_TEXT.values())]
    found = [record.headers for record in records_of(own_batch(b"".join(bodies), len(bodies)))]
    assert found == [((name, None),) for name in NO_TEXT]


@pytest.mark.covers("RD14")
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_a_record_batch_has_no_more_bytes_than_are_decoded_at_once(
    codec: Codec, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless one record has more; and small batches are decoded together."""
    sizes = [0, 700, 10, 400, 400, 1, 300, 5000, 20, 20]
    bodies = [record_bytes(offset_delta=delta, value=zigzag(size) + bytes(size)) for delta, size in enumerate(sizes)]
    big = own_batch(bytes(Compressor(codec).compress(b"".join(bodies))), len(bodies), attributes=codec)
    small = own_batch(bytes(Compressor(codec).compress(bodies[0])), attributes=codec)
    monkeypatch.setattr(batch_decoder, "GROUP_BYTES", 1000)  # else 1 MiB
    monkeypatch.setattr(batch_decoder, "BYTES_AT_ONCE", 1000)  # else 4 MiB
    pieces = list(read_records(small * 3 + big))
    assert [[len(row.value or b"") for row in single_records(piece)] for piece in pieces] == [
        [0, 0, 0], [0, 700, 10], [400, 400, 1], [300], [5000], [20, 20],
    ]  # fmt: skip
    assert all(piece.get_total_buffer_size() < 1500 for piece in pieces if piece.num_rows > 1)


def test_the_schema_is_what_is_said() -> None:
    batch = next(read_records(foreign_batch([(b"k", None, [("h", None)]), (None, b"v", [])])))
    batch.validate(full=True)
    assert batch.schema == RECORD_SCHEMA


def test_bytes_after_the_last_record() -> None:
    with pytest.raises(CorruptRecord, match="offset 701: 2 bytes are left after the last record of the batch"):
        records_of(own_batch(record_bytes() + b"xy"))


def test_offset_deltas_must_grow() -> None:
    with pytest.raises(CorruptRecord, match="offset delta 0 lies outside of 1 … 1"):
        records_of(own_batch(record_bytes() + record_bytes(), 2))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda batch: patched(batch, 57, struct.pack(">i", -1)), "claims -1 records"),
        (lambda batch: patched(batch, 57, struct.pack(">i", 2**31 - 1)), "ends inside its record length"),
        (lambda batch: patched(batch, 23, struct.pack(">i", -5)), "last offset delta -5"),
        (lambda batch: patched(batch, 16, b"\x03"), "magic 3"),
        (lambda batch: patched(batch, 8, struct.pack(">i", 20)), "claims 20 bytes"),
        (lambda batch: patched(batch, 8, struct.pack(">i", -1)), "claims -1 bytes"),
    ],
)
def test_malformed_headers(change: Callable[[bytes], bytes], reason: str) -> None:
    with pytest.raises(CorruptRecord, match=reason):
        records_of(change(own_batch(record_bytes())))


@given(st.data(), st.lists(contents, min_size=1, max_size=5))
def test_no_bytes_raise_anything_else(data: st.DataObject, records: list[Content]) -> None:
    """Any bytes changed, with a CRC that fits them, so that the records themselves are attacked."""
    batch = bytearray(foreign_batch(records))
    for _ in range(data.draw(st.integers(1, 4))):
        batch[data.draw(st.integers(HEADER_SIZE - 4, len(batch) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(CorruptRecord):
        assert len(records_of(patched(bytes(batch), 0, b""))) <= len(batch)


@given(st.binary(max_size=200))
@example(b"")
@example(bytes(61))
def test_random_bytes_raise_nothing_else(data: bytes) -> None:
    with contextlib.suppress(CorruptRecord):
        assert len(records_of(data)) <= len(data)
