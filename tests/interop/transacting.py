"""Transactional producers of three clients with one interface: ours, librdkafka's and kafka-python's.

Owns: how each of them begins, writes, commits and aborts. Must not know: which broker it writes to.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, Protocol

import confluent_kafka
from kafka import KafkaProducer

import spark_producer

SECONDS = 30.0
Make = Literal["ours", "confluent", "kafka-python"]


class Writer(Protocol):
    """A transactional producer. Everything is acknowledged when a call returns."""

    def init(self) -> None:
        """Take over the transactional id."""

    def begin(self) -> None:
        """Begin a transaction."""

    def write(self, topic: str, partition: int, value: bytes) -> None:
        """Write one record."""

    def commit(self) -> None:
        """Commit."""

    def abort(self) -> None:
        """Abort."""

    def close(self) -> None:
        """End the producer."""


class Ours:
    """Our `Producer`."""

    def __init__(self, bootstrap: str, transactional_id: str, timeout_ms: int) -> None:
        settings = {"bootstrap.servers": bootstrap, "transactional.id": transactional_id, "linger.ms": 0}
        self.producer = spark_producer.Producer({**settings, "transaction.timeout.ms": timeout_ms})

    def init(self) -> None:
        self.producer.init_transactions()

    def begin(self) -> None:
        self.producer.begin_transaction()

    def write(self, topic: str, partition: int, value: bytes) -> None:
        self.producer.send(topic, value, partition=partition)
        self.producer.flush()

    def commit(self) -> None:
        self.producer.commit_transaction()

    def abort(self) -> None:
        self.producer.abort_transaction()

    def close(self) -> None:
        self.producer.close(SECONDS)


class Confluent:
    """librdkafka's producer."""

    def __init__(self, bootstrap: str, transactional_id: str, timeout_ms: int) -> None:
        settings = {
            "bootstrap.servers": bootstrap,
            "transactional.id": transactional_id,
            "linger.ms": 0,
            "log_level": 0,
        }
        # By default its messages may not live longer than the transaction, which it compares with one another.
        times = {"transaction.timeout.ms": timeout_ms, "message.timeout.ms": timeout_ms}
        self.producer = confluent_kafka.Producer({**settings, **times, "socket.timeout.ms": max(1000, timeout_ms)})

    def init(self) -> None:
        self.producer.init_transactions(SECONDS)

    def begin(self) -> None:
        self.producer.begin_transaction()

    def write(self, topic: str, partition: int, value: bytes) -> None:
        errors: list[object] = []
        self.producer.produce(topic, value, partition=partition, on_delivery=lambda error, _: errors.append(error))
        assert self.producer.flush(SECONDS) == 0
        assert errors == [None]

    def commit(self) -> None:
        self.producer.commit_transaction(SECONDS)

    def abort(self) -> None:
        self.producer.abort_transaction(SECONDS)

    def close(self) -> None:
        self.producer.purge()  # a producer that was fenced cannot even flush


class KafkaPython:
    """kafka-python's producer."""

    def __init__(self, bootstrap: str, transactional_id: str, timeout_ms: int) -> None:
        settings: dict[str, Any] = {"bootstrap_servers": bootstrap, "transactional_id": transactional_id}
        self.producer = KafkaProducer(**settings, transaction_timeout_ms=timeout_ms, linger_ms=0)

    def init(self) -> None:
        self.producer.init_transactions()

    def begin(self) -> None:
        self.producer.begin_transaction()

    def write(self, topic: str, partition: int, value: bytes) -> None:
        self.producer.send(topic, value, partition=partition).get(SECONDS)

    def commit(self) -> None:
        self.producer.commit_transaction()

    def abort(self) -> None:
        self.producer.abort_transaction()

    def close(self) -> None:
        self.producer.close(SECONDS)


_MAKERS: dict[Make, Callable[[str, str, int], Writer]] = {
    "ours": Ours,
    "confluent": Confluent,
    "kafka-python": KafkaPython,
}
MAKES = list(_MAKERS)


def writer(make: Make, bootstrap: str, transactional_id: str, timeout_ms: int = 60_000) -> Writer:
    """A transactional producer of a make, which has not asked for anything yet."""
    return _MAKERS[make](bootstrap, transactional_id, timeout_ms)
