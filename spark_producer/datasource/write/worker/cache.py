"""Caches the producers of this Python worker, one for each configuration of its tasks, across tasks and micro-batches.

A worker runs one task at a time, so one producer is in use. The others release their memory and keep a thread and a connection
to each broker, so the next task of their sink need not connect again.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from spark_producer.config import ProducerConfig
from spark_producer.producer import Producer, parts_of

MAX_PRODUCERS = 4
"""Maximum producers that a worker keeps, in LRU order. A job is unlikely to have more sinks in one worker."""

MAX_IDLE_S = 600.0
"""Maximum seconds from the start of a producer's last task; the next task closes it after that. Spark's own sink has the same
timeout (`spark.kafka.producer.cache.timeout`)."""


class _CachedProducer(NamedTuple):
    config: ProducerConfig
    producer: Producer
    used: float


class ProducerCache:
    """At most `MAX_PRODUCERS` producers, in the order of their last use. No method waits for unacknowledged records."""

    def __init__(
        self, make: Callable[[ProducerConfig], Producer] = Producer, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._make = make
        self._clock = clock
        self._kept: list[_CachedProducer] = []
        """In LRU order. Configurations have no hash, so they are compared one by one."""

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, config: ProducerConfig) -> Producer:
        """Return the producer of this configuration, or a new one if there is none or it has failed.

        Others are closed if they have failed, have been idle for `MAX_IDLE_S`, or are too many; the remaining ones release their
        memory. A forked process begins with none, since its parent's producers count as failed.

        Raises:
            ConfigError: as `Producer`.
        """
        now = self._clock()
        for kept in list(self._kept):
            if parts_of(kept.producer).failed or (kept.config != config and now - kept.used >= MAX_IDLE_S):
                self.drop(kept.config)
        found = self._take(config)
        while len(self._kept) >= MAX_PRODUCERS:
            self.drop(self._kept[0].config)
        for kept in self._kept:
            parts_of(kept.producer).pool.trim()
        producer = self._make(config) if found is None else found.producer
        self._kept.append(_CachedProducer(config, producer, now))
        return producer

    def drop(self, config: ProducerConfig) -> None:
        """Close a producer without waiting: its records are acknowledged, or its task has failed."""
        kept = self._take(config)
        if kept is not None:
            kept.producer.close(timeout=0)

    def clear(self) -> None:
        """Drop all producers."""
        for kept in list(self._kept):
            self.drop(kept.config)

    def _take(self, config: ProducerConfig) -> _CachedProducer | None:
        found = next((kept for kept in self._kept if kept.config == config), None)
        if found is not None:
            self._kept.remove(found)
        return found
