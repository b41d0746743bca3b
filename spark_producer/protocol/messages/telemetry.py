"""The messages of client telemetry (KIP-714): GetTelemetrySubscriptions and PushTelemetry."""

# Annotations are evaluated here on purpose (no `from __future__`): they are the schema.
from typing import NamedTuple

from spark_producer.protocol.fields import Bool, Bytes, Int8, Int16, Int32, String, Uuid
from spark_producer.protocol.messages.cluster import NO_UUID

# GetTelemetrySubscriptions (71)


class GetTelemetrySubscriptionsRequest(NamedTuple):
    """Asks which metrics the broker wants. Without an id of its own yet, a client sends zeros, and the broker assigns one."""

    client_instance_id: Uuid = NO_UUID


class GetTelemetrySubscriptionsResponse(NamedTuple):
    """The metrics that the broker wants, by prefixes of their names, and how they are to be pushed."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    client_instance_id: Uuid = NO_UUID
    subscription_id: Int32 = 0
    accepted_compression_types: tuple[Int8, ...] = ()
    push_interval_ms: Int32 = 0
    telemetry_max_bytes: Int32 = 0
    delta_temporality: Bool = False
    requested_metrics: tuple[String, ...] = ()


# PushTelemetry (72)


class PushTelemetryRequest(NamedTuple):
    """Metrics as OpenTelemetry's MetricsData, compressed; `terminating` marks the last push of a client."""

    client_instance_id: Uuid = NO_UUID
    subscription_id: Int32 = 0
    terminating: Bool = False
    compression_type: Int8 = 0
    metrics: Bytes = b""


class PushTelemetryResponse(NamedTuple):
    """Whether the broker took the metrics."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
