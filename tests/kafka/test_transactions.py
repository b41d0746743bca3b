"""Transactions on real Kafka, 3.9 (explicit) and 4 (transaction.version 2), read by librdkafka as read_committed."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, TopicPartition

from spark_producer import Producer
from spark_producer.admin import BlockingClient
from spark_producer.admin.offsets import offsets
from spark_producer.common.cluster import TransactionVersion
from spark_producer.errors import BrokerError, ProducerFenced, TransactionAbortable, TransactionAborted
from spark_producer.network import ConnectionSettings, parse_bootstrap_servers
from spark_producer.producer import parts_of
from tests.support.kafka_cluster import KafkaCluster
from tests.support.kafka_node import KAFKA_4
from tests.support.read_back import read_topic
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.kafka]


@pytest.fixture(params=["kafka_39", "kafka_4"])
def kafka(request: pytest.FixtureRequest) -> KafkaCluster:
    found: KafkaCluster = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def name() -> str:
    return f"id-{uuid.uuid4()}"


@pytest.fixture
def producer(kafka: KafkaCluster, name: str) -> Iterator[Producer]:
    made = transactional(kafka, name)
    yield made
    made.close()


def transactional(kafka: KafkaCluster, name: str, **options: object) -> Producer:
    config = {"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": name, "linger.ms": 5}
    return Producer(config | {key.replace("_", "."): value for key, value in options.items()})


def committed(kafka: KafkaCluster, topic: str) -> list[bytes]:
    rows = read_topic(kafka.bootstrap_servers, topic, client="confluent", isolation="read_committed")
    return [row.value or b"" for row in rows]


def rows(*values: str) -> pa.RecordBatch:
    return pa.record_batch({"value": list(values), "key": list(values)})


@pytest.mark.covers("TM8")
def test_what_is_committed_is_read_and_what_is_aborted_is_not(
    kafka: KafkaCluster, producer: Producer, topic: str
) -> None:
    kafka.create_topic(topic, 3)
    producer.init_transactions()
    with producer.transaction():
        producer.send_batch(rows(*"abcdefgh"), topic=topic)
    producer.begin_transaction()
    producer.send_batch(rows("x", "y"), topic=topic)
    producer.flush()
    producer.send_batch(rows("z"), topic=topic)
    producer.abort_transaction()
    for value in "ijk":
        with producer.transaction():
            producer.send_batch(rows(value), topic=topic)
    assert sorted(committed(kafka, topic)) == [bytes([letter]) for letter in b"abcdefghijk"]


def test_the_example_of_the_page_is_read_whole(kafka: KafkaCluster) -> None:
    page = (Path(__file__).parents[2] / "docs" / "transactions.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    for topic in ("orders", "carts"):
        kafka.create_topic(topic, 1)
    exec(compile(example.replace("localhost:9092", kafka.bootstrap_servers), "transactions.md", "exec"), {})
    assert committed(kafka, "orders") == [b"one", b"two"]
    reader = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": "readers"})
    (found,) = reader.committed([TopicPartition("carts", 0)], 30)
    reader.close()
    assert found.offset == 17


@pytest.mark.covers("TM19")
def test_a_newer_producer_fences_the_older_and_ends_its_transaction(
    kafka: KafkaCluster, producer: Producer, name: str, topic: str
) -> None:
    kafka.create_topic(topic, 1)
    producer.init_transactions()
    producer.begin_transaction()
    producer.send_batch(rows("old"), topic=topic)
    producer.flush()
    with transactional(kafka, name) as newer:
        newer.init_transactions()
        with pytest.raises(ProducerFenced):
            producer.commit_transaction()
        with newer.transaction():
            newer.send_batch(rows("new"), topic=topic)
    assert committed(kafka, topic) == [b"new"]


@pytest.mark.covers("TM19")
def test_a_commit_after_the_transaction_has_timed_out_says_so_with_both(
    kafka: KafkaCluster, name: str, topic: str
) -> None:
    """3.9 answers PRODUCER_FENCED and 4 answers INVALID_TXN_STATE, for which Java's client has another exception."""
    kafka.create_topic(topic, 1)
    connection = ConnectionSettings(tuple(parse_bootstrap_servers(kafka.bootstrap_servers)))
    made = transactional(kafka, name, transaction_timeout_ms=500)
    with closing(made) as producer, BlockingClient(connection) as client:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"late")
        producer.flush()
        wait_until(lambda: offsets(client, topic, isolation_level=1)[0] > 0, "the brokers abort it")
        for call in (producer.commit_transaction, producer.abort_transaction):
            with pytest.raises(ProducerFenced, match=r"took longer than transaction\.timeout\.ms; close this producer"):
                call()
    with transactional(kafka, name) as again:
        again.init_transactions()
        with again.transaction():
            again.send(topic, b"again")
    assert committed(kafka, topic) == [b"again"]


@pytest.mark.covers("KP13")
def test_a_transaction_that_lacks_a_row_cannot_be_committed(
    kafka: KafkaCluster, producer: Producer, topic: str
) -> None:
    kafka.create_topic(topic, 1)
    producer.init_transactions()
    producer.begin_transaction()
    producer.send_batch(rows("a"), topic=topic)
    producer.flush()
    refused = producer.send(topic, b"." * 1_100_000)  # more than the topic takes
    with pytest.raises(BrokerError):
        producer.flush()
    assert refused.done()
    producer.flush()  # the first flush reported the error, so this one has none
    with pytest.raises(TransactionAbortable):
        producer.commit_transaction()
    with pytest.raises(TransactionAbortable, match="MESSAGE_TOO_LARGE"):
        producer.send(topic, b"b")
    producer.abort_transaction()
    with producer.transaction():
        producer.send_batch(rows("c"), topic=topic)
    assert committed(kafka, topic) == [b"c"]


@pytest.mark.covers("SN42")
def test_an_abort_without_an_error_fails_the_futures_of_rows_that_were_not_sent(
    kafka: KafkaCluster, name: str, topic: str
) -> None:
    kafka.create_topic(topic, 1)
    with transactional(kafka, name, linger_ms=60000, delivery_timeout_ms=120000) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        waits = producer.send(topic, b"a")
        producer.abort_transaction()
        assert isinstance(waits.exception(), TransactionAborted)
        with producer.transaction():
            producer.send(topic, b"b")
    assert committed(kafka, topic) == [b"b"]


def test_held_rows_go_out_in_a_transaction_that_another_producer_ends(
    kafka: KafkaCluster, producer: Producer, topic: str
) -> None:
    kafka.create_topic(topic, 2)
    transactions = parts_of(producer).transactions
    assert transactions is not None
    epochs, versions = [], []
    for number in range(3):
        transactions.begin_deferred()
        producer.send_batch(rows(*[f"{number}{letter}" for letter in "abcd"]), topic=topic)
        assert transactions.deferred_bytes() > 100
        prepared = transactions.prepare()
        assert sum(span.records for span in prepared.spans) == 4
        versions.append(prepared.transaction_version)
        epochs.append((prepared.producer_id, prepared.epoch))
        assert committed(kafka, topic) == []
        assert transactions.try_abort()
    assert len(set(epochs)) == 3
    assert set(versions) == {TransactionVersion.IMPLICIT if kafka.version == KAFKA_4 else TransactionVersion.EXPLICIT}
    transactions.begin_deferred()
    producer.send_batch(rows("kept"), topic=topic)
    taken = transactions.take_deferred()
    assert taken is not None
    assert [batch.records for batch in taken] == [1]
    assert committed(kafka, topic) == []
