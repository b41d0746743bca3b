"""Message sets V0 and V1: golden bytes, kafka-python as reader. Ids (tests/ids.md): LR and LB."""

from __future__ import annotations

import struct
import zlib
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from kafka.record.legacy_records import LegacyRecordBatchBuilder

from spark_producer.errors import RecordBatchError
from spark_producer.kernel import ArrangedRows, BinaryColumn, RecordColumns
from spark_producer.kernel.arrays import BytesType
from spark_producer.legacy_formats import encode_table, message_set
from spark_producer.legacy_formats.batch_format import BatchFormat, BatchProducer
from spark_producer.legacy_formats.builder import MemoryRecordsBuilder
from spark_producer.record.batch_v2 import TimestampType
from spark_producer.record.codecs import Codec, Compressor
from tests.unit.record.foreign_records import NOW, Row, decode, rows_of_every_shape

G3 = bytes.fromhex(
    "0000000000000000000000162356c1370000000000036b65790000000576616c7565"
    "000000000000000100000010d5960a780000ffffffff000000027632"
)
G4 = bytes.fromhex(
    "00000000000000000000001e6ad05db801000000018bcfe56800000000036b65790000000576616c7565"
    "000000000000000100000018820bfd0301000000018bcfe56805ffffffff000000027632"
)
LEGACY_CODECS = [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4]
TYPES = {0: TimestampType.NONE, 1: TimestampType.CREATE_TIME}


def build(
    magic: int, rows: list[Row], codec: Codec = Codec.NONE, *, base_offset: int = 0, log_append_time: int | None = None
) -> bytes:
    """A message set, row by row."""
    kind = TYPES[magic] if log_append_time is None else TimestampType.LOG_APPEND_TIME
    batch_format = BatchFormat(
        magic=magic, base_offset=base_offset, timestamp_type=kind, log_append_time=log_append_time or -1
    )
    builder = MemoryRecordsBuilder(
        memoryview(bytearray(1 << 17)), batch_format, compressor=Compressor(codec), write_limit=1 << 30
    )
    for row in rows:
        builder.append(row.timestamp, row.key, row.value, offset=row.offset)
    return bytes(builder.close())


@pytest.mark.parametrize(("magic", "golden"), [(0, G3), (1, G4)])
def test_golden_bytes(magic: int, golden: bytes) -> None:
    rows = [Row(0, NOW, b"key", b"value"), Row(1, NOW + 5, None, b"v2")]
    assert build(magic, rows) == golden


@pytest.mark.covers("LR1")
@pytest.mark.parametrize("magic", [0, 1])
def test_columns_give_the_bytes_of_kafka_pythons_encoder(magic: int) -> None:
    rows = rows_of_every_shape(magic)
    foreign = LegacyRecordBatchBuilder(magic, 0, 1 << 30)
    for row in rows:
        foreign.append(row.offset, None if magic == 0 else row.timestamp, row.key, row.value)
    columns = RecordColumns(
        BinaryColumn(pa.array([row.value for row in rows], pa.large_binary())),
        BinaryColumn(pa.array([row.key for row in rows], pa.binary())),
        None,
        np.array([row.timestamp for row in rows]),
    )
    buffer = memoryview(bytearray(1 << 19))
    arranged = ArrangedRows(columns, np.arange(len(rows)))
    following, position, latest = message_set.encode_messages(
        arranged, 0, len(rows), 0, magic, None, buffer, 0, len(buffer)
    )
    assert (following, latest) == (len(rows), max(row.timestamp for row in rows))
    assert bytes(buffer[:position]) == bytes(foreign.build())


@pytest.mark.covers("LR1")
@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary()])
def test_rows_in_any_order_stop_before_the_first_that_does_not_fit(magic: int, kind: BytesType) -> None:
    values = [b"a" * number for number in range(40)]
    columns = RecordColumns(BinaryColumn(pa.array(values, kind)), timestamps=NOW)
    arranged = ArrangedRows(columns, np.array([5, 3, 30, 1, 39]))
    sizes = message_set.message_sizes(arranged, 0, 5, magic)
    assert sizes.tolist() == [12 + (14, 22)[magic] + length for length in (5, 3, 30, 1, 39)]
    for limit in range(10, 10 + int(sizes.sum()) + 2):
        buffer = memoryview(bytearray(b"\xee" * 400))
        following, position, _ = message_set.encode_messages(arranged, 0, 5, 9, magic, None, buffer, 10, limit)
        fitting = int((np.cumsum(sizes) + 10 <= limit).sum())
        assert (following, position) == (fitting, 10 + int(sizes[:fitting].sum()))
        assert bytes(buffer[position:]) == b"\xee" * (400 - position), "nothing is written after the position"
        if fitting:
            found = decode(buffer[10:position])
            assert [row.offset for row in found] == list(range(9, 9 + fitting))
            assert [len(row.value or b"") for row in found] == [5, 3, 30, 1, 39][:fitting]


@pytest.mark.parametrize("codec", LEGACY_CODECS)
@pytest.mark.parametrize("magic", [0, 1])
def test_every_codec_and_shape_is_read_by_kafka_python(magic: int, codec: Codec) -> None:
    rows = list(rows_of_every_shape(magic, base_offset=1000))
    rows = rows[:20] + rows[30:]  # a gap, as compaction leaves
    assert decode(build(magic, rows, codec, base_offset=1000)) == rows


@pytest.mark.parametrize("codec", LEGACY_CODECS[1:])
@pytest.mark.parametrize("magic", [0, 1])
def test_a_wrapper_has_the_last_offset_and_the_largest_time(magic: int, codec: Codec) -> None:
    rows = [Row(50, NOW + 9, b"k", b"v"), Row(51, NOW, None, b"w"), Row(55, NOW + 3, None, None)]
    data = build(magic, rows, codec, base_offset=50)
    offset, size, crc, found_magic, attributes = struct.unpack_from(">qiIbb", data)
    assert (offset, size, found_magic, attributes) == (55, len(data) - 12, magic, codec)
    assert crc == zlib.crc32(data[16:])
    at = 18
    if magic:
        assert struct.unpack_from(">q", data, at) == (NOW + 9,)
        at += 8
    assert struct.unpack_from(">ii", data, at) == (-1, len(data) - at - 8)
    inner = {Codec.GZIP: lambda packed: zlib.decompress(packed, 31)}.get(codec)
    if inner:
        assert struct.unpack_from(">q", inner(data[at + 8 :])) == ((0,) if magic else (50,)), "V1 counts from the first"


@pytest.mark.covers("LZ1")
@pytest.mark.parametrize(("magic", "checksum"), [(0, 0x1A), (1, 0x82)])
def test_only_v0_has_the_wrong_header_checksum(magic: int, checksum: int) -> None:
    data = build(magic, [Row(0, NOW, b"k", b"v" * 100)], Codec.LZ4)
    assert data[message_set.wrapper_size(magic) :][:7] == bytes.fromhex("04224d186040") + bytes([checksum])


@pytest.mark.covers("LB4")
def test_zstd_is_refused() -> None:
    for magic in (0, 1):
        with pytest.raises(RecordBatchError, match=rf"V{magic} does not have zstd\. Use gzip"):
            build(magic, [], Codec.ZSTD)


@pytest.mark.covers("LB3")
@pytest.mark.parametrize("codec", LEGACY_CODECS)
def test_log_append_time_is_the_wrappers_or_each_messages(codec: Codec) -> None:
    rows = [Row(0, NOW, b"k", b"v"), Row(1, NOW + 1, None, b"w")]
    data = build(1, rows, codec, log_append_time=NOW + 500)
    assert [row.timestamp for row in decode(data)] == [NOW + 500] * 2
    assert data[17] == 0x08 | codec


def test_a_set_measures_no_more_rows_than_could_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise many small sets would take quadratic time."""
    measured: list[int] = []
    sizes = message_set.message_sizes

    def counted(rows: ArrangedRows, first: int, stop: int, magic: int) -> Any:
        measured.append(stop - first)
        return sizes(rows, first, stop, magic)

    monkeypatch.setattr(message_set, "message_sizes", counted)
    table = pa.table({"value": pa.array([b"v" * 20] * 10_000)})
    assert len(list(encode_table(table, message_format_version="0.10.0", batch_bytes=4096))) > 100
    assert sum(measured) < 3 * len(table)


@pytest.mark.parametrize("magic", [0, 1])
def test_producers_have_no_id_in_the_older_formats(magic: int) -> None:
    batch_format = BatchFormat(magic=magic, timestamp_type=TYPES[magic])
    builder = MemoryRecordsBuilder(memoryview(bytearray(999)), batch_format, producer=BatchProducer(7, 1, 5))
    builder.append(NOW, b"k", b"v")
    with pytest.raises(RecordBatchError, match=f"V{magic} does not have producer ids; V2 does"):
        builder.close()
