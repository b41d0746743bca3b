"""The producers of this Python worker, one for each configuration that its tasks use, kept across tasks and micro-batches.

Owns: which are kept, and which of them goes. Must not know: what a task writes.

A worker runs one task at a time, so one producer at a time is in use: the memory of the others is given back, and what is kept
of them, a thread and a connection to each broker, saves the next task of their sink the way to the brokers.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

from spark_producer.config import ProducerConfig
from spark_producer.producer import Producer, parts_of

MOST = 4
"""Producers of a worker; of more sinks than a job is likely to have in one worker, those used last."""

LONGEST_IDLE = 600.0
"""Seconds after the start of its last task from which on a producer is closed when the next task begins: as long as Spark's own
sink keeps one (`spark.kafka.producer.cache.timeout`)."""


class _Kept(NamedTuple):
    producer: Producer
    used: float


class ProducerCache:
    """At most `MOST` producers, the one used last at the end. Nothing here waits for what is unacknowledged."""

    def __init__(
        self, make: Callable[[ProducerConfig], Producer] = Producer, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._make = make
        self._clock = clock
        self._kept: OrderedDict[ProducerConfig, _Kept] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, config: ProducerConfig) -> Producer:
        """The producer of this configuration; a new one if there is none, or it can do no more here.

        The others are closed if they have failed, have been idle for `LONGEST_IDLE`, or are too many, and give back the memory
        that they keep. A forked process begins with none: those of its parent count as failed.

        Raises:
            ConfigError: as `Producer`.
        """
        now = self._clock()
        for other, kept in list(self._kept.items()):
            if parts_of(kept.producer).failed or (other != config and now - kept.used >= LONGEST_IDLE):
                self.drop(other)
        found = self._kept.pop(config, None)
        while len(self._kept) >= MOST:
            self.drop(next(iter(self._kept)))
        for kept in self._kept.values():
            parts_of(kept.producer).pool.trim()
        producer = self._make(config) if found is None else found.producer
        self._kept[config] = _Kept(producer, now)
        return producer

    def drop(self, config: ProducerConfig) -> None:
        """Close a producer without waiting: what it holds was acknowledged, or its task has failed."""
        kept = self._kept.pop(config, None)
        if kept is not None:
            kept.producer.close(timeout=0)

    def clear(self) -> None:
        """Drop all."""
        for config in list(self._kept):
            self.drop(config)
