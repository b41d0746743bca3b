"""confluent-kafka inside Spark's workers, in the two ways in which people use it.

It is a module of its own, because the workers import it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from confluent_kafka import KafkaError, Message, Producer

FLUSH_SECONDS = 120.0


@dataclass(frozen=True)
class RowLoop:
    """For `foreachPartition`: it calls `produce` once per row, as the client's examples do.

    It is a class, since a closure would be pickled by value with the client's class, which cannot be pickled.
    """

    bootstrap: str
    topic: str

    def __call__(self, rows: Iterable[Any]) -> None:
        failures: list[KafkaError] = []
        collect = _collector(failures)
        producer = Producer({"bootstrap.servers": self.bootstrap, "acks": "all"})
        for row in rows:
            while True:
                try:
                    producer.produce(self.topic, value=row.value, key=row.key, on_delivery=collect)
                    break
                except BufferError:
                    producer.poll(0.1)
            producer.poll(0)
        _finish(producer, failures)


@dataclass(frozen=True)
class BatchLoop:
    """For `mapInArrow`: it calls `produce_batch` once per Arrow batch, which is the fastest way that we found."""

    bootstrap: str
    topic: str
    security: Mapping[str, str] = field(default_factory=dict)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        failures: list[KafkaError] = []
        collect = _collector(failures)
        tuned = {"linger.ms": 20, "batch.size": 262_144}
        producer = Producer({"bootstrap.servers": self.bootstrap, "acks": "all", **tuned, **self.security})
        for batch in batches:
            waiting = batch.select(["key", "value"]).to_pylist()
            while waiting:
                producer.produce_batch(self.topic, waiting, on_delivery=collect)
                # A full queue marks the messages that it did not take.
                waiting = [message for message in waiting if message.pop("_error", None) is not None]
                producer.poll(0.1 if waiting else 0)
        _finish(producer, failures)
        yield from ()


def _collector(failures: list[KafkaError]) -> Callable[[KafkaError | None, Message], None]:
    def collect(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            failures.append(error)

    return collect


def _finish(producer: Producer, failures: list[KafkaError]) -> None:
    left = producer.flush(FLUSH_SECONDS)
    if left or failures:
        raise RuntimeError(f"{left} messages were not sent, {len(failures)} failed: {failures[:1]}")
