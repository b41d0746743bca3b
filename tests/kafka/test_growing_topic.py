"""A topic that gets more partitions while a producer knows it."""

from __future__ import annotations

import pyarrow as pa
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions
from kafka.partitioner.default import murmur2

from spark_producer import Producer
from spark_producer.errors import RecordError
from spark_producer.producer import parts_of
from tests.support.kafka_cluster import KafkaCluster
from tests.support.read_back import read_topic
from tests.support.waiting import wait_until

SECONDS = 30


def test_an_explicit_partition_that_is_new_is_found_and_one_that_is_not_there_is_refused(
    kafka_4: KafkaCluster, topic: str
) -> None:
    kafka_4.create_topic(topic, 1)
    with Producer({"bootstrap.servers": kafka_4.bootstrap_servers}) as producer:
        producer.send(topic, "before", partition=0)
        producer.flush()
        admin = AdminClient({"bootstrap.servers": kafka_4.bootstrap_servers})
        admin.create_partitions([NewPartitions(topic, 3)])[topic].result(SECONDS)
        rows = {"value": pa.array(["after", "after"]), "partition": pa.array([0, 2], pa.int32())}
        producer.send_batch(pa.record_batch(rows), topic=topic)
        with pytest.raises(RecordError, match=r"partition 3 does not exist .*the 3 partitions 0 to 2"):
            producer.send(topic, "nowhere", partition=3)
    written = read_topic(kafka_4.bootstrap_servers, topic, expected=3)
    assert sorted((row.partition, row.value) for row in written) == [(0, b"after"), (0, b"before"), (2, b"after")]


@pytest.mark.covers("KY1")
def test_keys_follow_the_new_count_at_the_next_metadata(kafka_4: KafkaCluster, topic: str) -> None:
    """The producer learns of it in mid-write, without an error; until then it uses the old count, as every client."""
    kafka_4.create_topic(topic, 1)
    keys = [f"key {number}" for number in range(50)]
    batch = pa.record_batch({"value": keys, "key": keys})
    with Producer({"bootstrap.servers": kafka_4.bootstrap_servers, "metadata.max.age.ms": 50}) as producer:
        producer.send_batch(batch, topic=topic)
        admin = AdminClient({"bootstrap.servers": kafka_4.bootstrap_servers})
        admin.create_partitions([NewPartitions(topic, 6)])[topic].result(SECONDS)
        wait_until(lambda: parts_of(producer).partition_count(topic) == 6, "the new partitions are known")
        producer.send_batch(batch, topic=topic)
    written = read_topic(kafka_4.bootstrap_servers, topic, expected=100)
    places: dict[bytes | None, set[int]] = {}
    for row in written:
        places.setdefault(row.key, set()).add(row.partition)
    assert {
        key.encode(): {0, partition} for key, partition in zip(keys, java_partitions(keys, 6), strict=True)
    } == places


def java_partitions(keys: list[str], count: int) -> list[int]:
    """Return the partition by kafka-python's twin of Java's hash."""
    return [(murmur2(key.encode()) & 0x7FFFFFFF) % count for key in keys]
