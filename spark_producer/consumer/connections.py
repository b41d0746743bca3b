"""Caches connections to clusters across the tasks and micro-batches of a Python worker."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from spark_producer.consumer.known_cluster import KnownCluster
from spark_producer.consumer.reported_reader import pusher_of
from spark_producer.consumer.settings import FetchSettings
from spark_producer.metrics import ProducerMetrics
from spark_producer.metrics.consumer_metrics import ConsumerMetrics
from spark_producer.network.client import Client
from spark_producer.network.settings import ConnectionSettings
from spark_producer.telemetry.pusher import TelemetryPusher

MAX_IDLE_CONNECTIONS = 4
"""Maximum clusters, or logins at one, to which a worker keeps connections while no task reads."""

MAX_IDLE_S = 600.0
"""Maximum seconds from the end of a read; the next one closes the connections after that. Spark's own source keeps its consumers
for 5 minutes, and producers for 10 (`spark.kafka.consumer.cache.timeout`, `spark.kafka.producer.cache.timeout`)."""


class Connect(Protocol):
    """Creates a client, which connects on demand."""

    def __call__(self, settings: ConnectionSettings, *, metrics: ProducerMetrics) -> Client:
        """Return a client that reports to `metrics`."""


@dataclass(slots=True)
class Connections:
    """The connections to a cluster, and what is known of it. One read at a time has them."""

    settings: ConnectionSettings
    client: Client
    metrics: ConsumerMetrics
    telemetry: TelemetryPusher | None = None
    """The pushes of metrics, once a read has begun that allows them."""
    cluster: KnownCluster = field(init=False)
    used: float = 0.0
    process: int = field(default_factory=os.getpid)

    def __post_init__(self) -> None:
        self.cluster = KnownCluster(checks=self.settings.check_cluster)

    def begin(self, settings: FetchSettings, clock: Callable[[], float]) -> TelemetryPusher | None:
        """Begin a read, and return the pushes of metrics, if it allows them."""
        if self.telemetry is None and settings.metrics_push:
            self.telemetry = pusher_of(self.client, self.metrics, settings, clock)
        return self.telemetry if settings.metrics_push else None

    @property
    def awaited(self) -> bool:
        """Whether a request is in flight, other than those of telemetry: a later read handles their responses."""
        _, in_flight = self.client.load()
        return in_flight > (self.telemetry is not None and self.telemetry.in_flight)

    def close(self) -> None:
        """Close all connections, unless a forked child calls: its copies share their selector with the parent."""
        if self.process == os.getpid():
            if self.telemetry is not None:
                self.telemetry.close()
            self.client.close()


class ConnectionCache:
    """Connections that no read is using. Reads of one thread take them and give them back."""

    def __init__(self, make: Connect = Client, clock: Callable[[], float] = time.monotonic) -> None:
        self._make = make
        self._clock = clock
        self._idle: list[Connections] = []
        """In the order of their last use. Settings have no hash, so they are compared one by one."""

    def __len__(self) -> int:
        return len(self._idle)

    def take(self, settings: ConnectionSettings) -> Connections:
        """Return idle connections with these settings, or new ones.

        Raises:
            ConfigError, TlsFailed: as `Client`.
        """
        now = self._clock()
        self._drop([each for each in self._idle if each.process != os.getpid() or now - each.used >= MAX_IDLE_S])
        found = next((each for each in self._idle if each.settings == settings), None)
        if found is None:
            metrics = ConsumerMetrics(settings.client_id or "", threading.Lock(), now, time.time())
            return Connections(settings, self._make(settings, metrics=metrics), metrics)
        self._idle.remove(found)
        return found

    def give_back(self, connections: Connections) -> None:
        """Keep connections for the next read, unless a response would come to it that is not for it."""
        if connections.awaited or connections.process != os.getpid():
            connections.close()
            return
        connections.used = self._clock()
        self._idle.append(connections)
        self._drop(self._idle[:-MAX_IDLE_CONNECTIONS])

    def clear(self) -> None:
        """Close all idle connections."""
        self._drop(list(self._idle))

    def _drop(self, connections: list[Connections]) -> None:
        for each in connections:
            self._idle.remove(each)
            each.close()
