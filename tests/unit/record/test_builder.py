"""MemoryRecordsBuilder. Ids: spec §6, MB1 to MB21; kafka-python reads what is built."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_producer.errors import RecordBatchError
from spark_producer.kernel import ArrangedRows, BinaryColumn, RecordColumns
from spark_producer.record.batch_format import BatchFormat, ProducerState, RecordsInfo
from spark_producer.record.batch_v2 import BatchHeader, TimestampType, read_header
from spark_producer.record.builder import MemoryRecordsBuilder
from spark_producer.record.compression import Codec, Compressor
from spark_producer.record.control import ControlType, end_transaction_value, leader_change_value
from tests.unit.record.foreign_records import NOW, Row, decode, rows_of_every_shape

FORMATS = [(magic, codec) for magic in (0, 1, 2) for codec in Codec if magic == 2 or codec is not Codec.ZSTD]
every_format = pytest.mark.parametrize(
    ("magic", "codec"), FORMATS, ids=lambda value: getattr(value, "name", str(value))
)
TRANSACTION = ProducerState(1234, 5, 7, transactional=True)
CONTROL = BatchFormat(control=True)


def buffer(size: int = 1 << 16) -> memoryview:
    return memoryview(bytearray(size))


def builder_of(magic: int = 2, codec: Codec = Codec.NONE, size: int = 1 << 16, **options: Any) -> MemoryRecordsBuilder:
    kind = TimestampType.CREATE_TIME if magic else TimestampType.NONE
    fields = {field.name for field in dataclasses.fields(BatchFormat)} & set(options)
    batch_format = BatchFormat(
        **{"magic": magic, "timestamp_type": kind, **{name: options.pop(name) for name in fields}}
    )
    return MemoryRecordsBuilder(buffer(size), batch_format, compressor=Compressor(codec), **options)


def header_of(builder: MemoryRecordsBuilder) -> BatchHeader:
    return read_header(builder.close())


@every_format
def test_mb1_no_records_give_no_bytes(magic: int, codec: Codec) -> None:
    builder = builder_of(magic, codec)
    assert len(builder.close()) == 0
    assert builder.estimated_size == 0
    assert builder.info.max_timestamp == -1


@every_format
def test_records_of_every_shape_are_read_by_kafka_python(magic: int, codec: Codec) -> None:
    rows = rows_of_every_shape(magic, base_offset=3)
    builder = builder_of(magic, codec, 200, base_offset=3, write_limit=1 << 30)
    for row in rows:
        builder.append(row.timestamp, row.key, row.value, row.headers)
    assert decode(builder.close()) == rows


def test_mb2_transactional_flag() -> None:
    builder = builder_of(producer=TRANSACTION)
    builder.append(NOW, b"k", b"v")
    header = header_of(builder)
    assert header.is_transactional
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (1234, 5, 7)
    assert not header.is_control


@pytest.mark.parametrize(
    ("producer", "reason"),
    [
        (ProducerState(-1, 0, 0, transactional=True), "needs the id"),  # MB3
        (ProducerState(1234, -1, 0), "epoch -1"),  # MB4
        (ProducerState(1234, 0, -1), "sequence -1"),  # MB5
        (ProducerState(1234, 0, -1, transactional=True), "sequence -1"),
    ],
)
def test_mb3_to_mb5_invalid_producers_are_refused(producer: ProducerState, reason: str) -> None:
    builder = builder_of(producer=producer)
    builder.append(NOW, b"k", b"v")
    with pytest.raises(RecordBatchError, match=reason):
        builder.close()
    builder.set_producer(TRANSACTION)
    assert header_of(builder).producer_id == 1234


def test_mb5_a_control_batch_needs_no_sequence() -> None:
    builder = builder_of(control=True, producer=TRANSACTION._replace(base_sequence=-1))
    builder.append_control(NOW, ControlType.COMMIT, end_transaction_value(3))
    header = header_of(builder)
    assert header.is_control
    assert header.is_transactional
    assert header.base_sequence == -1
    (row,) = decode(builder.close())
    assert (row.key, row.value) == (b"\x00\x00\x00\x01", bytes.fromhex("000000000003"))


@pytest.mark.parametrize("kind", [ControlType.ABORT, ControlType.COMMIT])
@pytest.mark.parametrize("producer", [ProducerState(), ProducerState(1234, 5, 7)])
def test_mb6_a_marker_without_a_transaction_is_refused(kind: ControlType, producer: ProducerState) -> None:
    with pytest.raises(RecordBatchError, match="needs a producer id and the transactional flag"):
        builder_of(control=True, producer=producer).append_control(NOW, kind, end_transaction_value(0))


def test_mb6_markers_and_records_do_not_share_a_batch() -> None:
    with pytest.raises(RecordBatchError, match="takes the records of users only"):
        builder_of(producer=TRANSACTION).append_control(NOW, ControlType.ABORT, end_transaction_value(0))
    with pytest.raises(RecordBatchError, match="takes control records only"):
        builder_of(control=True, producer=TRANSACTION).append(NOW, b"k", b"v")
    for magic in (0, 1):
        with pytest.raises(RecordBatchError, match=f"V{magic} does not have control records"):
            builder_of(magic, control=True)


def test_mb7_leader_change() -> None:
    value = leader_change_value(1, [1, 2, 3], [1, 3])
    with pytest.raises(RecordBatchError, match="leader epoch"):
        builder_of(control=True).append_control(NOW, ControlType.LEADER_CHANGE, value)
    builder = builder_of(control=True, leader_epoch=4)
    builder.append_control(NOW, ControlType.LEADER_CHANGE, value)
    header = header_of(builder)
    assert header.is_control
    assert header.partition_leader_epoch == 4
    assert [row.value for row in decode(builder.close())] == [value]


@every_format
def test_mb8_compression_ratio(magic: int, codec: Codec) -> None:
    builder = builder_of(magic, codec)
    for _ in range(50):
        builder.append(NOW, b"key", b"value" * 20)
    uncompressed = builder.uncompressed_size
    size = len(builder.close())
    header = {2: 61, 1: 34 if codec else 0, 0: 26 if codec else 0}[magic]
    assert builder.uncompressed_size == uncompressed
    assert builder.compression_ratio == pytest.approx((size - header) / uncompressed)
    assert (builder.compression_ratio < 0.5) is (codec is not Codec.NONE)


@every_format
@pytest.mark.parametrize("ratio", [0.1, 1.0, 2.0])
def test_mb9_the_estimate_grows_and_is_exact_at_the_end(magic: int, codec: Codec, ratio: float) -> None:
    builder = builder_of(magic, codec, ratio=ratio)
    estimates = []
    for number in range(100):
        builder.append(NOW, b"key", b"%d" % number)
        estimates.append(builder.estimated_size)
    assert estimates == sorted(estimates)
    start = builder.estimated_size - int(builder.uncompressed_size * (1.0 if codec is Codec.NONE else ratio * 1.05))
    assert start == {2: 61, 1: 34 if codec else 0, 0: 26 if codec else 0}[magic]
    builder.close_for_appends()
    assert builder.estimated_size == len(builder.close())
    if codec is Codec.NONE:
        assert estimates[-1] == builder.estimated_size


@every_format
def test_mb10_log_append_time_info(magic: int, codec: Codec) -> None:
    if magic == 0:
        assert builder_of(0, codec).info == RecordsInfo(-1, -1)
        return
    fields = {"timestamp_type": TimestampType.LOG_APPEND_TIME, "log_append_time": NOW + 99, "base_offset": 10}
    builder = builder_of(magic, codec, **fields)
    for number in range(3):
        builder.append(number, b"k", b"v")
    shallow = 10 if magic < 2 and codec is Codec.NONE else 12
    assert builder.info == RecordsInfo(NOW + 99, shallow)
    assert [row.timestamp for row in decode(builder.close())] == [NOW + 99] * 3


@every_format
def test_mb10_create_time_info(magic: int, codec: Codec) -> None:
    builder = builder_of(magic, codec, base_offset=10)
    for timestamp in (0, 2, 1):
        builder.append(timestamp, b"k", b"v")
    if magic == 0:
        assert builder.info == RecordsInfo(-1, 12)
    else:
        assert builder.info == RecordsInfo(2, 11 if magic < 2 and codec is Codec.NONE else 12)
        assert [row.timestamp for row in decode(builder.close())] == [0, 2, 1]


def test_mb10_the_place_of_the_largest_time_of_whole_columns() -> None:
    columns = RecordColumns(BinaryColumn(pa.array([b"v"] * 4)), timestamps=np.array([NOW, NOW + 3, NOW + 9, NOW + 9]))
    builder = builder_of(1, base_offset=100)
    assert builder.append_rows(ArrangedRows(columns, np.array([3, 1, 0, 2])), 1, 4) == 4
    assert builder.info == RecordsInfo(NOW + 9, 102)


@every_format
def test_mb11_every_way_to_append_gives_the_same_bytes(magic: int, codec: Codec) -> None:
    rows = [row._replace(headers=(), timestamp=NOW + number) for number, row in enumerate(rows_of_every_shape(magic))]
    one_by_one, with_offsets, as_columns = (builder_of(magic, codec, 1 << 19) for _ in range(3))
    for row in rows:
        one_by_one.append(row.timestamp, row.key, row.value)
        with_offsets.append(row.timestamp, row.key, row.value, offset=row.offset)
    columns = RecordColumns(
        BinaryColumn(pa.array([row.value for row in rows], pa.binary())),
        BinaryColumn(pa.array([row.key for row in rows], pa.binary())),
        None,
        np.array([row.timestamp for row in rows]),
    )
    arranged = ArrangedRows(columns, np.arange(len(rows)))
    assert as_columns.append_rows(arranged, 0, 10) == 10
    assert as_columns.append_rows(arranged, 10, len(rows)) == len(rows)
    assert bytes(one_by_one.close()) == bytes(with_offsets.close()) == bytes(as_columns.close())
    if magic == 2:
        data = one_by_one.close()
        assert read_header(data).crc == crc32c(data[21:])


@every_format
def test_mb12_a_write_limit_of_0_takes_one_record(magic: int, codec: Codec) -> None:
    builder = builder_of(magic, codec, 0 if codec is Codec.NONE else 61, write_limit=0)
    assert not builder.is_full
    assert builder.has_room_for(NOW, b"k", b"v" * 500)
    columns = RecordColumns(BinaryColumn(pa.array([b"v" * 500] * 3)), timestamps=NOW)
    assert builder.append_rows(ArrangedRows(columns, np.arange(3)), 0, 3) == 1
    assert builder.is_full
    assert not builder.has_room_for(NOW, None, None)
    assert [row.value for row in decode(builder.close())] == [b"v" * 500]


@every_format
def test_mb13_a_batch_past_its_limit_is_full(magic: int, codec: Codec) -> None:
    builder = builder_of(magic, codec, 100, write_limit=400)
    taken = 0
    while builder.has_room_for(NOW, b"key", b"value"):
        assert not builder.is_full
        builder.append(NOW, b"key", b"value")
        taken += 1
    assert taken > 4
    assert builder.estimated_size <= 400
    builder.append(NOW, b"key", b"v" * 500)  # the caller may insist
    assert builder.is_full
    assert len(decode(builder.close())) == taken + 1


@every_format
def test_mb13_columns_fill_a_batch_like_single_records(magic: int, codec: Codec) -> None:
    values = [b"v" * (number % 50) for number in range(300)]
    rows = ArrangedRows(RecordColumns(BinaryColumn(pa.array(values)), timestamps=NOW), np.arange(300))
    singly, together = (builder_of(magic, codec, 1000, ratio=0.5, write_limit=2000) for _ in range(2))
    taken = 0
    while singly.has_room_for(NOW, None, values[taken]):
        singly.append(NOW, None, values[taken])
        taken += 1
    following = together.append_rows(rows, 0, 300)
    if codec is Codec.NONE:
        assert following == taken
    else:  # a single record counts in full before it is taken, columns as they are expected to come out
        assert taken <= following <= taken + 3
    assert together.estimated_size <= 2000
    assert len(together.close()) <= 2000


def test_mb14_offsets_rise() -> None:
    builder = builder_of(base_offset=5)
    builder.append(NOW, b"k", b"v", offset=7)
    builder.append(NOW, b"k", b"v", offset=20)
    for offset in (20, 19, 5, 0):
        with pytest.raises(RecordBatchError, match=f"offset {offset} does not come after 20"):
            builder.append(NOW, b"k", b"v", offset=offset)
    with pytest.raises(RecordBatchError, match="too far"):
        builder.append(NOW, b"k", b"v", offset=5 + 2**31)
    header = header_of(builder)
    assert (header.base_offset, header.last_offset, header.records_count) == (5, 20, 2)
    assert [row.offset for row in decode(builder.close())] == [7, 20]


@every_format
def test_mb15_to_mb19_an_aborted_batch_is_over(magic: int, codec: Codec) -> None:
    builder = builder_of(magic, codec)
    builder.append(NOW, b"k", b"v")
    builder.abort()
    assert builder.estimated_size == 0, "its bytes are gone"
    assert builder.is_full
    assert not builder.has_room_for(NOW, b"k", b"v")
    with pytest.raises(RecordBatchError, match="is aborted; it takes no more"):
        builder.append(NOW, b"k", b"v")
    with pytest.raises(RecordBatchError, match="cannot be closed"):
        builder.close()
    with pytest.raises(RecordBatchError, match="cannot be reopened"):
        builder.reopen(TRANSACTION)


@every_format
def test_mb15_to_mb19_a_closed_batch_takes_nothing(magic: int, codec: Codec) -> None:
    builder = builder_of(magic, codec)
    builder.append(NOW, b"k", b"v")
    builder.close_for_appends()
    with pytest.raises(RecordBatchError, match="closed for appends; it takes no more"):
        builder.append(NOW, b"k", b"v")
    first = bytes(builder.close())
    builder.close_for_appends()
    assert bytes(builder.close()) == first
    with pytest.raises(RecordBatchError, match="is closed; it takes no more"):
        builder.append_rows(ArrangedRows(RecordColumns(BinaryColumn(pa.array([b"v"]))), np.arange(1)), 0, 1)
    with pytest.raises(RecordBatchError, match="producer cannot change"):
        builder.set_producer(ProducerState())


@pytest.mark.parametrize("codec", Codec)
def test_a_reopened_batch_has_the_same_records_for_another_producer(codec: Codec) -> None:
    builder = builder_of(codec=codec, producer=ProducerState(1, 0, 0))
    builder.append(NOW, b"k", b"v" * 100)
    first = bytes(builder.close())
    builder.reopen(ProducerState(1, 1, 40))
    second = bytes(builder.close())
    assert first[61:] == second[61:]
    header = read_header(second)
    assert (header.producer_epoch, header.base_sequence, header.crc) == (1, 40, crc32c(second[21:]))


@pytest.mark.parametrize("codec", Codec)
def test_mb20_a_delete_horizon_is_the_base_of_the_timestamps(codec: Codec) -> None:
    builder = builder_of(codec=codec, delete_horizon=NOW + 10_000)
    for number in range(3):
        builder.append(NOW + number, b"k", None)
    header = header_of(builder)
    assert header.delete_horizon == header.base_timestamp == NOW + 10_000
    assert header.max_timestamp == NOW + 2
    assert [row.timestamp for row in decode(builder.close())] == [NOW, NOW + 1, NOW + 2]
    with pytest.raises(RecordBatchError, match="V1 does not have a delete horizon"):
        builder_of(1, delete_horizon=NOW)


def test_mb21_zstd_needs_v2() -> None:
    for magic in (0, 1):
        with pytest.raises(RecordBatchError, match="does not have zstd"):
            builder_of(magic, Codec.ZSTD)


def test_what_a_format_does_not_have_is_refused() -> None:
    with pytest.raises(RecordBatchError, match="no message format 3"):
        BatchFormat(magic=3)
    with pytest.raises(RecordBatchError, match="V2 needs a type of timestamp"):
        BatchFormat(timestamp_type=TimestampType.NONE)
    with pytest.raises(RecordBatchError, match="smallest is -1"):
        builder_of().append(-2, b"k", b"v")
    for magic in (0, 1):
        with pytest.raises(RecordBatchError, match=f"V{magic} does not have record headers"):
            builder_of(magic).append(NOW, b"k", b"v", [("h", b"x")])
        transactional = builder_of(magic, producer=TRANSACTION)
        with pytest.raises(RecordBatchError, match=f"V{magic} does not have transactions"):
            transactional.close()


def test_records_without_a_time_may_begin_a_batch() -> None:
    builder = builder_of()
    for timestamp in (-1, NOW, -1):
        builder.append(timestamp, b"k", b"v")
    assert [row.timestamp for row in decode(builder.close())] == [-1, NOW, -1]
    assert builder.info == RecordsInfo(NOW, 2)


@every_format
def test_a_growing_buffer_is_asked_for_and_handed_over(magic: int, codec: Codec) -> None:
    asked: list[tuple[int, int]] = []

    def grow(before: memoryview, size: int) -> memoryview:
        asked.append((len(before), size))
        larger = buffer(size)
        larger[: len(before)] = before
        return larger

    noise = np.random.default_rng(1).bytes(3000)
    builder = MemoryRecordsBuilder(
        buffer(1000),
        BatchFormat(magic=magic, timestamp_type=TimestampType.CREATE_TIME if magic else TimestampType.NONE),
        compressor=Compressor(codec),
        grow=grow,
    )
    builder.append(NOW, None, b"small")
    assert asked == []
    builder.append(NOW, None, noise)
    assert len(asked) == 1
    assert asked[0][0] == 1000
    assert 3000 < asked[0][1] < 3120
    assert [row.value for row in decode(builder.close())] == [b"small", noise]


@every_format
def test_a_batch_that_cannot_grow_is_full(magic: int, codec: Codec) -> None:
    kind = TimestampType.CREATE_TIME if magic else TimestampType.NONE
    options: dict[str, Any] = {
        "compressor": Compressor(codec),
        "ratio": 0.1,
        "write_limit": 4000,
        "grow": lambda *_: None,
    }
    builder = MemoryRecordsBuilder(buffer(1000), BatchFormat(magic=magic, timestamp_type=kind), **options)
    values = [b"v" * 50] * 100
    rows = ArrangedRows(RecordColumns(BinaryColumn(pa.array(values)), timestamps=NOW if magic else -1), np.arange(100))
    taken = builder.append_rows(rows, 0, 100)
    assert 800 < builder.uncompressed_size <= 1000
    assert builder.append_rows(rows, taken, 100) == taken
    with pytest.raises(RecordBatchError, match="does not fit, and the buffer cannot grow"):
        builder.append(NOW, None, b"v" * 500)
    assert [row.value for row in decode(builder.close())] == values[:taken]


@every_format
def test_what_does_not_pack_stays_as_it_is_where_there_is_no_memory(magic: int, codec: Codec) -> None:
    noise = np.random.default_rng(3).bytes(900)
    size = {0: 26 + (26 if codec else 0), 1: 34 + (34 if codec else 0), 2: 61 + 9}[magic] + len(noise)
    kind = TimestampType.CREATE_TIME if magic else TimestampType.NONE
    batch_format = BatchFormat(magic=magic, timestamp_type=kind)
    spare = 20  # an upper bound of V2's record is asked for, and less than a codec needs for noise
    grow = {"grow": lambda *_: None}
    builder = MemoryRecordsBuilder(buffer(size + spare), batch_format, compressor=Compressor(codec), **grow)
    builder.append(NOW, None, noise)
    builder.buffer = builder.buffer[:size]
    if magic < 2 and codec is not Codec.NONE:
        if codec is not Codec.SNAPPY:  # which packs the zeros before the noise
            with pytest.raises(RecordBatchError, match="compressed bytes do not fit"):
                builder.close_for_appends()
        return
    assert [row.value for row in decode(builder.close())] == [noise]
    assert len(builder.close()) <= size
    if magic == 2:
        assert header_of(builder).codec == 0
    assert builder.compression_ratio == 1.0


@every_format
def test_a_closed_batch_moves_to_a_buffer_of_its_size(magic: int, codec: Codec) -> None:
    builder = builder_of(magic, codec)
    before = builder.buffer
    for _ in range(20):
        builder.append(NOW if magic else -1, b"k", b"v" * 50)
    builder.close_for_appends()
    with pytest.raises(RecordBatchError, match="does not fit"):
        builder.move_to(buffer(builder.estimated_size - 1))
    exact = buffer(builder.estimated_size)
    assert builder.move_to(exact) is before
    before[:] = bytes([0xEE]) * len(before)
    data = builder.close()
    assert data.obj is exact.obj
    assert decode(data) == [Row(number, NOW if magic else -1, b"k", b"v" * 50) for number in range(20)]


shape = st.tuples(
    st.integers(-1, 2**41),
    st.none() | st.binary(max_size=40),
    st.none() | st.binary(max_size=300),
    st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=9)), max_size=3),
)


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(FORMATS), st.lists(shape, min_size=1, max_size=12), st.integers(0, 900), st.integers(0, 2**40))
def test_room_is_exact_for_any_records(
    magic_codec: tuple[int, Codec], records: list[Any], limit: int, base_offset: int
) -> None:
    magic, codec = magic_codec
    builder = builder_of(magic, codec, 100, base_offset=base_offset, write_limit=limit)
    expected = []
    for timestamp, key, value, pairs in records:
        headers = tuple(pairs) if magic == 2 else ()
        had_room, before = builder.has_room_for(timestamp, key, value, headers), builder.estimated_size
        uncompressed = builder.uncompressed_size
        assert had_room is (builder.records_count == 0) or before <= limit
        builder.append(timestamp, key, value, headers)
        size = builder.uncompressed_size - uncompressed
        if builder.records_count > 1:
            assert had_room is (before < limit and before + size <= limit)
        expected.append(Row(base_offset + len(expected), timestamp if magic else -1, key, value, headers))
    found = decode(builder.close())
    assert found == expected
