"""A topic is deleted while a producer writes to it, and perhaps created again with fewer partitions."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import count
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.admin import AdminClient

from spark_producer import Producer
from spark_producer.errors import ExactlyOnceError, PyProducerError, TopicNotFound, TransactionAbortable
from spark_producer.exactly_once import driver
from spark_producer.exactly_once.cluster import coordinator_state
from spark_producer.exactly_once.cluster.broker_requests import TransactionAdmin
from spark_producer.exactly_once.cluster.control_write import MAX_WAIT_OF_CHECK_S
from spark_producer.exactly_once.cluster.inline_produce import InlineProduce
from spark_producer.exactly_once.driver import SinkSettings
from tests.conftest import BROKERS, Broker
from tests.support.filled_tasks import Tasks, batch, committed, inline, settings
from tests.support.read_back import read_topic
from tests.support.waiting import retry

SECONDS = 30
REAL = pytest.mark.parametrize("broker", BROKERS[1:], indirect=True)
"""With brokers that create no topics by themselves."""

ROWS = pa.record_batch({"key": [str(row) for row in range(1000)], "value": ["x"] * 1000})


def delete(cluster: Broker, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    admin.delete_topics([topic], operation_timeout=SECONDS)[topic].result(SECONDS)


def create_again(cluster: Broker, topic: str, partitions: int) -> None:
    """A topic that was just deleted may still be known for a moment."""
    retry(lambda: cluster.create_topic(topic, partitions), Exception, "the topic is created again", seconds=SECONDS)


def write_until_it_fails(producer: Producer, topic: str) -> None:
    """The brokers may take rows for a moment after a topic was deleted."""
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        producer.send_batch(ROWS, topic=topic)
        producer.flush()


@REAL
@pytest.mark.parametrize("left", [2, 0], ids=["two partitions are left", "it is gone"])
def test_rows_for_partitions_that_no_longer_exist_end_with_their_reason(broker: Broker, topic: str, left: int) -> None:
    """Without it they would wait for an hour, and the test would end by its own deadline."""
    broker.create_topic(topic, 4)
    options = {"bootstrap.servers": broker.bootstrap_servers, "delivery.timeout.ms": 3_600_000}
    producer = Producer({**options, "max.block.ms": 3_600_000})
    producer.send_batch(ROWS, topic=topic)
    producer.flush()
    delete(broker, topic)
    if left:
        create_again(broker, topic, left)
    with pytest.raises(TopicNotFound, match=r"no longer exists.*What to do: "):
        write_until_it_fails(producer, topic)
    if left:
        written = producer.send_table(pa.table({"value": ["again"] * 10}), topic=topic).result(SECONDS)
        assert {partition for _, partition in written.ranges} <= {0, 1}
        values = [row.value for row in read_topic(broker.bootstrap_servers, topic)]
        assert values.count(b"again") == 10
    else:
        with pytest.raises(TopicNotFound, match="still after 5 s"):
            producer.send_batch(ROWS, topic=topic)
    producer.close(0)


@REAL
def test_a_transaction_says_why_it_lacks_rows(broker: Broker, topic: str) -> None:
    broker.create_topic(topic, 4)
    options = {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": topic}
    with Producer({**options, "delivery.timeout.ms": 3_600_000}) as producer:
        producer.init_transactions()
        with producer.transaction():
            producer.send_batch(ROWS, topic=topic)
        delete(broker, topic)
        create_again(broker, topic, 2)
        producer.begin_transaction()
        producer.send_batch(ROWS, topic=topic)
        with pytest.raises(PyProducerError, match="no longer exists"):
            producer.commit_transaction(SECONDS)
        with pytest.raises(TransactionAbortable, match="no longer exists"):
            producer.commit_transaction(SECONDS)
        producer.abort_transaction()
        with producer.transaction():
            producer.send_batch(ROWS, topic=topic)


@REAL
def test_a_sink_goes_on_when_its_topic_is_created_again_with_fewer_partitions(broker: Broker, topic: str) -> None:
    """The last control record, an open transaction of a dead task, and the rows of the next batch name a deleted partition."""
    broker.create_topic(topic, 4)
    sink = SinkSettings(topic, settings(broker.bootstrap_servers), f"{topic}-commits")
    tasks = Tasks(broker.bootstrap_servers, topic)
    handle = driver.begin(sink)
    driver.commit(sink, [inline(handle, 0, batch(topic, 0, "a"), batch(topic, 3, "b"))], 0)
    handle = driver.begin(sink)
    tasks.fill(0, handle.transaction_version, {(topic, 3): ["of a dead task"]})
    delete(broker, topic)
    create_again(broker, topic, 2)
    driver.close_all()
    handle = driver.begin(sink)
    with pytest.raises(
        TopicNotFound, match=f"rows for {topic}-3 were not written, because the partition no longer exists"
    ):
        driver.commit(sink, [inline(handle, 1, batch(topic, 3, "b"))], 1)
    handle = driver.begin(sink)
    driver.commit(sink, [inline(handle, 1, batch(topic, 1, "b"))], 1)
    driver.close_all()
    tasks.close()
    assert committed(broker, topic) == ["b"]


@REAL
@pytest.mark.parametrize("batches", [1, 7])
def test_rows_are_not_lost_if_their_topic_is_created_again_during_their_commit(
    broker: Broker, topic: str, batches: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While another broker lists transactions late, or between two batches: with `EXPLICIT` the new log takes the second one."""
    broker.create_topic(topic, 1)
    sink = SinkSettings(topic, settings(broker.bootstrap_servers), f"{topic}-commits")
    driver.commit(sink, [inline(driver.begin(sink), 0, batch(topic, 0, "before"))], 0)
    listed, send, rounds = coordinator_state.open_tasks, InlineProduce._send_round, iter(range(2))

    def list_late(brokers: TransactionAdmin, *given: Any, **more: Any) -> Any:
        found = listed(brokers, *given, **more)
        if batches == 1 and next(rounds, None) == 0:
            brokers.client.pause(2 * MAX_WAIT_OF_CHECK_S)
            delete(broker, topic)
            create_again(broker, topic, 1)
            brokers.client.pause(2 * MAX_WAIT_OF_CHECK_S)
        return found

    def send_later(self: InlineProduce, deadline: float) -> Any:
        if batches > 1 and next(rounds, None) == 1:
            delete(broker, topic)
            create_again(broker, topic, 1)
        return send(self, deadline)

    handle = driver.begin(sink)
    monkeypatch.setattr(coordinator_state, "open_tasks", list_late)
    monkeypatch.setattr(InlineProduce, "_send_round", send_later)
    values = [f"row {number}" for number in range(batches)]
    for _ in range(2):
        with suppress(ExactlyOnceError):
            driver.commit(sink, [inline(handle, 1, *(batch(topic, 0, value) for value in values))], 1)
            break
        handle = driver.begin(sink)
    driver.close_all()
    assert committed(broker, topic) == values


def write_rows(producer: Producer, topic: str, number: int, written: set[bytes]) -> None:
    values = [f"{number}-{row}".encode() for row in range(50)]
    producer.send_batch(pa.record_batch({"value": values}), topic=topic)
    producer.flush()
    written.update(values)


@REAL
def test_rows_follow_a_topic_that_is_created_again_while_they_are_written(broker: Broker, topic: str) -> None:
    """What is acknowledged after that is in the new topic, once; nothing that was acknowledged before is written again.

    With Produce by topic id a leader refuses what is meant for the former topic; the producer learns the new id and goes on
    (KIP-516). Before Kafka 4.1 names decide.
    """
    broker.create_topic(topic, 2)

    def replace() -> None:
        delete(broker, topic)
        create_again(broker, topic, 2)

    before, during, after = set[bytes](), set[bytes](), set[bytes]()
    with (
        ThreadPoolExecutor() as pool,
        Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 0}) as producer,
    ):
        for number in range(20):
            write_rows(producer, topic, number, before)
        replaced = pool.submit(replace)
        for number in count(20):
            rows = after if replaced.done() else during
            write_rows(producer, topic, number, rows)
            if len(after) >= 1000:
                break
        replaced.result()
    found = [row.value for row in read_topic(broker.bootstrap_servers, topic)]
    assert len(found) == len(set(found))
    assert after <= set(found) <= after | during
    assert before.isdisjoint(found)
