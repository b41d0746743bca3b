"""kafka-python, kio and librdkafka read the encoded batches: all formats and codecs, batches of all shapes."""

from __future__ import annotations

import datetime
import random
from collections import Counter

import pytest
from kafka.codec import lz4_encode, lz4_encode_old_kafka
from kafka.record.memory_records import MemoryRecords
from kio.records.readers import read_batch
from kio.static.primitive import TZAwareMicros

from spark_producer.broker import LocalBroker
from spark_producer.legacy_formats.batch_format import BatchFormat, BatchProducer
from spark_producer.legacy_formats.builder import MemoryRecordsBuilder
from spark_producer.record.batch_v2 import TimestampType
from spark_producer.record.codecs import Codec
from tests.interop.generated_batches import FORMATS, generate
from tests.interop.raw_produce import RawProducer
from tests.support.read_back import Client, read_topic
from tests.unit.record.foreign_records import NOW, Row, decode

V2_CODECS = [(2, codec) for codec in Codec]
EPOCH = TZAwareMicros.parse(datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC))


def test_kafka_python_reads_every_format_and_codec() -> None:
    seen: Counter[tuple[int, Codec]] = Counter()
    for batch in generate(seed=1, count=1300, in_a_log=True):
        assert decode(batch.data) == batch.rows, f"batch {seen.total()}, V{batch.magic} {batch.codec.name}"
        seen[batch.magic, batch.codec] += 1
    assert seen == dict.fromkeys(FORMATS, 100)


def test_kafka_python_finds_in_and_on_wrappers_what_brokers_want_there() -> None:
    """More than its iterator looks at: that accepts any time of a wrapper and, since V1 counts offsets back from the last one,
    absolute offsets in V1 as well as relative ones. And it reads LZ4 with either checksum, where brokers before 0.10 do not.
    """
    wrapped = [(magic, codec) for magic, codec in FORMATS if magic < 2 and codec is not Codec.NONE]
    for batch in generate(seed=3, count=50 * len(wrapped), formats=wrapped, in_a_log=True):
        rows, magic = batch.rows, batch.magic
        records = MemoryRecords(bytes(batch.data))
        wrapper = records.next_batch()
        assert records.next_batch() is None
        assert wrapper.validate_crc()
        assert (wrapper.magic, wrapper.compression_type, wrapper.base_offset) == (magic, batch.codec, rows[-1].offset)
        assert wrapper.timestamp_type == (0 if magic else None)
        assert wrapper._timestamp == (max(row.timestamp for row in rows) if magic else None)
        if batch.codec is Codec.LZ4:
            header = (lz4_encode if magic else lz4_encode_old_kafka)(b"")[:7]
            assert bytes(batch.data[26 + 8 * magic :][:7]) == header
        assert [record.timestamp for record in wrapper] == [row.timestamp if magic else None for row in rows]
        inner = [header[0] for header, _ in wrapper._read_all_headers()]
        assert inner == [row.offset - (rows[0].offset if magic else 0) for row in rows]


def kio_rows(data: memoryview) -> list[Row]:
    """The records of one V2 batch, uncompressed, since kio leaves codecs to its caller; it cuts times to seconds."""
    batch, size = read_batch(bytes(data), 0)
    assert size == len(data)
    return [
        Row(
            record.offset,
            (record.timestamp - EPOCH) // datetime.timedelta(milliseconds=1),
            record.key,
            record.value,
            tuple(((entry.key or b"").decode(), entry.value) for entry in record.headers),
        )
        for record in batch.records
    ]


def test_kio_reads_v2() -> None:
    for batch in generate(seed=2, count=500, formats=[(2, Codec.NONE)], in_a_log=True):
        assert kio_rows(batch.data) == [row._replace(timestamp=row.timestamp // 1000 * 1000) for row in batch.rows]


@pytest.mark.parametrize("transactional", [False, True])
@pytest.mark.parametrize("kind", [TimestampType.CREATE_TIME, TimestampType.LOG_APPEND_TIME])
@pytest.mark.parametrize("delete_horizon", [-1, NOW - 77])
def test_kio_reads_every_field_of_the_header(transactional: bool, kind: TimestampType, delete_horizon: int) -> None:
    batch_format = BatchFormat(
        base_offset=2**40, timestamp_type=kind, log_append_time=NOW + 9, leader_epoch=17, delete_horizon=delete_horizon
    )
    producer = BatchProducer(2**62, 2**15 - 1, 2**31 - 1, transactional=transactional)
    builder = MemoryRecordsBuilder(memoryview(bytearray(4096)), batch_format, producer=producer)
    for number in range(3):
        builder.append(NOW + number, b"k", b"v", offset=2**40 + 5 * number)
    batch, _ = read_batch(bytes(builder.close()), 0)
    attributes = (8 if kind else 0) | (16 if transactional else 0) | (64 if delete_horizon > 0 else 0)
    assert (batch.attributes, batch.base_offset, batch.last_offset_delta) == (attributes, 2**40, 10)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == producer[:3]
    assert batch.partition_leader_epoch == 17
    assert batch.max_timestamp == (NOW + 9 if kind else NOW + 2)
    assert batch.base_timestamp == (delete_horizon if delete_horizon > 0 else NOW)
    assert [record.offset for record in batch.records] == [2**40, 2**40 + 5, 2**40 + 10]


@pytest.mark.parametrize("client", ["confluent", "kafka-python"])
def test_consumers_read_v2_from_a_log(client: Client) -> None:
    written: list[Row] = []
    with LocalBroker() as broker, RawProducer(broker.bootstrap_servers) as producer:
        broker.create_topic("t")
        for batch in generate(seed=random.Random(client).randrange(1 << 30), count=600, formats=V2_CODECS):
            assert producer.produce("t", batch.data) == (0, len(written))
            written += [row._replace(offset=len(written) + row.offset) for row in batch.rows]
        rows = read_topic(broker.bootstrap_servers, "t", client=client, expected=len(written))
    assert [Row(row.offset, row.timestamp_ms, row.key, row.value, tuple(row.headers)) for row in rows] == written
