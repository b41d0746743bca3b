"""Reading while connections are cut, garbage arrives, brokers stop and leaders are killed: every row once, in order."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from spark_producer import Producer
from spark_producer.consumer.read_ranges import CONNECTIONS
from spark_producer.consumer.settings import FetchSettings
from tests.conftest import Broker, ProxiedBroker
from tests.support.kafka_cluster import KafkaCluster
from tests.support.proxy import Cut, Direction
from tests.support.read_ranges import FAST, batches, connection

pytestmark = [pytest.mark.slow, pytest.mark.covers("RD9")]
FETCH, METADATA = 1, 3
ROWS, PARTITIONS = 150_000, 3
EACH = ROWS // PARTITIONS
SHARE = 0.2
"""Fraction of the requests at which a connection is cut."""
COLUMNS = frozenset({"offset", "value"})


@pytest.fixture
def filled(proxied: ProxiedBroker, topic: str) -> Iterator[ProxiedBroker]:
    """A topic of `ROWS` numbers in small batches. The next read has connections of its own."""
    fill(proxied, topic)
    CONNECTIONS.clear()
    yield proxied
    proxied.proxy.heal()
    CONNECTIONS.clear()


def fill(broker: Broker, topic: str, **config: Any) -> None:
    broker.create_topic(topic, PARTITIONS, **config)
    numbers = np.arange(ROWS)
    rows = {"value": pa.array(numbers).cast(pa.string()), "partition": (numbers % PARTITIONS).astype(np.int32)}
    with Producer({"bootstrap.servers": broker.bootstrap_servers, "batch.size": 4096}) as producer:
        producer.send_batch(pa.record_batch(rows), topic=topic)


def settings(broker: Broker, **changes: Any) -> FetchSettings:
    """Options of a reader that needs many requests, and does not wait long after a failure."""
    network = {**FAST, **changes.pop("network", {})}
    sizes = {"partition_bytes": 10_000, "max_bytes": 100_000}
    return FetchSettings(connection(broker.bootstrap_servers, **network), **{**sizes, **changes})


def reading(settings: FetchSettings, topic: str) -> Iterator[int]:
    """Read everything, and check that each row comes once and in order. It yields the number of rows so far."""
    found: dict[int, list[np.ndarray]] = {partition: [] for partition in range(PARTITIONS)}
    rows = 0
    for partition, batch in batches(settings, topic, dict.fromkeys(found, (0, EACH)), COLUMNS):
        values = batch.column("value").cast(pa.string()).cast(pa.int64())
        found[partition].append(values.to_numpy(zero_copy_only=False))
        rows += batch.num_rows
        yield rows
    for partition, inside in found.items():
        assert np.array_equal(np.concatenate(inside), np.arange(partition, ROWS, PARTITIONS))


def read(settings: FetchSettings, topic: str) -> int:
    return max(reading(settings, topic))


def test_random_cuts_lose_and_double_nothing(filled: ProxiedBroker, topic: str) -> None:
    filled.proxy.cut_at_random(FETCH, SHARE, seed=7)
    assert read(settings(filled), topic) == ROWS
    assert filled.proxy.requests[METADATA] > 5, "nothing was cut"


@pytest.mark.parametrize("how", list(Cut))
def test_connections_that_are_cut_in_the_middle(filled: ProxiedBroker, topic: str, how: Cut) -> None:
    for number, _ in enumerate(reading(settings(filled), topic)):
        if number % 20 == 10:
            filled.proxy.cut(how)
    assert number > 100


GARBAGE = {
    "http": b"HTTP/1.1 400 Bad Request\r\n\r\n",
    "empty frames": bytes(64),
    "a frame": b"\0\0\0\x0a" + b"\x7f" * 10,
}


@pytest.mark.parametrize("garbage", GARBAGE.values(), ids=GARBAGE)
def test_garbage_between_responses(filled: ProxiedBroker, topic: str, garbage: bytes) -> None:
    for number, _ in enumerate(reading(settings(filled), topic)):
        if number % 50 == 25:
            filled.proxy.inject(garbage, Direction.TO_CLIENT)
    assert number > 100


def test_a_response_that_never_comes_is_requested_again(filled: ProxiedBroker, topic: str) -> None:
    filled.proxy.drop_response(FETCH, times=2)
    assert read(settings(filled, network={"request_timeout": 0.5}), topic) == ROWS
    assert not filled.proxy.waiting_faults()


def test_a_slow_broker_is_waited_for(filled: ProxiedBroker, topic: str) -> None:
    filled.proxy.delay(0.05)
    assert read(settings(filled, partition_bytes=200_000, max_bytes=2_000_000), topic) == ROWS


def test_a_broker_that_cannot_be_reached_for_a_while(filled: ProxiedBroker, topic: str) -> None:
    rows = reading(settings(filled), topic)
    next(rows)
    filled.proxy.refuse()
    filled.proxy.cut()
    healing = threading.Timer(1.0, filled.proxy.heal)
    healing.start()
    assert max(rows) == ROWS
    healing.join()


def test_leaders_that_are_killed_in_turn(kafka_three: KafkaCluster, topic: str) -> None:
    fill(kafka_three, topic, replication_factor=3)
    rows, killed = reading(settings(kafka_three), topic), list[int]()
    for number, _ in enumerate(rows):
        if number in (10, 60):
            victim = kafka_three.partitions(topic)[number % PARTITIONS].leader
            kafka_three.kill(victim)
            killed.append(victim)
        if number in (40, 90):
            kafka_three.start(killed[-1])
            kafka_three.wait_until_in_sync(topic)
    assert len(killed) == 2
