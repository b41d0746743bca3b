"""A producer's metrics as the producer uses them: how long its calls take, which are refused, and what is read.

Owns: the levels that are looked up when somebody reads. Must not know: Spark, or what any metric means; the clock and the
lock are passed in.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

from spark_producer.accumulator import BufferPool
from spark_producer.config import ProducerConfig
from spark_producer.metrics import Levels, ProducerMetrics, Snapshot, Values, Window
from spark_producer.network import Client
from spark_producer.sender import Metadata


class Meter:
    """The metrics of one producer, with its clock. Any thread may read them and record into `events`."""

    def __init__(
        self,
        config: ProducerConfig,
        lock: AbstractContextManager[object],
        clock: Callable[[], float],
        unix: Callable[[], float],
    ) -> None:
        self.clock = clock
        window = Window(config.metrics_sample_window_ms / 1000, config.metrics_num_samples)
        self.events = ProducerMetrics(config.client_id, lock, clock(), unix(), window)
        self._levels: Callable[[float], Levels] = lambda _: Levels()

    def look_at(self, client: Client, pool: BufferPool, metadata: Metadata) -> None:
        """Where to look up what is not recorded."""

        def levels(now: float) -> Levels:
            connections, requests = client.load()
            return Levels(pool.waiting, pool.total, pool.available, requests, connections, metadata.age(now))

        self._levels = levels

    def memory_waited(self, seconds: float, exhausted: bool) -> None:
        """`record_wait` of the pool."""
        now = self.clock()
        self.events.buffer_waited(seconds, now)
        if exhausted:
            self.events.buffer_exhausted(now)

    def values(self) -> Values:
        """Windows and totals, by (group, name, tags); see docs/metrics.md."""
        now = self.clock()
        return self.events.snapshot(self._levels(now), now).values()

    def start_lap(self) -> None:
        """A task begins."""
        self.events.start_lap(self.clock())

    def lap(self) -> Snapshot:
        """What happened since `start_lap`."""
        now = self.clock()
        return self.events.lap(self._levels(now), now)
