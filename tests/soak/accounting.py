"""The accounts of a soak: how often each number was seen in a topic, by a reader of committed rows that we did not write.

A number takes one byte, so the memory of hours is a hundred megabytes, and retention may remove what was counted.

Owns: the counts, the order of keys, the reader (librdkafka), what is missing. Must not know: streams, faults.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition

from tests.support.waiting import wait_until

MANY = 255
"""The count of a number stays there."""
REFRESH_SECONDS = 2.0
SECONDS = 60.0

Place = tuple[str, int]
"""A topic and a partition."""


class Balance(NamedTuple):
    """The state of a topic's account: numbers below `due`, of them those not seen; rows seen, and more than once."""

    due: int
    missing: int
    seen: int
    repeated: int
    out_of_order: int
    strange: int


class Account:
    """The numbers of one topic. `note` is the reader's, the rest is for the other thread."""

    def __init__(self) -> None:
        self._counts: npt.NDArray[np.uint8] = np.zeros(1 << 16, np.uint8)
        self._last: dict[tuple[int, int], int] = {}
        self.seen = self.out_of_order = self.strange = 0

    def note(self, partition: int, numbers: Sequence[int]) -> None:
        """Count rows of a partition, in their order. A key is the last digit of its numbers."""
        found = np.asarray(numbers, np.int64)
        for key in range(10):
            of_key = found[found % 10 == key]
            if of_key.size:
                before = self._last.get((partition, key), -1)
                self.out_of_order += int((np.diff(of_key, prepend=before) < 0).sum())
                self._last[partition, key] = int(of_key[-1])
        if found.size:
            self._grow(int(found.max()))
        different, times = np.unique(found, return_counts=True)
        self._counts[different] = np.minimum(self._counts[different].astype(np.int64) + times, MANY)
        self.seen += len(numbers)

    def balance(self, due: int) -> Balance:
        """Return the state, when the numbers below `due` should have been seen."""
        counts = self._counts
        known = counts[:due]
        missing = due - int(np.count_nonzero(known))
        return Balance(due, missing, self.seen, int((counts > 1).sum()), self.out_of_order, self.strange)

    def first_missing(self, due: int) -> int:
        """Return the first number below `due` that was not seen; `due` if there is none."""
        absent = np.flatnonzero(self._counts[:due] == 0)
        return int(absent[0]) if absent.size else min(due, len(self._counts))

    def _grow(self, number: int) -> None:
        while number >= len(self._counts):
            self._counts = np.concatenate([self._counts, np.zeros_like(self._counts)])


class Bookkeeper:
    """Context manager: one thread that reads all topics, also the partitions that are added, whatever happens to brokers."""

    def __init__(self, bootstrap: str, topics: Sequence[str]) -> None:
        self.accounts = {topic: Account() for topic in topics}
        self.errors: list[str] = []
        self._reached: dict[Place, int] = {}
        self._consumer = _consumer(bootstrap, "read_committed")
        self._watcher = _consumer(bootstrap, "read_uncommitted")
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="bookkeeper", daemon=True)
        self._assigned: set[Place] = set()

    def __enter__(self) -> Bookkeeper:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join(SECONDS)
        self._consumer.close()
        self._watcher.close()

    def ends(self, topic: str, seconds: float = SECONDS) -> dict[Place, int]:
        """Return where each partition ends now, with rows that are not committed. Raises KafkaException after a while."""
        return {place: bounds[1] for place, bounds in self._bounds(topic, seconds).items()}

    def first_offsets(self, topic: str, seconds: float = SECONDS) -> dict[int, int]:
        """Return where each partition begins now. Raises KafkaException after a while."""
        return {number: bounds[0] for (_, number), bounds in self._bounds(topic, seconds).items()}

    def _bounds(self, topic: str, seconds: float) -> dict[Place, tuple[int, int]]:
        """Where each partition begins and ends, by requests that take some seconds together."""
        deadline = time.monotonic() + seconds
        partitions = self._watcher.list_topics(topic, timeout=seconds).topics[topic].partitions
        found = {}
        for number in partitions:
            left = max(deadline - time.monotonic(), 0.1)
            found[topic, number] = self._watcher.get_watermark_offsets(TopicPartition(topic, number), timeout=left)
        return found

    def has_passed(self, ends: dict[Place, int]) -> bool:
        """Return whether everything before these ends was read."""
        return all(self._reached.get(place, 0) >= end for place, end in ends.items())

    def wait_for(self, topic: str, seconds: float) -> None:
        """Wait until all that is in a topic now was read. Raises TimeoutError."""
        ends = self.ends(topic)
        wait_until(lambda: self.has_passed(ends), f"{topic} is read to its end {ends}", seconds=seconds, pause=0.1)

    def trouble(self) -> list[str]:
        """Return what keeps the reader from counting: its errors, and that it has ended."""
        ended = [] if self._thread.is_alive() or self._end.is_set() else ["the reader has ended"]
        return [*self.errors, *ended]

    def _run(self) -> None:
        turns = 0
        try:
            while not self._end.is_set():
                if turns % int(REFRESH_SECONDS / 0.1) == 0:
                    self._assign()
                turns += 1
                self._read()
        except Exception as error:  # the thread that asks for `trouble` must see it
            self.errors.append(f"the reader broke: {error!r}")

    def _read(self) -> None:
        """Count what is there. The other thread trusts `_reached`, so that changes after the accounts."""
        numbers: dict[Place, list[int]] = {}
        reached: dict[Place, int] = {}
        for message in self._consumer.consume(5_000, timeout=0.1):
            place = (message.topic() or "", message.partition() or 0)
            error, offset = message.error(), message.offset()
            if error is None:
                value = message.value()
                assert isinstance(value, bytes)
                text = value.strip()
                if text.isdigit() and message.key() == text[-1:]:
                    numbers.setdefault(place, []).append(int(text))
                else:
                    self.accounts[place[0]].strange += 1
                reached[place] = (offset or 0) + 1
            elif error.code() == KafkaError._PARTITION_EOF:
                reached[place] = offset or 0
            elif error.code() == KafkaError._AUTO_OFFSET_RESET:
                self.errors.append(f"{place}: {error.str()}")
        for (topic, partition), found in numbers.items():
            self.accounts[topic].note(partition, found)
        self._reached.update(reached)

    def _assign(self) -> None:
        """Read partitions that are new from their begin."""
        for topic in self.accounts:
            try:
                found = self._consumer.list_topics(topic, timeout=10).topics[topic]
            except KafkaException:  # a node is away: the next time
                continue
            new = {(topic, number) for number in found.partitions} - self._assigned
            if new:
                self._consumer.incremental_assign([TopicPartition(*place, OFFSET_BEGINNING) for place in sorted(new)])
                self._assigned |= new


def _consumer(bootstrap: str, isolation: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "soak",  # required by the client, unused: partitions are assigned, nothing is committed
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": isolation,
            "auto.offset.reset": "error",
            "check.crcs": True,
            "fetch.wait.max.ms": 50,
            "queued.max.messages.kbytes": 16_384,
            "reconnect.backoff.max.ms": 500,
            "log_level": 0,
        }
    )
