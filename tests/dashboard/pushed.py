"""Pushed metrics (KIP-714) as a page for Prometheus, as a collector of OpenTelemetry makes it: sums of deltas, last gauges."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from tests.support.telemetry_kafka import TelemetryKafka, read_push
from tests.unit.telemetry.pushed import read

LABELS = ("client_instance_id", "client_id", "group_id", "node_id", "topic")
Labels = tuple[str, ...]


class PushedMetrics(Collector):
    """Adds up what the plugin of a cluster has kept. Prometheus' names have underscores, and sums end in `_total`."""

    def __init__(self, kafka: TelemetryKafka) -> None:
        self._kafka = kafka
        self._read = 0
        self.sums: dict[str, dict[Labels, float]] = {}
        self.gauges: dict[str, dict[Labels, float]] = {}

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics, with the pushes that came since the last call."""
        self.take_in()
        for name, sums in self.sums.items():
            counter = CounterMetricFamily(name, "pushed by clients", labels=LABELS)
            for labels, value in sums.items():
                counter.add_metric(labels, value)
            yield counter
        for name, gauges in self.gauges.items():
            gauge = GaugeMetricFamily(name, "pushed by clients", labels=LABELS)
            for labels, value in gauges.items():
                gauge.add_metric(labels, value)
            yield gauge

    def take_in(self) -> None:
        """Read the pushes that came since the last call."""
        files = self._kafka.files()
        for push in map(read_push, files[self._read :]):
            content = read(push.data)
            client = {"client_instance_id": push.instance, "client_id": push.client_id, **content.resource}
            for (name, owner), point in content.points.items():
                of_point = client | ({"node_id" if ".node." in name else "topic": owner} if owner else {})
                labels = tuple(of_point.get(each, "") for each in LABELS)
                name_there = name.replace(".", "_")
                if point.temporality is None:
                    self.gauges.setdefault(name_there, {})[labels] = point.value
                else:  # Kafka's brokers always ask for deltas
                    self.sums.setdefault(name_there, defaultdict(float))[labels] += point.value
        self._read = len(files)
