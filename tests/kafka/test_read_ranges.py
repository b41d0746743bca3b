"""Offset ranges read from real Kafka and from the embedded broker: other producers' records, transactions, lost and huge ones."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Producer as ConfluentProducer
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from spark_producer import Producer
from spark_producer.common.isolation_level import IsolationLevel
from spark_producer.consumer.settings import FetchSettings
from spark_producer.errors import DataLoss, KafkaTimeout
from tests.conftest import Broker
from tests.support.kafka_cluster import KafkaCluster
from tests.support.kafka_node import KAFKA_4
from tests.support.read_ranges import batches, connection, rows
from tests.support.waiting import wait_until

ROWS = 3000
SECONDS = 60.0
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
UNCOMMITTED, COMMITTED = IsolationLevel.READ_UNCOMMITTED, IsolationLevel.READ_COMMITTED


def settings(broker: Broker, **changes: Any) -> FetchSettings:
    return FetchSettings(connection(broker.bootstrap_servers), **changes)


@pytest.mark.covers("RD4")
def test_rows_of_another_producer_with_every_codec_in_one_log(broker: Broker, topic: str) -> None:
    broker.create_topic(topic, 3)
    each = ROWS // len(CODECS)
    for first, codec in zip(range(0, ROWS, each), CODECS, strict=True):
        options = {"bootstrap.servers": broker.bootstrap_servers, "compression.type": codec, "batch.size": 4000}
        producer = ConfluentProducer(options)
        for row in range(first, first + each):
            producer.produce(topic, f"{row}", key=f"k{row}", partition=row % 3, headers=[("h", b"%d" % row)])
        assert producer.flush(SECONDS) == 0
    found = rows(settings(broker, partition_bytes=9000), topic, {part: (100 * part, 1000) for part in range(3)})
    for partition, inside in found.items():
        numbers = range(100 * partition, 1000)
        assert [row["offset"] for row in inside] == list(numbers)
        assert [row["value"] for row in inside] == [b"%d" % (3 * number + partition) for number in numbers]
        assert [row["headers"] for row in inside] == [[{"key": "h", "value": row["value"]}] for row in inside]
        assert {row["timestamp_type"] for row in inside} == {0}


# Transactions


@pytest.fixture
def transactions(broker: Broker, topic: str) -> Iterator[dict[str, int]]:
    """The topic with committed, aborted and open transactions, and plain records between; the ends of its log."""
    broker.create_topic(topic, 1)

    def producer(**more: str) -> ConfluentProducer:
        return ConfluentProducer({"bootstrap.servers": broker.bootstrap_servers, **more})

    plain = producer()
    first = producer(**{"transactional.id": f"{topic}-1"})
    second = producer(**{"transactional.id": f"{topic}-2"})
    for one in (first, second):
        one.init_transactions(SECONDS)
    for kind in ("committed", "aborted", "committed", "aborted"):
        for one, name in ((first, "first"), (second, "second")):
            one.begin_transaction()
            one.produce(topic, f"{name} {kind}")
            one.flush(SECONDS)
        plain.produce(topic, "plain")
        plain.flush(SECONDS)
        for one in (second, first):
            one.commit_transaction(SECONDS) if kind == "committed" else one.abort_transaction(SECONDS)
    stable = 4 * 5
    first.begin_transaction()
    first.produce(topic, "open")
    first.flush(SECONDS)
    yield {"stable": stable, "end": stable + 1}
    first.abort_transaction(SECONDS)


@pytest.mark.covers("RD5", "RD6")
def test_each_isolation_level_has_its_records(broker: Broker, topic: str, transactions: dict[str, int]) -> None:
    stable, end = transactions["stable"], transactions["end"]
    read = rows(settings(broker, isolation=UNCOMMITTED), topic, {0: (0, end)})[0]
    kinds = [row["value"].decode() for row in read]
    assert len(kinds) == 13
    assert kinds.count("first aborted") == kinds.count("second aborted") == 2
    assert kinds[-1] == "open"
    read = rows(settings(broker, isolation=COMMITTED), topic, {0: (0, stable)})[0]
    half = ["first committed", "second committed", "plain", "plain"]
    assert [row["value"].decode() for row in read] == half * 2
    for start in range(stable):  # wherever a range begins: within a transaction, at a marker, at the end
        tail = rows(settings(broker, isolation=COMMITTED), topic, {0: (start, stable)})[0]
        assert tail == [row for row in read if row["offset"] >= start]


@pytest.mark.covers("RD5")
def test_an_open_transaction_within_the_range_is_waited_for(
    broker: Broker, topic: str, transactions: dict[str, int]
) -> None:
    wanted = settings(broker, isolation=COMMITTED, timeout=1.0, max_wait_ms=100)
    with pytest.raises(KafkaTimeout, match=f"a transaction that is open since offset {transactions['stable']}"):
        rows(wanted, topic, {0: (0, transactions["end"])})


# Gaps


@pytest.mark.slow
@pytest.mark.covers("RD6")
def test_a_compacted_log_is_read_across_its_gaps() -> None:
    eager = {"cleanup.policy": "compact", "segment.ms": "100", "min.cleanable.dirty.ratio": "0.001"}
    with KafkaCluster(KAFKA_4, settings={"log.cleaner.backoff.ms": "100"}) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        admin.create_topics([NewTopic("compacted", 1, config=eager)])["compacted"].result(SECONDS)
        producer = ConfluentProducer({"bootstrap.servers": cluster.bootstrap_servers, "batch.size": 300})
        for number in range(300):
            producer.produce("compacted", f"{number}", key=f"k{number % 7}")
            if not number % 100:
                producer.flush(SECONDS)
                time.sleep(0.15)  # so that the next record begins a segment
        producer.flush(SECONDS)
        wait_until(
            lambda: len(rows(settings(cluster), "compacted", {0: (0, 300)})[0]) < 150, "compaction", seconds=SECONDS
        )
        whole = rows(settings(cluster), "compacted", {0: (0, 300)})[0]
        offsets = [row["offset"] for row in whole]
        assert offsets == sorted(set(offsets))
        for start, end in ((0, 50), (50, 150), (150, 250), (3, 4), (250, 300)):
            part = rows(settings(cluster, partition_bytes=1), "compacted", {0: (start, end)})[0]
            assert part == [row for row in whole if start <= row["offset"] < end]


# Offsets that are gone


def write(broker: Broker, topic: str, count: int, size: int = 1000) -> None:
    with Producer({"bootstrap.servers": broker.bootstrap_servers, "batch.size": "10000"}) as producer:
        for number in range(count):
            producer.send(topic, b"%d" % number + b"." * size, partition=0)


@pytest.mark.covers("RD7")
@pytest.mark.parametrize("fail", [True, False])
def test_records_that_are_deleted_while_they_are_read(broker: Broker, topic: str, fail: bool) -> None:
    broker.create_topic(topic, 1)
    write(broker, topic, 1000)
    wanted = settings(broker, partition_bytes=20_000, max_bytes=60_000, fail_on_data_loss=fail)
    reading, offsets = batches(wanted, topic, {0: (0, 1000)}), list[int]()
    offsets += next(reading)[1].column("offset").to_pylist()  # type: ignore[arg-type]
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    for future in admin.delete_records([TopicPartition(topic, 0, 700)]).values():
        future.result(SECONDS)
    if fail:
        with pytest.raises(DataLoss, match="the log starts at offset 700"):
            list(reading)
        return
    for _, batch in reading:
        offsets += batch.column("offset").to_pylist()  # type: ignore[arg-type]
    first = next(offset for number, offset in enumerate(offsets) if offset != number)
    assert first == 700
    assert offsets == [*range(offsets.index(700)), *range(700, 1000)]


@pytest.mark.covers("RD8")
def test_a_topic_that_is_deleted_while_it_is_read(broker: Broker, topic: str) -> None:
    broker.create_topic(topic, 1)
    write(broker, topic, 1000)
    reading = batches(settings(broker, partition_bytes=20_000, max_bytes=60_000), topic, {0: (0, 1000)})
    next(reading)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.delete_topics([topic])[topic].result(SECONDS)
    with pytest.raises(DataLoss, match="are lost, because the brokers do not know the partition"):
        list(reading)


@pytest.mark.covers("RD8")
def test_a_topic_that_is_created_again_while_it_is_read(broker: Broker, topic: str) -> None:
    """The new topic has records at the same offsets, and its id is not the one that the reader knows (KIP-516)."""
    broker.create_topic(topic, 1)
    write(broker, topic, 1000)
    reading = batches(settings(broker, partition_bytes=20_000, max_bytes=60_000), topic, {0: (0, 1000)})
    next(reading)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.delete_topics([topic])[topic].result(SECONDS)
    wait_until(lambda: topic not in admin.list_topics(timeout=SECONDS).topics, f"the end of {topic}", seconds=SECONDS)
    broker.create_topic(topic, 1)
    write(broker, topic, 1000)
    with pytest.raises(DataLoss, match="to 999 are lost, because the topic was deleted and created again"):
        list(reading)


@pytest.mark.covers("RD7")
def test_a_range_that_the_log_never_had(broker: Broker, topic: str) -> None:
    broker.create_topic(topic, 1)
    write(broker, topic, 10, size=1)
    for bounds in ((0, 50), (20, 50)):
        with pytest.raises(DataLoss, match="the log ends at offset 10"):
            rows(settings(broker), topic, {0: bounds})
        found = rows(settings(broker, fail_on_data_loss=False), topic, {0: bounds})[0]
        assert len(found) == max(0, 10 - bounds[0])


# Sizes


@pytest.mark.slow
@pytest.mark.covers("RD11")
def test_a_record_of_50_mb_comes_whole(kafka_4: KafkaCluster, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": kafka_4.bootstrap_servers})
    admin.create_topics([NewTopic(topic, 1, config={"max.message.bytes": str(60 << 20)})])[topic].result(SECONDS)
    large = bytes(50_000_000)
    options = {"bootstrap.servers": kafka_4.bootstrap_servers, "max.request.size": 60 << 20, "buffer.memory": 200 << 20}
    with Producer(options) as producer:
        for value in (b"before", large, b"after"):
            producer.send(topic, value)
            producer.flush()
    found = rows(settings(kafka_4, partition_bytes=1 << 20), topic, {0: (0, 3)})[0]
    assert [row["value"] == value for row, value in zip(found, (b"before", large, b"after"), strict=True)] == [True] * 3


@pytest.mark.slow
@pytest.mark.covers("RD11")
def test_many_partitions_are_read_in_few_requests(kafka_4: KafkaCluster, topic: str) -> None:
    count = 500
    kafka_4.create_topic(topic, count)
    producer = ConfluentProducer({"bootstrap.servers": kafka_4.bootstrap_servers})
    for partition in range(count):
        producer.produce(topic, f"{partition}", partition=partition)
    assert producer.flush(SECONDS) == 0
    found = rows(settings(kafka_4), topic, dict.fromkeys(range(count), (0, 1)))
    assert {part: [row["value"] for row in inside] for part, inside in found.items()} == {
        part: [b"%d" % part] for part in range(count)
    }
