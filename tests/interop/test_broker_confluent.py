"""The embedded broker with librdkafka (confluent-kafka) as producer, consumer and administrator."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from spark_producer.broker import LocalBroker
from tests.interop.broker_records import (
    CLIENTS,
    SECONDS,
    assert_holds,
    produce_confluent,
    read,
    records_of_every_kind,
    write,
)
from tests.support.ports import free_ports
from tests.support.read_back import Client


@pytest.mark.parametrize("idempotent", [False, True])
@pytest.mark.parametrize("reader", CLIENTS)
def test_records_of_every_kind_arrive_as_written(local: LocalBroker, reader: Client, idempotent: bool) -> None:
    for topic, partitions in (("one", 1), ("three", 3)):
        local.create_topic(topic, partitions)
        records = records_of_every_kind(partitions)
        write("confluent", local.bootstrap_servers, topic, records, **{"enable.idempotence": idempotent})
        assert_holds(read(reader, local.bootstrap_servers, topic), records)


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_compressed_batches_arrive_as_written(local: LocalBroker, codec: str) -> None:
    local.create_topic("t")
    records = records_of_every_kind(1, 200)
    write("confluent", local.bootstrap_servers, "t", records, **{"compression.type": codec, "linger.ms": 50})
    assert_holds(read("confluent", local.bootstrap_servers, "t"), records)


@pytest.mark.parametrize("acks", ["0", "1"])
def test_acks_0_and_1(local: LocalBroker, acks: str) -> None:
    local.create_topic("t")
    records = records_of_every_kind(1)
    write("confluent", local.bootstrap_servers, "t", records, acks=acks)
    assert_holds(read("confluent", local.bootstrap_servers, "t"), records)


def test_many_idempotent_batches_in_flight_keep_their_order(local: LocalBroker) -> None:
    local.create_topic("t", 4)
    records = records_of_every_kind(4, 20_000)
    settings = {"enable.idempotence": True, "batch.num.messages": 50, "linger.ms": 0}
    write("confluent", local.bootstrap_servers, "t", records, **settings)
    assert_holds(read("confluent", local.bootstrap_servers, "t"), records)


def test_an_idempotent_producer_lives_through_a_restart(tmp_path: Path) -> None:
    """The new broker must know the sequences of the old one, or the producer's next batch is out of order."""
    records = records_of_every_kind(2)
    with LocalBroker(tmp_path, port=free_ports(1)[0]) as broker:
        broker.create_topic("t", 2)
        backoff = {"reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 50}
        settings = {"enable.idempotence": True, "log_level": 0, **backoff}
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, **settings})
        produce_confluent(producer, "t", records)
    with LocalBroker(tmp_path, port=broker.port):
        produce_confluent(producer, "t", records)
        assert_holds(read("confluent", broker.bootstrap_servers, "t"), records * 2)


def test_topics_are_made_described_and_deleted(local: LocalBroker) -> None:
    admin = AdminClient({"bootstrap.servers": local.bootstrap_servers})
    wanted = [NewTopic("a", 3, 1), NewTopic("b", 1, 1, config={"max.message.bytes": "5000"})]
    for future in admin.create_topics(wanted).values():
        future.result(SECONDS)
    (described,) = admin.list_topics("a", timeout=SECONDS).topics.values()
    assert sorted(admin.list_topics(timeout=SECONDS).topics) == ["a", "b"]
    assert (described.topic, sorted(described.partitions)) == ("a", [0, 1, 2])
    assert local.topics() == {"a": 3, "b": 1}
    with pytest.raises(KafkaException) as refusal:
        admin.create_topics([NewTopic("a", 3, 1)])["a"].result(SECONDS)
    assert refusal.value.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS
    admin.delete_topics(["a"])["a"].result(SECONDS)
    assert local.topics() == {"b": 1}


def test_a_topic_that_is_not_there_is_an_error_and_not_made() -> None:
    with LocalBroker(auto_create_topics=False) as broker:
        settings = {
            "topic.metadata.propagation.max.ms": 100,
            "topic.metadata.refresh.fast.interval.ms": 20,
            "log_level": 0,
        }
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, **settings})
        errors: list[KafkaError | None] = []
        producer.produce("nowhere", b"x", on_delivery=lambda error, _: errors.append(error))
        assert producer.flush(SECONDS) == 0
        assert [error.code() for error in errors if error] == [KafkaError.UNKNOWN_TOPIC_OR_PART]
        assert broker.topics() == {}
