"""Pushed metrics as opentelemetry-proto, the judge of their bytes, reads them."""

from __future__ import annotations

from typing import Any, NamedTuple

from spark_producer.protocol.messages import PushTelemetryRequest
from spark_producer.record.codecs import decompress

MAX_BYTES = 1 << 24
DELTA, CUMULATIVE = 1, 2
"""OpenTelemetry's AggregationTemporality."""

Key = tuple[str, str]
"""(name, node or topic or "")."""


class PushedPoint(NamedTuple):
    """A point; `temporality` is None for a gauge."""

    value: float
    started: int
    at: int
    temporality: int | None


class Pushed(NamedTuple):
    """The content of a push."""

    points: dict[Key, PushedPoint]
    resource: dict[str, str]

    def value(self, name: str, owner: str = "") -> float:
        return self.points[name, owner].value


def message_of(data: bytes) -> Any:
    """Return a MetricsData message. Its package is imported here, so that tests are collected without it."""
    from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

    return MetricsData.FromString(data)


def pushed(body: object) -> Pushed:
    """Return what a PushTelemetry request carries."""
    assert isinstance(body, PushTelemetryRequest)
    assert isinstance(body.metrics, bytes | memoryview)
    return read(bytes(decompress(body.compression_type, body.metrics, MAX_BYTES)))


def read(data: bytes) -> Pushed:
    """Return the content of a MetricsData message."""
    message = message_of(data)
    points: dict[Key, PushedPoint] = {}
    resource: dict[str, str] = {}
    for of_client in message.resource_metrics:
        resource |= {each.key: each.value.string_value for each in of_client.resource.attributes}
        for scope in of_client.scope_metrics:
            for metric in scope.metrics:
                kind = metric.WhichOneof("data")
                assert kind == "gauge" or metric.sum.is_monotonic
                temporality = None if kind == "gauge" else metric.sum.aggregation_temporality
                for point in getattr(metric, kind).data_points:
                    owner = point.attributes[0].value.string_value if point.attributes else ""
                    assert (metric.name, owner) not in points
                    points[metric.name, owner] = PushedPoint(
                        point.as_double, point.start_time_unix_nano, point.time_unix_nano, temporality
                    )
    return Pushed(points, resource)
