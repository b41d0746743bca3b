"""The producers of this Python worker, one for each configuration that its tasks use, kept across tasks and micro-batches.

A worker runs one task at a time, so only one producer at a time is in use. The others give their memory back and keep a thread
and a connection to each broker, so the next task of their sink need not connect again.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from spark_producer.config import ProducerConfig
from spark_producer.producer import Producer, parts_of

MOST = 4
"""The number of producers that a worker keeps: those used last. A job is unlikely to have more sinks in one worker."""

MAX_IDLE_S = 600.0
"""Seconds for which a producer is kept after the start of its last task; when a later task begins, it is closed. Spark's own
sink keeps one as long (`spark.kafka.producer.cache.timeout`)."""


class _Kept(NamedTuple):
    config: ProducerConfig
    producer: Producer
    used: float


class ProducerCache:
    """At most `MOST` producers, in the order of their last use. No method waits for unacknowledged records."""

    def __init__(
        self, make: Callable[[ProducerConfig], Producer] = Producer, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._make = make
        self._clock = clock
        self._kept: list[_Kept] = []
        """In the order of their last use. Configurations have no hash, so they are compared one by one."""

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, config: ProducerConfig) -> Producer:
        """Return the producer of this configuration, or a new one if there is none or it has failed.

        The others are closed if they have failed, have been idle for `MAX_IDLE_S`, or are too many; those that stay give back
        the memory that they keep. A forked process begins with none, since its parent's producers count as failed.

        Raises:
            ConfigError: as `Producer`.
        """
        now = self._clock()
        for kept in list(self._kept):
            if parts_of(kept.producer).failed or (kept.config != config and now - kept.used >= MAX_IDLE_S):
                self.drop(kept.config)
        found = self._take(config)
        while len(self._kept) >= MOST:
            self.drop(self._kept[0].config)
        for kept in self._kept:
            parts_of(kept.producer).pool.trim()
        producer = self._make(config) if found is None else found.producer
        self._kept.append(_Kept(config, producer, now))
        return producer

    def drop(self, config: ProducerConfig) -> None:
        """Close a producer without waiting: either its records were acknowledged, or its task has failed."""
        kept = self._take(config)
        if kept is not None:
            kept.producer.close(timeout=0)

    def clear(self) -> None:
        """Drop all producers."""
        for kept in list(self._kept):
            self.drop(kept.config)

    def _take(self, config: ProducerConfig) -> _Kept | None:
        found = next((kept for kept in self._kept if kept.config == config), None)
        if found is not None:
            self._kept.remove(found)
        return found
