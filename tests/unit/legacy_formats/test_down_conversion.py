"""V2 to V1 to V0: the same records at the same offsets, and what is lost is said. kafka-python reads the result."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from spark_producer.errors import RecordBatchError
from spark_producer.legacy_formats.batch_format import BatchFormat, BatchProducer
from spark_producer.legacy_formats.builder import MemoryRecordsBuilder
from spark_producer.legacy_formats.down_conversion import ConversionLoss, down_convert
from spark_producer.record.batch_v2 import BatchHeader, TimestampType, read_header
from spark_producer.record.codecs import Codec, Compressor
from spark_producer.record.control import ControlType
from spark_producer.record.reading import read_records, single_records
from tests.unit.record.control_batches import marker
from tests.unit.record.foreign_records import NOW, Row, decode, rows_of_every_shape

ENTRY = pa.struct([pa.field("key", pa.string(), nullable=False), pa.field("value", pa.binary())])
TYPES: dict[str, pa.DataType] = {
    "offset": pa.int64(),
    "timestamp": pa.int64(),
    "key": pa.binary(),
    "value": pa.binary(),
    "headers": pa.list_(ENTRY),
}
SCHEMA = pa.schema(TYPES)
LEGACY_CODECS = [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4]


def columns_of(rows: Sequence[Row]) -> Any:
    """Rows as a reader's columns."""
    headers = [[{"key": key, "value": value} for key, value in row.headers] for row in rows]
    listed = [{**row._asdict(), "headers": entries} for row, entries in zip(rows, headers, strict=True)]
    return pa.RecordBatch.from_pylist(listed, SCHEMA)


def converted(rows: Any, magic: int, set_bytes: int = 1 << 20, **options: Any) -> tuple[bytes, ConversionLoss]:
    """All sets and one account."""
    data, lost = b"", ConversionLoss()
    for piece, missing in down_convert(rows, magic, set_bytes=set_bytes, **options):
        data, lost = data + piece, lost.plus(missing)
    return data, lost


def header_with(**options: Any) -> BatchHeader:
    """The header of a V2 batch of one record."""
    producer = options.pop("producer", BatchProducer())
    builder = MemoryRecordsBuilder(memoryview(bytearray(200)), BatchFormat(**options), producer=producer)
    builder.append(NOW, b"k", b"v")
    return read_header(builder.close())


@pytest.mark.parametrize("codec", LEGACY_CODECS)
@pytest.mark.parametrize("magic", [0, 1])
def test_records_keep_all_but_headers_and_in_v0_their_time(magic: int, codec: Codec) -> None:
    rows = rows_of_every_shape(2, base_offset=77)
    rows = [*rows[:30], *rows[33:60], rows[90]]
    data, lost = converted(columns_of(rows), magic, header=header_with(), compressor=Compressor(codec))
    assert decode(data) == [row._replace(headers=(), timestamp=row.timestamp if magic else -1) for row in rows], (
        "gaps of compaction stay"
    )
    with_headers = sum(bool(row.headers) for row in rows)
    assert lost == ConversionLoss(headers=with_headers, timestamps=0 if magic else len(rows))


def test_v1_to_v0_loses_the_time_alone() -> None:
    rows = [Row(5, NOW, b"k", b"v"), Row(6, -1, None, None)]
    columns = columns_of(rows).drop_columns(["headers"])
    data, lost = converted(columns, 0)
    assert decode(data) == [row._replace(timestamp=-1) for row in rows]
    assert lost == ConversionLoss(timestamps=1)
    assert str(lost) == "the timestamps of 1 records"


@pytest.mark.parametrize("codec", LEGACY_CODECS)
def test_log_append_time_stays_the_brokers(codec: Codec) -> None:
    header = header_with(timestamp_type=TimestampType.LOG_APPEND_TIME, log_append_time=NOW + 50)
    rows = [Row(9, NOW + 50, b"k", b"v"), Row(10, NOW + 50, b"k", b"w")]
    data, lost = converted(columns_of(rows), 1, header=header, compressor=Compressor(codec))
    assert decode(data) == rows
    assert data[17] == 0x08 | codec
    assert lost == ConversionLoss()
    assert str(lost) == "nothing"


def test_what_a_producer_and_a_transaction_wrote_is_said_to_be_lost() -> None:
    header = header_with(producer=BatchProducer(7, 0, 0, transactional=True))
    _, lost = converted(columns_of([Row(0, NOW, b"k", b"v", (("h", b"x"),))]), 1, header=header)
    assert lost == ConversionLoss(headers=1, producer=True, transaction=True)
    assert str(lost) == "the headers of 1 records, the producer's id and sequences, the transaction"


def test_markers_are_left_out() -> None:
    header = read_header(marker(0, 7, ControlType.COMMIT))
    record = Row(0, NOW, b"\x00\x00\x00\x01", b"\x00\x00\x00\x00\x00\x00")
    for rows in ([], [record]):
        data, lost = converted(columns_of(rows), 1, header=header)
        assert len(data) == 0
        assert lost == ConversionLoss(producer=True, transaction=True, control_records=1)


def test_zstd_has_to_become_another_codec() -> None:
    with pytest.raises(RecordBatchError, match=r"does not have zstd\. Use gzip"):
        converted(columns_of([Row(0, NOW, b"k", b"v")]), 1, compressor=Compressor(Codec.ZSTD))


@pytest.mark.parametrize("codec", LEGACY_CODECS)
@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("set_bytes", [1, 300, 20_000])
def test_no_row_is_lost_between_two_sets(magic: int, codec: Codec, set_bytes: int) -> None:
    """A set ends where its bytes do, in the middle of a run of offsets or at its end, and the rows go on in the next."""
    rows = rows_of_every_shape(2, base_offset=77)
    rows = [*rows[:30], *rows[33:60], *rows[61:90:3]]
    header = header_with(producer=BatchProducer(7, 0, 0))
    compressor = Compressor(codec)
    sets = list(down_convert(columns_of(rows), magic, set_bytes=set_bytes, header=header, compressor=compressor))
    found = [decode(data) for data, _ in sets]
    assert [row for part in found for row in part] == [
        row._replace(headers=(), timestamp=row.timestamp if magic else -1) for row in rows
    ]
    overhead = 26 + 8 * magic
    for part in found:
        size = sum(overhead + len(row.key or b"") + len(row.value or b"") for row in part)
        assert size <= set_bytes or len(part) == 1
    assert len(sets) > 1
    _, lost = converted(columns_of(rows), magic, set_bytes, header=header, compressor=compressor)
    with_headers = sum(bool(row.headers) for row in rows)
    assert lost == ConversionLoss(with_headers, 0 if magic else len(rows), producer=True)


@pytest.mark.parametrize("codec", LEGACY_CODECS)
@pytest.mark.parametrize("magic", [0, 1])
def test_offsets_that_no_set_spans_come_in_two(magic: int, codec: Codec) -> None:
    far = [0, 2**31 - 1, 2**31, 2**32 + 5, 2**63 - 2, 2**63 - 1]
    rows = [Row(offset, NOW if magic else -1, b"k", b"v") for offset in far]
    sets = list(down_convert(columns_of(rows), magic, set_bytes=1 << 20, compressor=Compressor(codec)))
    found = [[record for batch in read_records(data) for record in single_records(batch)] for data, _ in sets]
    assert [[record.offset for record in part] for part in found] == [far[:2], far[2:3], far[3:4], far[4:]]


@pytest.mark.parametrize("offsets", [(5, 5), (5, 6, 4)])
def test_offsets_that_do_not_rise_are_refused(offsets: tuple[int, ...]) -> None:
    columns = columns_of([Row(offset, NOW, b"k", b"v") for offset in offsets])
    with pytest.raises(RecordBatchError, match=f"offset {offsets[-1]} does not come after {offsets[-2]}"):
        converted(columns, 1)


def test_a_time_that_v1_does_not_take_is_named() -> None:
    rows = columns_of([Row(4, NOW, b"k", b"v"), Row(9, -5, b"k", b"v")])
    with pytest.raises(
        RecordBatchError, match="the record at offset 9 has timestamp -5, and format V1 takes none below"
    ):
        list(down_convert(rows, 1, set_bytes=999))
    assert sum(lost.timestamps for _, lost in down_convert(rows, 0, set_bytes=999)) == 2
