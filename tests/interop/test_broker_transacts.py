"""Foreign clients that write transactions to the embedded broker, at both levels of transaction.version."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from kafka import KafkaProducer

from spark_producer.broker import BrokerSettings, LocalBroker
from tests.support.kafka_node import KAFKA_4, KAFKA_39, run_tool
from tests.support.read_back import read_topic

SECONDS = 120.0
PARTITIONS = 2
AT_ONCE = 0.1


@pytest.fixture(params=[2, 0])
def local(request: pytest.FixtureRequest) -> Iterator[LocalBroker]:
    settings = BrokerSettings(transaction_version=request.param, transaction_scan_s=AT_ONCE)
    with LocalBroker(settings=settings) as broker:
        broker.create_topic("t", PARTITIONS)
        yield broker


def values(local: LocalBroker, topic: str = "t") -> list[str]:
    rows = read_topic(local.bootstrap_servers, topic, isolation="read_committed")
    return sorted((row.value or b"").decode() for row in rows)


def begun(local: LocalBroker, **options: Any) -> Producer:
    """A producer with an open transaction."""
    producer = Producer(
        {"bootstrap.servers": local.bootstrap_servers, "transactional.id": "id", "log_level": 0, **options}
    )
    producer.init_transactions(SECONDS)
    producer.begin_transaction()
    return producer


def test_librdkafka_commits_and_aborts(local: LocalBroker) -> None:
    producer = begun(local)
    for number in range(6):
        if number:
            producer.begin_transaction()
        for row in range(4):
            producer.produce("t", f"{number}-{row}", partition=row % PARTITIONS)
        (producer.abort_transaction if number % 2 else producer.commit_transaction)(SECONDS)
    assert values(local) == [f"{number}-{row}" for number in (0, 2, 4) for row in range(4)]


def test_librdkafka_commits_offsets_of_a_group(local: LocalBroker) -> None:
    options = {"bootstrap.servers": local.bootstrap_servers, "group.id": "g", "log_level": 0}
    consumer = Consumer(options)
    producer = begun(local)
    for commit, offset in ((True, 3), (False, 4)):
        producer.send_offsets_to_transaction(
            [TopicPartition("t", 1, offset)], consumer.consumer_group_metadata(), SECONDS
        )
        (producer.commit_transaction if commit else producer.abort_transaction)(SECONDS)
        producer.begin_transaction()
        (found,) = consumer.committed([TopicPartition("t", 1)], SECONDS)
        assert found.offset == 3
    consumer.close()


def test_a_second_librdkafka_fences_the_first(local: LocalBroker) -> None:
    first = begun(local)
    first.produce("t", "first", partition=0)
    first.flush(SECONDS)
    second = begun(local)
    second.produce("t", "second", partition=0)
    second.commit_transaction(SECONDS)
    with pytest.raises(KafkaException) as error:
        first.commit_transaction(SECONDS)
    assert error.value.args[0].code() == KafkaError._FENCED
    assert values(local) == ["second"]


def test_a_librdkafka_that_is_too_slow_holds_readers_back_no_longer(local: LocalBroker) -> None:
    slow = begun(local, **{"transaction.timeout.ms": 1000})
    slow.produce("t", "slow", partition=0)
    slow.flush(SECONDS)
    plain = Producer({"bootstrap.servers": local.bootstrap_servers, "log_level": 0})
    plain.produce("t", "after it", partition=0)
    plain.flush(SECONDS)
    consumer = Consumer(
        {"bootstrap.servers": local.bootstrap_servers, "group.id": "g", "isolation.level": "read_committed"}
    )
    consumer.assign([TopicPartition("t", 0, 0)])
    message = consumer.poll(SECONDS)
    assert message is not None
    assert message.value() == b"after it"
    consumer.close()
    with pytest.raises(KafkaException):
        slow.commit_transaction(SECONDS)
    assert values(local) == ["after it"]


def test_kafka_python_commits_and_aborts(local: LocalBroker) -> None:
    producer = KafkaProducer(bootstrap_servers=local.bootstrap_servers, transactional_id="id")
    producer.init_transactions()
    for number in range(4):
        producer.begin_transaction()
        for row in range(2):
            producer.send("t", f"{number}-{row}".encode(), partition=row)
        if number % 2:
            producer.flush(SECONDS)
            producer.abort_transaction()
        else:
            producer.commit_transaction()
    producer.close()
    assert values(local) == ["0-0", "0-1", "2-0", "2-1"]


@pytest.mark.kafka
@pytest.mark.parametrize(
    ("version", "local"), [pytest.param(KAFKA_39, 0, marks=pytest.mark.nightly), (KAFKA_4, 2)], indirect=["local"]
)
def test_java_copies_each_record_once_with_offsets_in_its_transactions(
    local: LocalBroker, tmp_path: Path, version: str
) -> None:
    local.create_topic("in")
    plain = Producer({"bootstrap.servers": local.bootstrap_servers, "log_level": 0})
    for number in range(500):
        plain.produce("in", f"{number:03}", key="k", partition=0)
    plain.flush(SECONDS)
    tools = "org.apache.kafka.tools."
    copy = {
        "--broker-list": local.bootstrap_servers,
        "--input-topic": "in",
        "--input-partition": "0",
        "--output-topic": "t",
        "--max-messages": "500",
        "--consumer-group": "g",
        "--transactional-id": "copier",
        "--transaction-size": "30",
    }
    arguments = [argument for pair in copy.items() for argument in pair]
    run_tool(version, tmp_path, f"{tools}TransactionalMessageCopier", [*arguments, "--enable-random-aborts"], SECONDS)
    assert values(local) == [f"{number:03}" for number in range(500)]
    look = ["--bootstrap-server", local.bootstrap_servers]
    shown = run_tool(version, tmp_path, f"{tools}TransactionsCommand", [*look, "list"], SECONDS)
    groups = run_tool(version, tmp_path, f"{tools}consumer.group.ConsumerGroupCommand", [*look, "--list"], SECONDS)
    assert groups.split() == ["g"]
    assert [line.split() for line in shown.splitlines()[1:] if line] == [["copier", "1", "0", "CompleteCommit"]]
