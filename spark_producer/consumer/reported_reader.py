"""What brokers may ask of a reader (KIP-714): the metrics of its connections and fetches."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from spark_producer.consumer.settings import FetchSettings
from spark_producer.metrics import Levels
from spark_producer.metrics.consumer_metrics import ConsumerMetrics
from spark_producer.network.client import Client
from spark_producer.telemetry.pusher import TelemetryPusher

if TYPE_CHECKING:  # only readers whose brokers ask for metrics import it
    from spark_producer.metrics.snapshot import Snapshot
    from spark_producer.telemetry.reporter import ReportedClient


def pusher_of(
    client: Client, metrics: ConsumerMetrics, settings: FetchSettings, clock: Callable[[], float]
) -> TelemetryPusher:
    """Return the telemetry of the reader whose connections are `client`, with the attributes of its first read."""

    def snapshot() -> Snapshot:
        connections, requests = client.load()
        return metrics.snapshot(Levels(connection_count=connections, requests_in_flight=requests), clock())

    def reported() -> ReportedClient:
        from spark_producer.metrics.consumer_metrics import CONSUMER_METRICS
        from spark_producer.telemetry.reporter import ReportedClient

        named = {"group_id": settings.group_id, "client_rack": settings.client_rack}
        return ReportedClient(CONSUMER_METRICS, snapshot, {name: value for name, value in named.items() if value})

    return TelemetryPusher(client, reported, clock, time.time)
