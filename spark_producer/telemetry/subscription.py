"""What a broker wants to know: the response to GetTelemetrySubscriptions, within limits."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from spark_producer.protocol.messages import NO_UUID, GetTelemetrySubscriptionsResponse
from spark_producer.record.codecs import Codec

DEFAULT_INTERVAL_S = 300.0
"""Seconds between two pushes if the broker gives none, as in Kafka's ClientTelemetryReporter."""

MIN_INTERVAL_S = 1.0
MAX_INTERVAL_S = 3600.0
"""Minimum and maximum seconds between two pushes, whatever the broker says. Kafka's brokers allow 0.1 to 3600 s."""

MAX_PAYLOAD_BYTES = 1 << 20
"""Maximum bytes of a push, even if the broker takes more: the default of its `telemetry.max.bytes`."""

MAX_PREFIXES = 1000
"""Maximum prefixes of names in a subscription; further ones are ignored."""


class Subscription(NamedTuple):
    """The metrics to push, and how. `interval` is in seconds, `max_bytes` the size after compression."""

    client_instance_id: bytes
    number: int
    interval: float
    codecs: tuple[Codec, ...]
    """The codecs that the broker takes, the best first."""
    max_bytes: int
    delta: bool
    prefixes: tuple[str, ...]

    @property
    def wants_metrics(self) -> bool:
        """Whether there is anything to push."""
        return bool(self.prefixes) and self.max_bytes > 0

    def wants(self, name: str) -> bool:
        """Return whether a metric is wanted. A prefix is a text, and never a pattern, except for a single `*`: all metrics."""
        return self.prefixes == ("*",) or name.startswith(self.prefixes)


def subscription_of(response: GetTelemetrySubscriptionsResponse, own_id: bytes = NO_UUID) -> Subscription | None:
    """Return the subscription in a response without an error; None if neither it nor `own_id` has a client instance id."""
    client_instance_id = response.client_instance_id if response.client_instance_id != NO_UUID else own_id
    if client_instance_id == NO_UUID:
        return None
    return Subscription(
        client_instance_id,
        response.subscription_id,
        interval_of(response.push_interval_ms),
        tuple(_codecs(response.accepted_compression_types)),
        min(response.telemetry_max_bytes, MAX_PAYLOAD_BYTES),
        response.delta_temporality,
        response.requested_metrics[:MAX_PREFIXES],
    )


def interval_of(milliseconds: int) -> float:
    """Return the seconds between two pushes for the interval in a response."""
    if milliseconds <= 0:
        return DEFAULT_INTERVAL_S
    return min(max(milliseconds / 1000, MIN_INTERVAL_S), MAX_INTERVAL_S)


def _codecs(numbers: Iterable[int]) -> Iterable[Codec]:
    known = {int(codec): codec for codec in Codec}
    return (known[number] for number in dict.fromkeys(numbers) if number in known)
