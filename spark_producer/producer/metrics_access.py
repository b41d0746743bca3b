"""The metrics of a producer, with its clock. Levels such as free memory are not recorded, but read with the metrics."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from spark_producer.accumulator import BufferPool
from spark_producer.config import ProducerConfig
from spark_producer.metrics import Interval, Levels, ProducerMetrics, Snapshot, Values, Window
from spark_producer.producer.network_client import Network
from spark_producer.sender import Metadata

if TYPE_CHECKING:  # only producers whose brokers ask for metrics import it
    from spark_producer.telemetry.reporter import ReportedClient


class Meter:
    """The metrics of one producer, with its clock. It is thread-safe, also for recording into `events`."""

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
        self._resource = {"transactional_id": config.transactional_id, "client_rack": config.client_rack}

    def set_level_sources(self, client: Network, pool: BufferPool, metadata: Metadata) -> None:
        """Set the objects from which the metrics of current levels, such as connections, are read."""

        def levels(now: float) -> Levels:
            connections, requests = client.load()
            return Levels(pool.waiting, pool.total, pool.available, requests, connections, metadata.age(now))

        self._levels = levels

    def memory_waited(self, seconds: float, exhausted: bool) -> None:
        """Record a wait for memory. It is the `record_wait` of the pool."""
        now = self.clock()
        self.events.buffer_waited(seconds, now)
        if exhausted:
            self.events.buffer_exhausted(now)

    def snapshot(self) -> Snapshot:
        """Return the metrics now."""
        now = self.clock()
        return self.events.snapshot(self._levels(now), now)

    def values(self) -> Values:
        """Return the metrics by (group, name, tags); see docs/metrics.md."""
        return self.snapshot().values()

    def reported_client(self) -> ReportedClient:
        """Return what brokers may ask for (KIP-714): the metrics, and what names the producer beside its client id."""
        from spark_producer.metrics.metric_table import METRICS
        from spark_producer.telemetry.reporter import ReportedClient

        return ReportedClient(METRICS, self.snapshot, {name: value for name, value in self._resource.items() if value})

    def start_interval(self) -> None:
        """Begin the interval that `interval` covers, such as a task."""
        self.events.mark(self.clock())

    def interval(self) -> Interval:
        """Return the metrics since `start_interval`."""
        now = self.clock()
        return self.events.since_mark(self._levels(now), now)
