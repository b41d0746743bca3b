"""Readers of committed rows that we did not write (librdkafka): one that is there all the time, one that comes later.

Owns: reading, with deadlines. Must not know: what is expected.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, TopicPartition

from tests.matrix.checker import Read, Seen
from tests.support.waiting import poll

SECONDS = 60.0


def read_later(bootstrap: str, topic: str, isolation: str = "read_committed") -> Read:
    """The whole topic, up to where committed rows end now. Raises TimeoutError."""
    found: dict[int, list[Seen]] = defaultdict(list)
    consumer = _consumer(bootstrap, isolation)
    deadline = time.monotonic() + SECONDS
    try:
        reading = _assign(consumer, topic)
        while reading:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{topic}: not at the end of partitions {sorted(reading)} within {SECONDS:g} s")
            for message in consumer.consume(5_000, timeout=0.1):
                error = message.error()
                if error is None:
                    _note(found, message)
                elif error.code() == KafkaError._PARTITION_EOF:
                    reading.discard(message.partition() or 0)
    finally:
        consumer.close()
    return found


class ConcurrentReader:
    """Context manager: reads on in a thread, whatever becomes of the brokers."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._topic = topic
        self._consumer = _consumer(bootstrap, "read_committed")
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="concurrent-reader", daemon=True)
        self.found: dict[int, list[Seen]] = defaultdict(list)
        self.partitions: set[int] = set()
        """The partitions that it reads: those that existed when it began."""

    def __enter__(self) -> ConcurrentReader:
        self.partitions = _assign(self._consumer, self._topic)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join(SECONDS)
        self._consumer.close()

    @property
    def count(self) -> int:
        """Rows so far."""
        return sum(map(len, list(self.found.values())))

    def wait_for(self, count: int, seconds: float = 20.0) -> Read:
        """Return its rows once it has `count` of them, or after a while."""
        poll(lambda: self.count >= count, seconds=seconds, pause=0.02)
        return {partition: list(rows) for partition, rows in self.found.items()}

    def _run(self) -> None:
        while not self._end.is_set():
            for message in self._consumer.consume(5_000, timeout=0.1):
                if message.error() is None:
                    _note(self.found, message)


def _note(found: dict[int, list[Seen]], message: Message) -> None:
    partition, offset = message.partition(), message.offset()
    assert partition is not None
    assert offset is not None
    key, value = message.key(), message.value()
    assert not isinstance(key, str)
    assert not isinstance(value, str)
    found[partition].append(Seen(offset, key, value))


def _assign(consumer: Consumer, topic: str) -> set[int]:
    partitions = set(consumer.list_topics(topic, timeout=SECONDS).topics[topic].partitions)
    consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in sorted(partitions)])
    return partitions


def _consumer(bootstrap: str, isolation: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "matrix",  # required by the client, unused: partitions are assigned, nothing is committed
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": isolation,
            "auto.offset.reset": "error",
            "check.crcs": True,
            "fetch.wait.max.ms": 50,
            "reconnect.backoff.max.ms": 500,
            "log_level": 0,
        }
    )
