"""MemoryRecordsBuilder: what may be appended, states, header. Ids (tests/ids.md): MB1 to MB5, MB10, MB11, MB14 to MB21."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from crc32c import crc32c

from spark_producer.errors import RecordBatchError
from spark_producer.kernel import ArrangedRows, BinaryColumn, RecordColumns
from spark_producer.legacy_formats.batch_format import BatchFormat, BatchProducer
from spark_producer.legacy_formats.builder import MemoryRecordsBuilder
from spark_producer.record.batch_v2 import TimestampType, read_header
from spark_producer.record.codecs import Codec
from spark_producer.record.reading import ConsumerRecord, read_records, single_records
from tests.unit.record.builders import TRANSACTION, builder_of, every_format, header_of
from tests.unit.record.foreign_records import NOW, decode, rows_of_every_shape


@pytest.mark.covers("MB1")
@every_format
def test_no_records_give_no_bytes(magic: int, codec: Codec) -> None:
    builder = builder_of(magic, codec)
    assert len(builder.close()) == 0
    assert builder.estimated_size == 0
    assert builder.max_timestamp == -1


@every_format
def test_records_of_every_shape_are_read_by_kafka_python(magic: int, codec: Codec) -> None:
    rows = rows_of_every_shape(magic, base_offset=3)
    builder = builder_of(magic, codec, 200, base_offset=3, write_limit=1 << 30)
    for row in rows:
        builder.append(row.timestamp, row.key, row.value, row.headers)
    assert decode(builder.close()) == rows


@pytest.mark.covers("MB2")
def test_transactional_flag() -> None:
    builder = builder_of(producer=TRANSACTION)
    builder.append(NOW, b"k", b"v")
    header = header_of(builder)
    assert header.is_transactional
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (1234, 5, 7)
    assert not header.is_control


@pytest.mark.covers("MB3–MB5")
@pytest.mark.parametrize(
    ("producer", "reason"),
    [
        (BatchProducer(-1, 0, 0, transactional=True), "needs the id"),  # MB3
        (BatchProducer(1234, -1, 0), "epoch -1"),  # MB4
        (BatchProducer(1234, 0, -1), "sequence -1"),  # MB5
        (BatchProducer(1234, 0, -1, transactional=True), "sequence -1"),
        (BatchProducer(-5, 0, 0), "producer id is from 0 to .* not -5"),
        (BatchProducer(1, 2**15, 0), "producer epoch is from 0 to 32767, or -1 for none, not 32768"),
        (BatchProducer(1, 0, 2**31), "base sequence is from 0 to 2147483647, or -1 for none, not 2147483648"),
    ],
)
def test_invalid_producers_are_refused(producer: BatchProducer, reason: str) -> None:
    builder = builder_of(producer=producer)
    builder.append(NOW, b"k", b"v")
    with pytest.raises(RecordBatchError, match=reason):
        builder.close()


@pytest.mark.covers("MB10")
@every_format
def test_the_log_append_time_is_the_largest(magic: int, codec: Codec) -> None:
    if magic == 0:
        assert builder_of(0, codec).max_timestamp == -1
        return
    fields = {"timestamp_type": TimestampType.LOG_APPEND_TIME, "log_append_time": NOW + 99, "base_offset": 10}
    builder = builder_of(magic, codec, **fields)
    for number in range(3):
        builder.append(number, b"k", b"v")
    assert builder.max_timestamp == NOW + 99
    assert [row.timestamp for row in decode(builder.close())] == [NOW + 99] * 3


@pytest.mark.covers("MB10")
@every_format
def test_the_largest_create_time(magic: int, codec: Codec) -> None:
    builder = builder_of(magic, codec, base_offset=10)
    for timestamp in (0, 2, 1):
        builder.append(timestamp, b"k", b"v")
    if magic == 0:
        assert builder.max_timestamp == -1
    else:
        assert builder.max_timestamp == 2
        assert [row.timestamp for row in decode(builder.close())] == [0, 2, 1]


@pytest.mark.covers("MB10")
def test_the_largest_time_of_whole_columns() -> None:
    columns = RecordColumns(BinaryColumn(pa.array([b"v"] * 4)), timestamps=np.array([NOW, NOW + 3, NOW + 9, NOW + 9]))
    builder = builder_of(1, base_offset=100)
    assert builder.append_rows(ArrangedRows(columns, np.array([3, 1, 0, 2])), 1, 4) == 4
    assert builder.max_timestamp == NOW + 9


@pytest.mark.covers("MB11")
@every_format
def test_every_way_to_append_gives_the_same_bytes(magic: int, codec: Codec) -> None:
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


@pytest.mark.covers("MB14")
def test_offsets_rise() -> None:
    builder = builder_of(base_offset=5)
    builder.append(NOW, b"k", b"v", offset=7)
    builder.append(NOW, b"k", b"v", offset=20)
    for offset in (20, 19, 5, 0):
        with pytest.raises(RecordBatchError, match=f"offset {offset} does not come after 20"):
            builder.append(NOW, b"k", b"v", offset=offset)
    with pytest.raises(RecordBatchError, match="too far"):
        builder.append(NOW, b"k", b"v", offset=5 + 2**31)
    two = ArrangedRows(RecordColumns(BinaryColumn(pa.array([b"v", b"w"], pa.binary()))), np.arange(2))
    with pytest.raises(RecordBatchError, match=f"offset {5 + 2**31} is too far from the batch's base offset 5"):
        builder.append_rows(two, 0, 2, offset=5 + 2**31 - 1)
    header = header_of(builder)
    assert (header.base_offset, header.last_offset, header.records_count) == (5, 20, 2)
    assert [row.offset for row in decode(builder.close())] == [7, 20]


@pytest.mark.covers("MB14")
@every_format
def test_offsets_are_those_of_a_log(magic: int, codec: Codec) -> None:
    with pytest.raises(RecordBatchError, match="cannot start at offset -1"):
        builder_of(magic, codec, base_offset=-1)
    three = ArrangedRows(RecordColumns(BinaryColumn(pa.array([b"v"] * 3, pa.binary()))), np.arange(3))
    builder = builder_of(magic, codec, base_offset=2**63 - 3)
    assert builder.append_rows(three, 0, 3) == 3
    with pytest.raises(RecordBatchError, match=f"offset {2**63} is too far"):
        builder.append_rows(three, 0, 1)
    assert [row.offset for batch in read_records(builder.close()) for row in single_records(batch)] == [
        2**63 - 3, 2**63 - 2, 2**63 - 1,
    ]  # fmt: skip


@pytest.mark.covers("MB14")
@every_format
def test_rows_that_do_not_fit_move_no_offset(magic: int, codec: Codec) -> None:
    """A batch ends at its last record, whatever offset the next row was to have."""
    rows = ArrangedRows(RecordColumns(BinaryColumn(pa.array([bytes(30), bytes(400)], pa.binary()))), np.arange(2))
    builder = builder_of(magic, codec, write_limit=200)
    assert builder.append_rows(rows, 0, 1) == 1
    assert not builder.is_full
    assert builder.append_rows(rows, 1, 2, offset=90) == 1
    assert builder.last_offset == 0
    builder.append(NOW, b"k", bytes(400))
    assert builder.is_full
    assert builder.append_rows(rows, 1, 2, offset=90) == 1
    assert [row.offset for row in decode(builder.close())] == [0, 1]


@pytest.mark.covers("MB15–MB19")
@every_format
def test_an_aborted_batch_is_over(magic: int, codec: Codec) -> None:
    builder = builder_of(magic, codec)
    builder.append(NOW, b"k", b"v")
    builder.abort()
    assert builder.estimated_size == 0, "its bytes are gone"
    assert builder.is_full
    assert not builder.fits(NOW, b"k", b"v")
    with pytest.raises(RecordBatchError, match="is aborted; it takes no more"):
        builder.append(NOW, b"k", b"v")
    with pytest.raises(RecordBatchError, match="cannot be closed"):
        builder.close()


@pytest.mark.covers("MB15–MB19")
@every_format
def test_a_closed_batch_takes_nothing(magic: int, codec: Codec) -> None:
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


@pytest.mark.covers("MB20")
@pytest.mark.parametrize("codec", Codec)
def test_a_delete_horizon_is_the_base_of_the_timestamps(codec: Codec) -> None:
    builder = builder_of(codec=codec, delete_horizon=NOW + 10_000)
    for number in range(3):
        builder.append(NOW + number, b"k", None)
    header = header_of(builder)
    assert header.delete_horizon == header.base_timestamp == NOW + 10_000
    assert header.max_timestamp == NOW + 2
    assert [row.timestamp for row in decode(builder.close())] == [NOW, NOW + 1, NOW + 2]
    with pytest.raises(RecordBatchError, match="V1 does not have a delete horizon"):
        builder_of(1, delete_horizon=NOW)


@pytest.mark.covers("MB21")
def test_zstd_needs_v2() -> None:
    for magic in (0, 1):
        with pytest.raises(RecordBatchError, match="does not have zstd"):
            builder_of(magic, Codec.ZSTD)


def test_what_a_format_does_not_have_is_refused() -> None:
    with pytest.raises(RecordBatchError, match="no message format 3"):
        BatchFormat(magic=3)
    for magic in (1, 2):
        with pytest.raises(RecordBatchError, match=f"V{magic} needs a type of timestamp"):
            BatchFormat(magic=magic, timestamp_type=TimestampType.NONE)
    for kind in (TimestampType.CREATE_TIME, TimestampType.LOG_APPEND_TIME):
        with pytest.raises(RecordBatchError, match="V0 does not have timestamps"):
            BatchFormat(magic=0, timestamp_type=kind, log_append_time=NOW)
    for magic in (0, 1):
        with pytest.raises(RecordBatchError, match=f"V{magic} does not have a leader epoch"):
            builder_of(magic, leader_epoch=5)
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
    assert builder.max_timestamp == NOW


# --- times at the end of 64 bits ------------------------------------------------------------------------------------

LAST = 2**63 - 1
NO_SUCH_TIME = [-(2**63) - 1, -(2**63), -2, 2**63, 2**70]


def times_of(*timestamps: int) -> ArrangedRows:
    values = BinaryColumn(pa.array([b"v"] * len(timestamps), pa.binary()))
    return ArrangedRows(RecordColumns(values, timestamps=np.array(timestamps)), np.arange(len(timestamps)))


@pytest.mark.parametrize("magic", [0, 1, 2])
@pytest.mark.parametrize("timestamp", NO_SUCH_TIME)
def test_a_timestamp_that_is_none_is_refused_wherever_it_comes_in(magic: int, timestamp: int) -> None:
    reason = f"a record has timestamp {timestamp}; it is from 0 to {LAST} ms since 1970, or -1 for none"
    builder = builder_of(magic)
    with pytest.raises(RecordBatchError, match=reason):
        builder.append(timestamp, b"k", b"v")
    if -(2**63) <= timestamp <= LAST:
        with pytest.raises(RecordBatchError, match=reason):
            builder.append_rows(times_of(5, timestamp, 7), 0, 3)
    builder.append(LAST, b"k", b"v")
    assert [row.timestamp for row in decode(builder.close())] == [LAST if magic else -1]


@pytest.mark.parametrize("timestamp", NO_SUCH_TIME)
def test_a_format_has_no_such_time_either(timestamp: int) -> None:
    with pytest.raises(RecordBatchError, match=f"a delete horizon is from 0 to {LAST} ms .*, not "):
        BatchFormat(delete_horizon=timestamp)
    with pytest.raises(RecordBatchError, match=f"a log append time is from 0 to {LAST} ms .*, not "):
        BatchFormat(log_append_time=timestamp)


def test_timestamps_whose_difference_has_more_than_64_bits_do_not_share_a_batch() -> None:
    """The record after the first one says how much later it is; readers refuse what does not fit."""
    builder = builder_of()
    builder.append(-1, b"k", b"v")
    for append in (lambda: builder.append(LAST, b"k", b"v"), lambda: builder.append_rows(times_of(5, LAST), 0, 2)):
        with pytest.raises(RecordBatchError, match=f"timestamps -1 and {LAST} are too far apart for one batch"):
            append()
    builder.append(LAST - 1, b"k", b"v")
    with pytest.raises(RecordBatchError, match="too far apart"):
        builder_of().append_rows(times_of(-1, LAST), 0, 2)
    assert [row.timestamp for row in single_rows(builder)] == [-1, LAST - 1]
    other = builder_of()
    assert other.append_rows(times_of(LAST, 0, -1), 0, 3) == 3
    assert [row.timestamp for row in single_rows(other)] == [LAST, 0, -1]
    assert builder_of().append_rows(times_of(LAST, 0, -1), 1, 3) == 3
    assert builder_of().append_rows(times_of(LAST, 0, -1), 2, 3) == 3
    old = builder_of(1)  # whose records have whole timestamps
    assert old.append_rows(times_of(-1, LAST), 0, 2) == 2


def single_rows(builder: MemoryRecordsBuilder) -> list[ConsumerRecord]:
    return [row for batch in read_records(builder.close()) for row in single_records(batch)]


@pytest.mark.parametrize("epoch", [-2, 2**31])
def test_a_leader_epoch_that_does_not_fit_is_refused(epoch: int) -> None:
    with pytest.raises(RecordBatchError, match=f"leader epoch is from 0 to 2147483647, or -1 for none, not {epoch}"):
        builder_of(leader_epoch=epoch)


@pytest.mark.parametrize("ratio", [0.0, -1.0, float("nan")])
def test_a_ratio_is_above_0(ratio: float) -> None:
    with pytest.raises(RecordBatchError, match="ratio of compressed to uncompressed bytes must be above 0, not"):
        builder_of(codec=Codec.GZIP, ratio=ratio)
