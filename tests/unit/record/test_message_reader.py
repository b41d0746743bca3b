"""The reader of V0 and V1: golden bytes, kafka-python's builder, and messages that no builder would write."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.legacy_records import LegacyRecordBatchBuilder

from spark_producer.errors import CorruptRecord
from spark_producer.kernel.arrays import MAX_BINARY_BYTES
from spark_producer.kernel.binary_slices import binary_slices
from spark_producer.kernel.column_views import PIECE_BYTES
from spark_producer.record import message_reader
from spark_producer.record.codecs import Codec
from spark_producer.record.reading import ConsumerRecord, read_records, single_records
from tests.unit.record.messages import message, with_crc, wrapper
from tests.unit.record.test_reading import own_batch, record_bytes, records_of

CODECS = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4]
BOTH = pytest.mark.parametrize("magic", [0, 1])
PACKED = pytest.mark.parametrize("codec", CODECS)

GOLDEN_V0 = "0000000000000000000000162356c1370000000000036b65790000000576616c75650000000000000001000000" + (
    "10d5960a780000ffffffff000000027632"
)
GOLDEN_V1 = "00000000000000000000001e6ad05db801000000018bcfe56800000000036b65790000000576616c7565" + (
    "000000000000000100000018820bfd0301000000018bcfe56805ffffffff000000027632"
)
GOLDEN_V2 = (
    "0000000000000000000000500000000002ce90982d0000000000010000018bcfe568000000018bcfe56805ffffffffffffffffffffffffffff"
    "000000021c000000066b65790a76616c7565001e000a02010476320402680278026e01"
)
START = 1_700_000_000_000


def in_message(magic: int, offset: int, timestamp: int = 1000) -> bytes:
    return message(magic, offset, b"k%d" % offset, b"v", timestamp=timestamp)


def rows(data: bytes) -> list[tuple[int, int, bytes | None]]:
    return [(record.offset, record.timestamp, record.key) for record in records_of(data)]


def test_golden_bytes_g1_g3_g4() -> None:
    assert records_of(bytes.fromhex(GOLDEN_V0)) == [
        ConsumerRecord(0, -1, b"key", b"value", ()),
        ConsumerRecord(1, -1, None, b"v2", ()),
    ]
    assert records_of(bytes.fromhex(GOLDEN_V1)) == [
        ConsumerRecord(0, START, b"key", b"value", ()),
        ConsumerRecord(1, START + 5, None, b"v2", ()),
    ]
    assert records_of(bytes.fromhex(GOLDEN_V2)) == [
        ConsumerRecord(0, START, b"key", b"value", ()),
        ConsumerRecord(1, START + 5, None, b"v2", (("h", b"x"), ("n", None))),
    ]


@given(
    st.lists(
        st.tuples(st.none() | st.binary(max_size=30), st.none() | st.binary(max_size=300)), min_size=1, max_size=20
    ),
    st.sampled_from([(0, 0), (1, 0), (0, 1), (1, 1), (1, 3)]),
)
def test_messages_of_kafka_python_come_back(
    contents: list[tuple[bytes | None, bytes | None]], shape: tuple[int, int]
) -> None:
    """Without what it has only with other packages: snappy, and LZ4 for V0."""
    magic, codec = shape
    builder = LegacyRecordBatchBuilder(magic=magic, compression_type=codec, batch_size=1 << 20)
    for number, (key, value) in enumerate(contents):
        builder.append(number, timestamp=START + number, key=key, value=value)
    found = records_of(bytes(builder.build()))
    assert [(record.key, record.value) for record in found] == contents
    assert [record.timestamp for record in found] == [START + n if magic else -1 for n in range(len(contents))]


@pytest.mark.covers("LR1")
@BOTH
def test_fields_nulls_and_gaps(magic: int) -> None:
    data = (
        message(magic, 5, None, None) + message(magic, 9, b"", b"", timestamp=-1) + message(magic, 10, b"k", b"v" * 9)
    )
    time = 1000 if magic else -1
    assert [tuple(record)[:4] for record in records_of(data)] == [
        (5, time, None, None),
        (9, -1, b"", b""),
        (10, time, b"k", b"v" * 9),
    ]


@pytest.mark.covers("LR1")
@BOTH
def test_every_flipped_bit_after_the_crc_is_found(magic: int) -> None:
    whole = message(magic, 7, b"key", b"value")
    for position in range(16, len(whole)):
        for bit in range(8):
            damaged = bytearray(whole)
            damaged[position] ^= 1 << bit
            with pytest.raises(CorruptRecord):
                records_of(bytes(damaged))
    assert records_of(whole[:12] + whole[12:]) == [ConsumerRecord(7, 1000 if magic else -1, b"key", b"value", ())]


@pytest.mark.covers("LR1")
@BOTH
def test_equal_records_are_equal_bytes_and_any_other_is_not(magic: int) -> None:
    one = message(magic, 7, b"key", b"value")
    assert message(magic, 7, b"key", b"value") == one
    others = [(8, b"key", b"value"), (7, b"kez", b"value"), (7, b"", b"value"), (7, None, b"value"), (7, b"key", None)]
    for other in others:
        assert message(magic, *other) != one
        assert records_of(message(magic, *other)) != records_of(one)
    assert (message(magic, 7, b"key", b"value", timestamp=1001) != one) is (magic == 1), "V0 has no time"


def test_formats_may_follow_each_other() -> None:
    data = in_message(0, 1) + in_message(1, 2) + own_batch(record_bytes(), base_offset=3) + in_message(1, 4)
    assert [record.offset for record in records_of(data)] == [1, 2, 3, 4]


@PACKED
def test_lb_offsets_in_a_wrapper_are_relative_in_v1_and_absolute_in_v0(codec: Codec) -> None:
    relative = in_message(1, 0, 7) + in_message(1, 1, 8) + in_message(1, 3, 9)
    assert rows(wrapper(1, 53, relative, codec)) == [(50, 7, b"k0"), (51, 8, b"k1"), (53, 9, b"k3")]
    absolute = in_message(0, 50) + in_message(0, 52)
    assert rows(wrapper(0, 52, absolute, codec) + in_message(0, 53)) == [
        (50, -1, b"k50"),
        (52, -1, b"k52"),
        (53, -1, b"k53"),
    ]


@pytest.mark.covers("LB1")
def test_a_wrapper_at_offset_0_starts_there() -> None:
    assert rows(wrapper(1, 0, in_message(1, 0) + in_message(1, 1), Codec.GZIP)) == [(0, 1000, b"k0"), (1, 1000, b"k1")]


@pytest.mark.covers("LB2")
def test_a_wrapper_below_its_last_message() -> None:
    with pytest.raises(CorruptRecord, match="wrapper message at offset 1: its offset is below 2, the last relative"):
        rows(wrapper(1, 1, in_message(1, 0) + in_message(1, 2), Codec.GZIP))


def test_log_append_time_is_that_of_the_wrapper() -> None:
    inner = in_message(1, 0, 7) + in_message(1, 1, 8)
    assert [time for _, time, _ in rows(wrapper(1, 1, inner, Codec.LZ4, timestamp=99, attributes=8))] == [99, 99]


@pytest.mark.covers("LB4")
@BOTH
def test_zstd_is_refused(magic: int) -> None:
    with pytest.raises(CorruptRecord, match=f"offset 3: format V{magic} has no zstd"):
        rows(wrapper(magic, 3, in_message(magic, 3), Codec.ZSTD))


BAD_WRAPPERS = {
    "null value": (message(1, 7, None, None, attributes=1), "its value is null"),
    "wrapper in a wrapper": (
        wrapper(1, 7, wrapper(1, 0, in_message(1, 0), Codec.GZIP), Codec.GZIP),
        "is a wrapper too",
    ),
    "nothing in it": (wrapper(1, 7, b"", Codec.GZIP), "hold no whole message"),
    "half a message": (
        wrapper(1, 7, in_message(1, 0) + in_message(1, 1)[:-1], Codec.GZIP),
        "36 of its 73 bytes hold no",
    ),
    "another format": (
        wrapper(1, 7, in_message(0, 0), Codec.GZIP),
        "it has format V1, but a message in it has another",
    ),
    "offsets that fall": (wrapper(1, 7, in_message(1, 1) + in_message(1, 0), Codec.GZIP), "do not grow"),
    "offsets that repeat": (wrapper(0, 7, in_message(0, 7) * 2, Codec.GZIP), "do not grow"),
    "no stream": (message(1, 7, None, b"garbage", attributes=3), "(LZ4|lz4)"),
    "a wrong checksum inside": (wrapper(1, 7, in_message(1, 0)[:-1] + b"w", Codec.GZIP), "message at offset 0: CRC is"),
    "codec 7": (message(1, 7, None, b"garbage", attributes=7), "codec 7 is unknown"),
}


@pytest.mark.parametrize(("data", "reason"), BAD_WRAPPERS.values(), ids=BAD_WRAPPERS.keys())
def test_lb_bad_wrappers(data: bytes, reason: str) -> None:
    with pytest.raises(CorruptRecord, match=f"wrapper message at offset 7: .*{reason}"):
        records_of(data)


def patched(data: bytes, position: int, content: bytes) -> bytes:
    return with_crc(data[:position] + content + data[position + len(content) :])


BAD_MESSAGES = {
    "key length past the end": (
        patched(in_message(1, 7), 26, struct.pack(">i", 100)),
        "key length is 100, 7 bytes are left",
    ),
    "key length below -1": (patched(in_message(0, 7), 18, struct.pack(">i", -2)), "key length is -2"),
    "value length past the end": (
        patched(in_message(1, 7), 32, struct.pack(">i", 2)),
        "value length is 2, 1 bytes are left",
    ),
    "value length below -1": (patched(in_message(1, 7), 32, struct.pack(">i", -3)), "value length is -3"),
    "no bytes for a value length": (
        patched(in_message(1, 7), 26, struct.pack(">i", 5)),
        "ends inside its value length",
    ),
    "bytes after the value": (message(1, 7, b"k", b"v", extra=b"xy"), "claims 2 bytes more than its fields"),
    "negative offset": (message(1, -7, b"k", b"v"), "offset -7: the offset is negative"),
    "a wrong checksum": (in_message(1, 7)[:-1] + b"w", "offset 7: CRC is 0x"),
    "smaller than V1": (struct.pack(">qiIbBii", 7, 14, 0, 1, 0, -1, -1), "offset 7, claims 14 bytes"),
}


@pytest.mark.parametrize(("data", "reason"), BAD_MESSAGES.values(), ids=BAD_MESSAGES.keys())
def test_bad_messages(data: bytes, reason: str) -> None:
    with pytest.raises(CorruptRecord, match=reason) as caught:
        records_of(data)
    assert caught.value.__dict__["offset"] in (7, -7)


def test_rows_before_the_damage_come_first() -> None:
    batches = read_records(in_message(1, 1) + in_message(1, 2)[:-1] + b"w" + in_message(1, 3))
    assert [record.offset for record in single_records(next(batches))] == [1]
    with pytest.raises(CorruptRecord, match="offset 2: CRC"):
        next(batches)


@pytest.mark.covers("LS1")
@BOTH
def test_an_incomplete_message_at_the_end_is_left_out(magic: int) -> None:
    whole = in_message(magic, 1) + in_message(magic, 2)
    for cut in range(len(whole) // 2, len(whole)):
        assert [record.offset for record in records_of(whole[:cut])] == [1]
    assert records_of(whole[:10]) == []


@pytest.mark.covers("LS1")
@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (struct.pack(">qiIb", 3, 13, 0, 0), "byte 0, offset 3, claims 13 bytes"),
        (struct.pack(">qiIb", 3, -1, 0, 2), "claims -1 bytes"),
        (struct.pack(">qiIb", 3, 48, 0, 2), "claims 48 bytes"),
        (struct.pack(">qiIb", 3, 100, 0, 3), "magic 3; 0, 1 and 2 are known"),
        (struct.pack(">qiIb", 3, 100, 0, -1), "magic -1"),
    ],
)
def test_too_small_or_of_no_format(data: bytes, reason: str) -> None:
    with pytest.raises(CorruptRecord, match=reason) as caught:
        records_of(data)
    assert caught.value.__dict__["offset"] == 3


@pytest.mark.covers("LS1")
@pytest.mark.parametrize("data", [in_message(1, 3), own_batch(record_bytes())], ids=["message", "batch"])
def test_too_large(data: bytes) -> None:
    assert len(records_of(data, max_size=len(data))) == 1
    with pytest.raises(CorruptRecord, match=f"{len(data) - 13} are allowed"):
        records_of(data, max_size=len(data) - 1)


def test_without_a_look_at_checksums() -> None:
    data = in_message(1, 7)[:-1] + b"w"
    assert [record.value for record in records_of(data, verify_crc=False)] == [b"w"]


@BOTH
def test_messages_are_cut_by_their_bytes_too(magic: int) -> None:
    """Few large messages reach beyond what Arrow addresses as well as many small ones do."""
    fifth, beyond = PIECE_BYTES // 5, PIECE_BYTES + 1
    sizes = [*(fifth * (offset % 4) for offset in range(20)), 1, beyond, beyond, 0]
    log = [message(magic, offset, b"k", b"v" * size) for offset, size in enumerate(sizes)]
    log[20] = wrapper(magic, 20, in_message(magic, 0 if magic else 20), Codec.GZIP)
    whole = [records_of(one)[0] for one in log]
    pieces = [piece.num_rows for piece in read_records(b"".join(log))]
    assert sum(pieces) == len(whole) == 24
    assert max(pieces) < 6
    assert pieces[-3:] == [1, 1, 1], "each too large record in a piece of its own"
    assert records_of(b"".join(log)) == whole


def test_slices_that_arrow_cannot_address_are_refused() -> None:
    one: np.typing.NDArray[np.int64] = np.ones(1, dtype=np.int64)
    data = np.zeros(MAX_BINARY_BYTES + 1, dtype=np.uint8)  # never written, so it takes no memory
    assert binary_slices(data[:-1], one, one).to_pylist() == [b"\0"]
    with pytest.raises(ValueError, match="2147483648 bytes of data are more than"):
        binary_slices(data, one, one)


def inner_set(magic: int, rows: int) -> list[bytes]:
    return [in_message(magic, offset, 7 + offset) for offset in range(rows)]


@BOTH
def test_a_wrapper_of_more_messages_than_are_decoded_at_once(magic: int, monkeypatch: pytest.MonkeyPatch) -> None:
    shift = 50 if magic else 0
    data = wrapper(magic, shift + 9, b"".join(inner_set(magic, 10)), Codec.GZIP)
    whole = records_of(data)
    assert [record.offset for record in whole] == list(range(shift, shift + 10))
    monkeypatch.setattr(message_reader, "MESSAGES_AT_ONCE", 4)  # else 65,536
    assert [piece.num_rows for piece in read_records(data)] == [4, 4, 2]
    assert records_of(data) == whole


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({5: in_message(1, 5)[:-1] + b"w"}, "message at offset 5: CRC is"),
        ({4: in_message(1, 3)}, "do not grow"),
        ({3: in_message(1, 99)}, "do not grow"),
        ({9: in_message(1, -(2**63))}, "do not grow"),
        ({8: in_message(0, 8)}, "a message in it has another"),
    ],
)
def test_damage_in_a_later_piece_of_a_wrapper(
    changed: dict[int, bytes], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pieces before it are given out, with the offsets that they have."""
    monkeypatch.setattr(message_reader, "MESSAGES_AT_ONCE", 4)  # else 65,536
    inner = [changed.get(place, one) for place, one in enumerate(inner_set(1, 10))]
    batches = read_records(wrapper(1, 59, b"".join(inner), Codec.GZIP))
    found: list[int] = []
    with pytest.raises(CorruptRecord, match=f"wrapper message at offset 59: .*{reason}"):
        found.extend(record.offset for batch in batches for record in single_records(batch))
    assert found == list(range(50, 50 + len(found)))
    assert len(found) == 4 * (min(changed) // 4) * (9 not in changed)
