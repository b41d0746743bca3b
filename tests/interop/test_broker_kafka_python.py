"""The embedded broker with kafka-python as producer, consumer and administrator."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, TopicPartition
from kafka.admin import NewTopic
from kafka.errors import InvalidReplicationFactorError, TopicAlreadyExistsError, UnknownTopicOrPartitionError

from spark_producer.broker import LocalBroker
from tests.interop.broker_records import (
    CLIENTS,
    FIRST_TIMESTAMP,
    Record,
    assert_holds,
    read,
    records_of_every_kind,
    write,
)
from tests.support.read_back import Client


@pytest.mark.parametrize("reader", CLIENTS)
def test_records_of_every_kind_arrive_as_written(local: LocalBroker, reader: Client) -> None:
    for topic, partitions in (("one", 1), ("three", 3)):
        local.create_topic(topic, partitions)
        records = records_of_every_kind(partitions, writer="kafka-python")
        write("kafka-python", local.bootstrap_servers, topic, records)
        assert_holds(read(reader, local.bootstrap_servers, topic), records)


@pytest.mark.parametrize("reader", CLIENTS)
def test_compressed_batches_arrive_as_written(local: LocalBroker, reader: Client) -> None:
    local.create_topic("t")
    records = records_of_every_kind(1, 200, writer="kafka-python")
    write("kafka-python", local.bootstrap_servers, "t", records, compression_type="gzip", linger_ms=50)
    assert_holds(read(reader, local.bootstrap_servers, "t"), records)


@pytest.mark.parametrize("acks", [0, 1])
def test_acks_0_and_1(local: LocalBroker, acks: int) -> None:
    local.create_topic("t")
    records = records_of_every_kind(1, writer="kafka-python")
    write("kafka-python", local.bootstrap_servers, "t", records, acks=acks, enable_idempotence=False)
    assert_holds(read("kafka-python", local.bootstrap_servers, "t"), records)


def test_a_topic_is_made_by_writing_to_it() -> None:
    with LocalBroker(default_partitions=2) as broker:
        records = records_of_every_kind(2, writer="kafka-python")
        write("kafka-python", broker.bootstrap_servers, "fresh", records)
        assert broker.topics() == {"fresh": 2}
        assert_holds(read("kafka-python", broker.bootstrap_servers, "fresh"), records)


def test_a_restart_keeps_everything(tmp_path: Path) -> None:
    records = records_of_every_kind(3, writer="kafka-python")
    for life in range(3):
        with LocalBroker(tmp_path) as broker:
            if life == 0:
                broker.create_topic("t", 3)
            write("kafka-python", broker.bootstrap_servers, "t", records)
            assert_holds(read("kafka-python", broker.bootstrap_servers, "t"), records * (life + 1))


def test_offsets_by_position_and_by_timestamp(local: LocalBroker) -> None:
    local.create_topic("t")
    for number in range(30):
        record = Record(0, FIRST_TIMESTAMP + 10 * number, None, b"value")
        write("kafka-python", local.bootstrap_servers, "t", [record])  # each in a batch of its own
    partition = TopicPartition("t", 0)
    with closing(KafkaConsumer(bootstrap_servers=local.bootstrap_servers)) as consumer:
        assert consumer.beginning_offsets([partition]) == {partition: 0}
        assert consumer.end_offsets([partition]) == {partition: 30}
        found = consumer.offsets_for_times({partition: FIRST_TIMESTAMP + 95})[partition]
        assert (found.offset, found.timestamp) == (10, FIRST_TIMESTAMP + 100)
        assert consumer.offsets_for_times({partition: FIRST_TIMESTAMP + 1000})[partition] is None


def test_topics_are_made_listed_and_deleted(local: LocalBroker) -> None:
    with closing(KafkaAdminClient(bootstrap_servers=local.bootstrap_servers)) as admin:
        admin.create_topics([NewTopic("a", 2, 1), NewTopic("b", -1, -1)])
        assert local.topics() == {"a": 2, "b": 1}
        assert sorted(admin.list_topics()) == ["a", "b"]
        with pytest.raises(TopicAlreadyExistsError):
            admin.create_topics([NewTopic("a", 2, 1)])
        with pytest.raises(InvalidReplicationFactorError):
            admin.create_topics([NewTopic("c", 1, 3)])
        admin.delete_topics(["a"])
        assert local.topics() == {"b": 1}
        with pytest.raises(UnknownTopicOrPartitionError):
            admin.delete_topics(["a"])
