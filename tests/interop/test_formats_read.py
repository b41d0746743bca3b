"""The reader decodes batches of kafka-python, kio and librdkafka: all formats and codecs, batches of all shapes."""

from __future__ import annotations

import datetime
import io
from collections import Counter
from collections.abc import Sequence
from random import Random

import pytest
from kafka.record.default_records import DefaultRecordBatchBuilder
from kafka.record.legacy_records import LegacyRecordBatchBuilder
from kio.records.schema import NewRecordBatch, RecordHeader
from kio.records.schema import Record as KioRecord
from kio.records.writers import write_new_batch
from kio.static.primitive import TZAwareMicros, i8, i16, i32, i64

from spark_producer.broker import LocalBroker
from spark_producer.record.codecs import Codec
from spark_producer.record.reading import read_records, single_records
from tests.interop.generated_batches import FORMATS, moved_into_a_log, rows_of_any_shape
from tests.interop.read_with_reader import read_with_reader, write_with_librdkafka
from tests.unit.record.foreign_records import Row

EACH = 100
"""Batches of each format and codec"""


def rows_in(data: bytes) -> list[Row]:
    return [Row(*record) for batch in read_records(data) for record in single_records(batch)]


def by_kafka_python(magic: int, codec: Codec, rows: Sequence[Row]) -> bytes:
    if magic < 2:
        messages = LegacyRecordBatchBuilder(magic, codec, 1 << 30)
        for row in rows:
            messages.append(row.offset, row.timestamp, row.key, row.value)
        return bytes(messages.build())
    builder = DefaultRecordBatchBuilder(2, codec, False, -1, -1, -1, 1 << 30)
    for row in rows:
        builder.append(row.offset, row.timestamp, row.key, row.value, list(row.headers))
    return bytes(builder.build())


def test_every_format_and_codec_of_kafka_python() -> None:
    """The client does not compress a V2 batch that would not get smaller."""
    random, packed = Random(31), Counter[tuple[int, Codec]]()
    for magic, codec in FORMATS * EACH:
        rows = rows_of_any_shape(random, magic)
        if magic < 2:  # its builder of V2 begins at 0
            rows = moved_into_a_log(random, rows)
        data = by_kafka_python(magic, codec, rows)
        assert rows_in(data) == rows, f"V{magic} {codec.name}, {len(rows)} records"
        packed[magic, codec] += data[22 if magic == 2 else 17] & 7 == codec
    assert set(packed) == set(FORMATS)
    assert min(packed.values()) > EACH // 2


def by_kio(rows: Sequence[Row]) -> bytes:
    """kio leaves compression to its caller; times are whole seconds, since kio computes them with floating point."""
    records = tuple(
        KioRecord(
            attributes=i8(0),
            timestamp=TZAwareMicros.parse(datetime.datetime.fromtimestamp(row.timestamp // 1000, datetime.UTC)),
            offset=i64(row.offset),
            key=row.key,
            value=row.value,
            headers=tuple(RecordHeader(key=name.encode(), value=content) for name, content in row.headers),
        )
        for row in rows
    )
    out = io.BytesIO()
    batch = NewRecordBatch(
        producer_id=i64(7), producer_epoch=i16(0), base_sequence=i32(0), records=records, attributes=i16(0)
    )
    write_new_batch(out, batch)
    return out.getvalue()


def test_batches_of_kio() -> None:
    random = Random(32)
    for _ in range(4 * EACH):
        rows = [row._replace(timestamp=row.timestamp // 1000 * 1000) for row in rows_of_any_shape(random, 2)]
        assert rows_in(by_kio(rows)) == rows


@pytest.mark.parametrize("codec", Codec)
def test_batches_of_librdkafka(codec: Codec) -> None:
    """The embedded broker stores them as they came."""
    with LocalBroker() as broker:
        broker.create_topic("t", 1)
        wanted = write_with_librdkafka(broker.bootstrap_servers, "t", codec, EACH)
        found, codecs = read_with_reader(broker.bootstrap_servers, "t", len(wanted))
    assert found == wanted
    assert set(codecs) <= {0, codec}
    assert codecs[codec] >= EACH // 2, "what does not get smaller goes out as it is"
