"""Clients of others that live on while their broker dies: an idempotent producer of librdkafka and a group of kafka-python.

The records of a partition are numbered. Only one producer writes, so a record that is neither lost nor doubled nor out of order
has the offset that is its number; both clients check that of every record.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Mapping
from typing import Final

from confluent_kafka import KafkaError, Message, Producer
from kafka import KafkaConsumer
from kafka.errors import KafkaConnectionError

from tests.support.waiting import poll

SECONDS: Final = 60.0
_FILLER: Final = b"." * 400
_BURST: Final = 10

Partition = tuple[str, int]


def number_of(value: bytes | None) -> int:
    """The number of a record."""
    return int((value or b"-1").partition(b" ")[0])


class NumberingProducer:
    """Writes numbered records to all `partitions` in a thread of its own from `start` to `end`; `errors` are what was wrong."""

    def __init__(self, bootstrap_servers: str, partitions: list[Partition]) -> None:
        self.errors: list[str] = []
        self.written: Counter[Partition] = Counter()
        self.acknowledged: Counter[Partition] = Counter()
        self.total = 0
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap_servers,
                "enable.idempotence": True,
                "acks": "all",
                "message.timeout.ms": 600_000,
                "batch.num.messages": 40,
                "linger.ms": 2,
                "queue.buffering.max.messages": 2000,
                "reconnect.backoff.ms": 10,
                "reconnect.backoff.max.ms": 20,
                "retry.backoff.ms": 10,
                "log_level": 0,
                "error_cb": self._failed,
            }
        )
        self._partitions = partitions
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="numbering", daemon=True)

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    def end(self) -> None:
        """Return when everything that was written is acknowledged."""
        self._ending.set()
        self._thread.join(SECONDS)
        left = self._producer.flush(SECONDS)
        if left:
            self.errors.append(f"{left} records are not acknowledged")

    def _run(self) -> None:
        while not self._ending.is_set():
            for partition in self._partitions:
                for _ in range(_BURST):
                    self._write(partition)
            self._producer.poll(0.01)

    def _write(self, partition: Partition) -> None:
        value = b"%d %s" % (self.written[partition], _FILLER)
        while True:
            try:
                self._producer.produce(partition[0], value, partition=partition[1], on_delivery=self._delivered)
            except BufferError:
                self._producer.poll(0.05)
                if self._ending.is_set():
                    return
                continue
            self.written[partition] += 1
            return

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        number, partition = number_of(message.value()), (message.topic() or "", message.partition() or 0)
        if error is not None or message.offset() != number:
            self.errors.append(f"record {number} of {partition}: offset {message.offset()}, {error}")
            return
        self.acknowledged[partition] = number + 1
        self.total += 1

    def _failed(self, error: KafkaError) -> None:
        if error.fatal():
            self.errors.append(f"librdkafka gave up: {error}")


class ReadingGroup:
    """Reads `topics` as a member of a group in a thread of its own; `errors` are what was wrong.

    `seen` is the end of what was read of each partition. Topics with retention (`fading`) may have gaps.
    """

    def __init__(self, bootstrap_servers: str, topics: list[str], fading: str) -> None:
        self.errors: list[str] = []
        self.seen: Counter[Partition] = Counter()
        self.total = 0
        self._consumer = KafkaConsumer(
            *topics,
            bootstrap_servers=bootstrap_servers,
            group_id="steady",
            auto_offset_reset="earliest",
            auto_commit_interval_ms=200,
            heartbeat_interval_ms=200,
            reconnect_backoff_ms=10,
            reconnect_backoff_max_ms=50,
            retry_backoff_ms=20,
            metadata_max_age_ms=1000,
        )
        self._fading = fading
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="group", daemon=True)

    def start(self) -> None:
        """Begin to read."""
        self._thread.start()

    def read_to(self, ends: Mapping[Partition, int]) -> None:
        """Return when everything was read to `ends`, or time is up, which is an error."""
        if not poll(lambda: all(self.seen[partition] >= end for partition, end in ends.items()), seconds=SECONDS):
            self.errors.append(f"read to {self.seen}, not to {dict(ends)}")

    def close(self) -> None:
        """Stop reading, and leave the group."""
        self._ending.set()
        self._thread.join(SECONDS)
        self._consumer.close(autocommit=False)

    def _run(self) -> None:
        while not self._ending.is_set():
            try:
                polled = self._consumer.poll(timeout_ms=2000)
            except KafkaConnectionError:  # raised when no broker listens during FindCoordinator
                time.sleep(0.02)  # until a broker listens again, or `close`
                continue
            for place, records in polled.items():
                for record in records:
                    self._take((place.topic, place.partition), record.offset, number_of(record.value))

    def _take(self, partition: Partition, offset: int, number: int) -> None:
        seen = self.seen[partition]
        if number != offset or (offset > seen and partition[0] != self._fading):
            self.errors.append(f"{partition}: offset {offset} has record {number}, read to {seen}")
        self.seen[partition] = max(seen, offset + 1)
        self.total += 1
