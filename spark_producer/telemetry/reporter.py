"""The telemetry of one client: which request is due when, and what the responses mean (Kafka's ClientTelemetryReporter)."""

from __future__ import annotations

import enum
from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any, NamedTuple

from spark_producer.common.error_codes import Code
from spark_producer.common.escape import escaping_logger
from spark_producer.errors import ConfigError, PyProducerError
from spark_producer.metrics.metric_table import Metric
from spark_producer.metrics.snapshot import Snapshot
from spark_producer.protocol import GET_TELEMETRY_SUBSCRIPTIONS, PUSH_TELEMETRY, AnyApi
from spark_producer.protocol.messages import (
    NO_UUID,
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
    PushTelemetryRequest,
    PushTelemetryResponse,
)
from spark_producer.record.codecs import Codec, Compressor
from spark_producer.telemetry.otlp import Point, metrics_data
from spark_producer.telemetry.points import Points
from spark_producer.telemetry.subscription import DEFAULT_INTERVAL_S, MIN_INTERVAL_S, Subscription, subscription_of

logger = escaping_logger("pyproducer")

NEVER = float("inf")

MAX_FAILURES = 3
"""Maximum requests in succession that end without a response; then telemetry is off."""

MAX_SHARE = 0.01
"""Maximum share of a thread's time that is spent on pushes: the interval grows if they take longer."""

FIRST_PUSH = (0.5, 1.5)
"""Minimum and maximum fraction of the interval before the first push, so that the clients of a fleet spread (KIP-714)."""

ASK_AT_ONCE = (Code.UNKNOWN_SUBSCRIPTION_ID, Code.UNSUPPORTED_COMPRESSION_TYPE)
ASK_LATER = (Code.TELEMETRY_TOO_LARGE, Code.THROTTLING_QUOTA_EXCEEDED)
"""The errors after which the subscription is requested again: at once, or after the interval. Any other ends telemetry."""


class TelemetryState(enum.Enum):
    """What is due next, or in flight: Kafka's ClientTelemetryState, less the closing."""

    SUBSCRIPTION_NEEDED = "subscription needed"
    SUBSCRIPTION_IN_PROGRESS = "subscription in progress"
    PUSH_NEEDED = "push needed"
    PUSH_IN_PROGRESS = "push in progress"
    OFF = "off"


class ReportedClient(NamedTuple):
    """The client whose metrics are pushed: its table of metrics, their values now, and the attributes of its resource."""

    table: Sequence[Metric]
    snapshot: Callable[[], Snapshot]
    resource: Mapping[str, str]


class TelemetryRequest(NamedTuple):
    """A request to send now."""

    api: AnyApi
    body: Any


class _Push(NamedTuple):
    """The last push: the sums in it if they are deltas, its Unix nanoseconds, its codec and its size."""

    deltas: Sequence[Point]
    at: int
    codec: Codec
    size: int


NOTHING = _Push((), 0, Codec.NONE, 0)


class TelemetryReporter:
    """Decides on the requests of one client. One thread owns it. `clock` and `unix` return seconds."""

    def __init__(
        self,
        client: ReportedClient,
        started: float,
        clock: Callable[[], float],
        unix: Callable[[], float],
        random: Random,
    ) -> None:
        """`started` is the start of the client in Unix seconds."""
        self._client = client
        self._clock = clock
        self._unix = unix
        self._random = random
        self.state = TelemetryState.SUBSCRIPTION_NEEDED
        self.due_at = clock()
        """The time of the next request; never while one is in flight, or if telemetry is off."""
        self.subscription: Subscription | None = None
        self._points = Points(client.table, round(started * 1e9))
        self._pushed = NOTHING
        self._refused: set[Codec] = set()
        self._max_bytes = NEVER
        self._failures = 0
        self._cost = 0.0
        """The seconds that the last push took on this thread."""

    @property
    def client_instance_id(self) -> str | None:
        """The id that the brokers have assigned to the client, as Kafka's tools show it."""
        return text_of(self.subscription.client_instance_id) if self.subscription is not None else None

    @property
    def is_off(self) -> bool:
        """Whether there will be no more requests."""
        return self.state is TelemetryState.OFF

    def request(self, now: float) -> TelemetryRequest | None:
        """Return the request that is due; None if there is none."""
        if now < self.due_at:
            return None
        if self.state is TelemetryState.SUBSCRIPTION_NEEDED:
            self._next(TelemetryState.SUBSCRIPTION_IN_PROGRESS, NEVER)
            own_id = self.subscription.client_instance_id if self.subscription is not None else NO_UUID
            return TelemetryRequest(GET_TELEMETRY_SUBSCRIPTIONS, GetTelemetrySubscriptionsRequest(own_id))
        return self._push()

    def last_request(self) -> TelemetryRequest | None:
        """Return the terminating push of a client that is being closed, and end telemetry; None if nothing is wanted."""
        pushes = self.state in (TelemetryState.PUSH_NEEDED, TelemetryState.PUSH_IN_PROGRESS)
        if self.state is TelemetryState.PUSH_IN_PROGRESS:  # the broker may have its metrics
            self._points.accepted(self._pushed.deltas, self._pushed.at)
        request = self._push(terminating=True) if pushes else None
        self.state, self.due_at = TelemetryState.OFF, NEVER
        return request

    def _push(self, *, terminating: bool = False) -> TelemetryRequest | None:
        subscription = self.subscription
        assert subscription is not None
        began, at = self._clock(), round(self._unix() * 1e9)
        points = self._points.points(self._client.snapshot(), subscription.wants, delta=subscription.delta)
        points, codec, payload = self._packed(subscription, points, at)
        ended = self._clock()
        self._cost = ended - began
        if not points and not terminating:
            self._next(TelemetryState.SUBSCRIPTION_NEEDED, ended + self._interval())
            return None
        self._next(TelemetryState.PUSH_IN_PROGRESS, NEVER)
        self._pushed = _Push(points if subscription.delta else (), at, codec, len(payload))
        body = PushTelemetryRequest(subscription.client_instance_id, subscription.number, terminating, codec, payload)
        return TelemetryRequest(PUSH_TELEMETRY, body)

    def _packed(self, subscription: Subscription, points: list[Point], at: int) -> tuple[list[Point], Codec, bytes]:
        """Return as many of the points as fit into a push, their codec, and their bytes."""
        max_bytes = min(subscription.max_bytes, self._max_bytes)
        compressor = _compressor([codec for codec in subscription.codecs if codec not in self._refused])
        while True:
            data = metrics_data(points, self._client.resource, at, delta=subscription.delta)
            payload = bytes(compressor.compress(data))
            if len(payload) <= max_bytes or not points:
                return points, compressor.codec, payload
            points = points[: int(len(points) * max_bytes / len(payload) * 0.9)]

    def on_completion(self, api: AnyApi, body: object, error: PyProducerError | None, now: float) -> None:
        """Handle the end of a request: its response, or its error."""
        if self.is_off:
            return
        if isinstance(body, GetTelemetrySubscriptionsResponse | PushTelemetryResponse):
            self._failures = 0
            if body.error_code:
                self._on_error(api, Code(body.error_code), now)
            elif isinstance(body, PushTelemetryResponse):
                self._points.accepted(self._pushed.deltas, self._pushed.at)
                self._pushed = NOTHING
                self._next(TelemetryState.PUSH_NEEDED, now + self._interval())
            else:
                self._on_subscription(body, now)
        elif error is None:
            self._turn_off(f"the response to {api.name} is too large")
        else:
            self._on_failure(error, now)

    def _on_subscription(self, body: GetTelemetrySubscriptionsResponse, now: float) -> None:
        before = self.subscription
        found = subscription_of(body, before.client_instance_id if before is not None else NO_UUID)
        if found is None:
            self._turn_off("the broker assigns no client instance id")
            return
        self.subscription = found
        if not found.wants_metrics:
            self._next(TelemetryState.SUBSCRIPTION_NEEDED, now + self._interval())
            return
        if before is None or before.number != found.number:
            logger.info(
                "client telemetry (KIP-714): the brokers want metrics each %g s; client instance id %s",
                found.interval,
                text_of(found.client_instance_id),
            )
        self._next(TelemetryState.PUSH_NEEDED, now + self._interval() * self._random.uniform(*FIRST_PUSH))

    def _on_error(self, api: AnyApi, code: Code, now: float) -> None:
        if code == Code.UNSUPPORTED_COMPRESSION_TYPE:
            self._refused.add(self._pushed.codec)
        elif code == Code.TELEMETRY_TOO_LARGE:
            self._max_bytes = self._pushed.size // 2
        if code in ASK_AT_ONCE:
            at_once = api is PUSH_TELEMETRY
            self._next(TelemetryState.SUBSCRIPTION_NEEDED, now + (MIN_INTERVAL_S if at_once else self._interval()))
        elif code in ASK_LATER:
            self._next(TelemetryState.SUBSCRIPTION_NEEDED, now + self._interval())
        else:
            self._turn_off(f"the broker refuses {api.name} with {code.name}")

    def _on_failure(self, error: PyProducerError, now: float) -> None:
        # A broker that was lost may have taken the metrics: counting them twice would be worse.
        self._points.accepted(self._pushed.deltas, self._pushed.at)
        self._pushed = NOTHING
        self._failures += 1
        if self._failures >= MAX_FAILURES:
            self._turn_off(f"{self._failures} requests ended without a response; last: {error}")
        else:
            self._next(TelemetryState.SUBSCRIPTION_NEEDED, now + DEFAULT_INTERVAL_S)

    def _interval(self) -> float:
        """Return the seconds before the next request."""
        wanted = self.subscription.interval if self.subscription is not None else DEFAULT_INTERVAL_S
        return max(wanted, self._cost / MAX_SHARE)

    def _next(self, state: TelemetryState, due_at: float) -> None:
        self.state, self.due_at = state, due_at

    def _turn_off(self, cause: str) -> None:
        logger.warning("client telemetry (KIP-714) is off for this client: %s", cause)
        self._next(TelemetryState.OFF, NEVER)


def text_of(uuid: bytes) -> str:
    """Return a UUID as Kafka's tools show it (org.apache.kafka.common.Uuid)."""
    return urlsafe_b64encode(uuid).decode().rstrip("=")


def _compressor(codecs: Sequence[Codec]) -> Compressor:
    """Return a compressor for the first codec whose package is installed; without one nothing is compressed."""
    for codec in codecs:
        try:
            return Compressor(codec)
        except ConfigError:
            continue
    return Compressor(Codec.NONE)
