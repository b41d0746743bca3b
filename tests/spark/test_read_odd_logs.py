"""Logs that are odd: huge batches and records, holes of compaction, batches without records, records that go while they are read.

Each is read by our source, by Spark's own and by librdkafka.
"""

from __future__ import annotations

import json
import random
import struct
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer as ConfluentProducer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_producer import Producer
from spark_producer.admin import BlockingClient
from spark_producer.broker import BrokerSettings, LocalBroker
from spark_producer.cli.connection_args import connection_settings
from spark_producer.consumer.topic_reader import TopicReader
from tests.conftest import Broker
from tests.spark.frames import FORMAT, session_settings, short_message
from tests.spark.read_sources import SPARKS, add_sparks_source, assert_read_three_ways, batch, partitions_of
from tests.support.campaigns import sample_and_campaign
from tests.support.kafka_cluster import create_topic
from tests.support.read_back import read_topic
from tests.support.waiting import wait_until

SECONDS = 60.0
MIB = 1 << 20
ISOLATIONS = ("read_uncommitted", "read_committed")


@pytest.fixture(scope="module", autouse=True)
def _sparks_source(spark: SparkSession) -> None:
    add_sparks_source(spark)


def create(broker: Broker, topic: str, config: Mapping[str, object] | None = None) -> AdminClient:
    """Create a topic of one partition, and return the client that did it."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    create_topic(admin, NewTopic(topic, 1, 1, config={name: str(value) for name, value in (config or {}).items()}))
    return admin


def batch_sizes(broker: Broker, topic: str) -> list[int]:
    """The number of records of each batch in partition 0, as its header has it."""
    connection = connection_settings(broker.bootstrap_servers, {"kafka.client.id": "batch-sizes"})
    found: list[int] = []
    with BlockingClient(connection, timeout=SECONDS) as client:
        reader = TopicReader(client, topic, from_beginning=True)
        end = wait_until(lambda: read_end(broker, topic), "the end of the log", seconds=SECONDS)
        while reader.positions[0] < end:
            for fetched in reader.fetch():
                at, data = 0, bytes(fetched.data)
                while at + 61 <= len(data):
                    found += struct.unpack_from(">i", data, at + 57)
                    at += 12 + struct.unpack_from(">i", data, at + 8)[0]
    return found


def read_end(broker: Broker, topic: str) -> int:
    from tests.support.read_confluent import end_offsets

    return end_offsets(broker.bootstrap_servers, topic)[0]


@pytest.mark.covers("RD1", "RD11")
@pytest.mark.parametrize("codec", sample_and_campaign(["none", "zstd"]))
def test_one_batch_of_100_000_records(spark: SparkSession, broker: Broker, topic: str, codec: str) -> None:
    rows = 100_000
    create(broker, topic, {"max.message.bytes": 20 * MIB})
    numbers = pa.array(range(rows), pa.int64()).cast(pa.string())
    options = {"bootstrap.servers": broker.bootstrap_servers, "compression.type": codec, "batch.size": 16 * MIB}
    with Producer(options | {"max.request.size": 20 * MIB, "buffer.memory": 64 * MIB}) as producer:
        producer.send_batch(pa.record_batch({"value": numbers, "key": numbers}), topic=topic)
        producer.flush()
    assert batch_sizes(broker, topic) == [rows]
    assert assert_read_three_ways(spark, broker, topic) == rows
    part = {"startingOffsets": json.dumps({topic: {"0": 70_001}}), "endingOffsets": json.dumps({topic: {"0": 70_004}})}
    found = partitions_of(batch(spark, broker, topic, part | {"includeHeaders": "true"}))
    assert [seen.value for seen in found[topic, 0]] == [b"70001", b"70002", b"70003"]
    divided = batch(spark, broker, topic, {"minPartitions": "5", "kafka.max.partition.fetch.bytes": "1000"})
    assert divided.select(F.count_distinct("offset"), F.count("value")).collect() == [(rows, rows)]


@pytest.mark.covers("RD11")
@pytest.mark.parametrize("codec", [pytest.param("none", marks=pytest.mark.nightly), "zstd"])
def test_a_record_of_20_mb_and_fetches_of_less(spark: SparkSession, broker: Broker, topic: str, codec: str) -> None:
    create(broker, topic, {"max.message.bytes": 32 * MIB})
    large = random.Random(7).randbytes(10_000_000) + bytes(10_000_000)
    options = {"bootstrap.servers": broker.bootstrap_servers, "compression.type": codec, "max.request.size": 32 * MIB}
    with Producer(options | {"buffer.memory": 128 * MIB, "batch.size": 1000}) as producer:
        for value in (b"before", large, b"between", large[::-1], b"after"):
            producer.send(topic, value)
            producer.flush()
    sizes = {"kafka.max.partition.fetch.bytes": "1000", "kafka.fetch.max.bytes": "2000"}
    assert assert_read_three_ways(spark, broker, topic, sizes) == 5
    assert assert_read_three_ways(spark, broker, topic) == 5


# Compaction


COMPACT = {"cleanup.policy": "compact", "segment.ms": 100, "min.cleanable.dirty.ratio": 0.001}


@contextmanager
def compacting(broker: Broker) -> Iterator[Broker]:
    """A broker that compacts at once: Kafka of the tests does, and the embedded one with other settings."""
    if not isinstance(broker, LocalBroker):
        yield broker
        return
    with LocalBroker(settings=BrokerSettings(compaction_check_s=0.05)) as other:
        yield other


def write_history(broker: Broker, topic: str) -> None:
    """Write over keys again and again: plainly, in transactions of either end, with tombstones, and by a producer whose
    last batch loses all its records but stays, since a broker keeps the last sequence number of a producer."""
    servers = {"bootstrap.servers": broker.bootstrap_servers}
    transactional = ConfluentProducer({**servers, "transactional.id": topic})
    transactional.init_transactions(SECONDS)
    for turn in range(6):
        once = ConfluentProducer({**servers, "enable.idempotence": True})
        for number in range(40):
            once.produce(topic, f"{turn}-{number}", key=f"k{number}", partition=0)
        assert once.flush(SECONDS) == 0
        transactional.begin_transaction()
        for number in range(0, 40, 3):
            transactional.produce(topic, f"{turn}-{number}-t", key=f"k{number}", partition=0)
        transactional.flush(SECONDS)
        transactional.abort_transaction(SECONDS) if turn % 2 else transactional.commit_transaction(SECONDS)
        for number in range(0, 40, 5):
            once.produce(topic, None, key=f"k{number}", partition=0)
        assert once.flush(SECONDS) == 0
        time.sleep(0.15)  # so that the next record begins a segment
    plain = ConfluentProducer(servers)
    for number in range(60):
        plain.produce(topic, b"end", key=f"end-{number % 3}", partition=0)
        if number % 20 == 0:
            plain.flush(SECONDS)
            time.sleep(0.15)  # the same
    assert plain.flush(SECONDS) == 0


def wait_until_compacted(broker: Broker, topic: str) -> None:
    """Wait until the log has a batch without records, and does not change any more."""

    def sizes() -> list[int]:
        return batch_sizes(broker, topic)

    wait_until(lambda: 0 in sizes() and sum(sizes()) < 200, "compaction", seconds=SECONDS, pause=0.2, more=sizes)
    # Kafka looks for logs to compact each half second: after two equal looks there was nothing left.
    looks = [[], sizes()]

    def unchanged() -> bool:
        looks.append(sizes())
        return looks[-1] == looks[-2]

    wait_until(unchanged, "a log that does not change", seconds=SECONDS, pause=2)


def while_unchanged(broker: Broker, topic: str, compare: Callable[[], Any]) -> Any:
    """Compare, again if the log was compacted meanwhile."""
    for _ in range(5):
        before = batch_sizes(broker, topic)
        try:
            return compare()
        except AssertionError:
            if batch_sizes(broker, topic) == before:
                raise
    raise AssertionError("the log was compacted during each of five comparisons")


def assert_read_two_ways(spark: SparkSession, broker: Broker, topic: str, options: dict[str, str]) -> None:
    ours, sparks = (batch(spark, broker, topic, options, source=each) for each in (FORMAT, SPARKS))
    assert partitions_of(ours) == partitions_of(sparks)


@pytest.mark.covers("RD5", "RD6")
def test_a_compacted_log_with_transactions_tombstones_and_empty_batches(
    spark: SparkSession, broker: Broker, topic: str
) -> None:
    with compacting(broker) as broker:
        create(broker, topic, COMPACT)
        write_history(broker, topic)

        wait_until_compacted(broker, topic)
        end = read_end(broker, topic)
        for isolation in ISOLATIONS:
            rows = while_unchanged(
                broker, topic, partial(assert_read_three_ways, spark, broker, topic, isolation=isolation)
            )
            assert 40 < rows < end - 100
        values = [row.value for row in read_topic(broker.bootstrap_servers, topic, client="confluent")]
        assert None in values
        for start, stop in ((0, 5), (7, 100), (100, 101), (end - 70, end - 3), (end - 1, end)):
            given = {"startingOffsets": {topic: {"0": start}}, "endingOffsets": {topic: {"0": stop}}}
            options = {name: json.dumps(value) for name, value in given.items()} | {"includeHeaders": "true"}
            for isolation in ISOLATIONS:
                options["kafka.isolation.level"] = isolation
                while_unchanged(broker, topic, partial(assert_read_two_ways, spark, broker, topic, dict(options)))


# Records that go


ROWS, KEPT = 20_000, 18_000
SMALL_BATCHES = {"spark.sql.execution.arrow.maxRecordsPerBatch": "100"}
"""Options with which the first rows reach a function while most are still in the log."""


def taken_in_mid_read(frame: DataFrame, servers: str, topic: str) -> list[int]:
    """Return the offsets that a frame reads although the records before KEPT are deleted after its first rows."""

    def take(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from confluent_kafka import TopicPartition  # the class itself cannot be pickled

        for number, found in enumerate(batches):
            yield found
            if not number:
                admin = AdminClient({"bootstrap.servers": servers})
                for future in admin.delete_records([TopicPartition(topic, 0, KEPT)]).values():
                    future.result(SECONDS)

    taken: Any = frame.select("offset", "value").mapInArrow(take, "offset bigint, value binary")
    return [row.offset for row in taken.select("offset").collect()]


@pytest.mark.covers("RD7")
@pytest.mark.parametrize("fails", [True, False])
@pytest.mark.parametrize("source", [FORMAT, pytest.param(SPARKS, marks=pytest.mark.nightly)])
def test_records_that_are_deleted_in_mid_read(
    spark: SparkSession, broker: Broker, topic: str, fails: bool, source: str
) -> None:
    create(broker, topic)
    with Producer({"bootstrap.servers": broker.bootstrap_servers, "batch.size": "20000"}) as producer:
        producer.send_batch(
            pa.record_batch({"value": [b"%05d" % number * 1600 for number in range(ROWS)]}), topic=topic
        )
        producer.flush()
    sizes = {"kafka.max.partition.fetch.bytes": "200000", "kafka.fetch.max.bytes": "400000"}
    options = sizes | {"failOnDataLoss": str(fails).lower()}
    frame = batch(spark, broker, topic, options, source=source)
    with session_settings(spark, SMALL_BATCHES):
        if not fails:
            offsets = taken_in_mid_read(frame, broker.bootstrap_servers, topic)
            before = offsets.index(KEPT)
            assert offsets == [*range(before), *range(KEPT, ROWS)]
            assert 0 < before < KEPT
            return
        # Spark cannot pass on the error of its own source, and says UnknownReason.
        said = (
            f"topic '{topic}', partition 0: offsets .* are lost, because the log starts at"
            if source == FORMAT
            else None
        )
        with pytest.raises(Exception, match=said) as raised:
            taken_in_mid_read(frame, broker.bootstrap_servers, topic)
        short_message(str(raised.value))
