"""Pushes the metrics of one client over connections that it has anyway. This module is small, since every client imports it.

A client opens no connection for it, and does not wait for a response. The rest of the package is imported once a broker offers
to take metrics.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Protocol

from spark_producer.common.escape import escaping_logger
from spark_producer.errors import PyProducerError
from spark_producer.protocol import GET_TELEMETRY_SUBSCRIPTIONS, AnyApi

if TYPE_CHECKING:
    from spark_producer.telemetry.reporter import ReportedClient, TelemetryReporter

logger = escaping_logger("pyproducer")

NEVER = float("inf")

FIRST_REQUEST_S = 10.0
"""Seconds from the start of a client to its first request, so that one that lives for a single task sends none."""

RECHECK_S = 5.0
"""Seconds between two looks for a broker that takes metrics, while none is connected and ready."""


class Network(Protocol):
    """The connections of a client, as far as telemetry uses them (`network.Client`)."""

    def ready(self, node: int) -> bool:
        """Return whether a request may be sent to `node` now, and begin a connection if there is none."""

    def least_loaded(self) -> int | None:
        """Return the node for a request that any node can answer; None if all are busy or in backoff."""

    def ready_with(self, api: AnyApi) -> int | None:
        """Return the least loaded node that is connected, supports `api`, and may get a request now."""

    def send(self, node: int, api: AnyApi, body: tuple[object, ...], *, tag: object, expect_response: bool) -> None:
        """Send a request; a later poll returns its completion with `tag`."""


class TelemetryPusher:
    """The telemetry of one client. One thread at a time owns it; any may read `due_at` and `client_instance_id`.

    `client` describes the client to be reported. A bug in telemetry turns it off, and never harms the client.
    """

    def __init__(
        self,
        network: Network,
        client: Callable[[], ReportedClient],
        clock: Callable[[], float],
        unix: Callable[[], float],
        random: Random | None = None,
    ) -> None:
        self._network = network
        self._client = client
        self._clock = clock
        self._unix = unix
        self._random = random or Random()
        self._started = unix()
        self.reporter: TelemetryReporter | None = None
        """The decisions, once a broker has offered to take metrics."""
        self.due_at = clock() + FIRST_REQUEST_S
        """The time of the next `step`."""
        self._failed = False
        self.in_flight = False
        """Whether a request has no completion yet."""
        self._listeners: list[Callable[[], None]] = []
        """Those of threads that wait for the client instance id, for which a connection is opened."""
        self.not_offered = False
        """Whether the last look found a broker that is ready and takes no metrics, and none that does."""

    @property
    def client_instance_id(self) -> str | None:
        """The id that the brokers have assigned, as Kafka's tools show it."""
        return self.reporter.client_instance_id if self.reporter is not None else None

    @property
    def is_off(self) -> bool:
        """Whether there will be no more requests."""
        return self._failed or (self.reporter is not None and self.reporter.is_off)

    def listen(self, on_change: Callable[[], None]) -> None:
        """Make the first request due, and call `on_change` after each step and each completion, until `forget`.

        Any thread may call it; then it must wake the owner.
        """
        self._listeners.append(on_change)
        if self.reporter is None:
            self.due_at = 0.0

    def forget(self, on_change: Callable[[], None]) -> None:
        """Remove a listener."""
        self._listeners.remove(on_change)

    def notify(self) -> None:
        """Call all listeners."""
        for on_change in list(self._listeners):
            on_change()

    def step(self, now: float) -> None:
        """Send the request that is due, if a broker that is connected takes metrics. Call it from `due_at` on."""
        try:
            self._step(now)
        except Exception as error:
            self._fail(error)
        self.notify()

    def _step(self, now: float) -> None:
        node = self._network.ready_with(GET_TELEMETRY_SUBSCRIPTIONS)
        if node is None:
            self.due_at = now + RECHECK_S
            if self._listeners:
                self.due_at = now  # any event may be the connection
                other = self._network.least_loaded()
                self.not_offered = other is not None and self._network.ready(other)
            return
        if self.reporter is None:
            from spark_producer.telemetry.reporter import TelemetryReporter

            self.reporter = TelemetryReporter(self._client(), self._started, self._clock, self._unix, self._random)
        if (request := self.reporter.request(self._clock())) is not None:
            self.in_flight = True
            self._network.send(node, request.api, request.body, tag=self, expect_response=True)
        self.due_at = self.reporter.due_at

    def on_completion(self, api: AnyApi, body: object, error: PyProducerError | None, now: float) -> None:
        """Handle the completion of a request, whose tag is this object."""
        self.in_flight = False
        if self.reporter is None:
            return
        try:
            self.reporter.on_completion(api, body, error, now)
            self.due_at = self.reporter.due_at
        except Exception as bug:
            self._fail(bug)
        self.notify()

    def close(self) -> None:
        """Send the terminating push, if metrics are wanted and a broker is ready, without waiting for its response."""
        self.due_at = NEVER
        if self.reporter is None:
            return
        try:
            node = self._network.ready_with(GET_TELEMETRY_SUBSCRIPTIONS)
            request = self.reporter.last_request() if node is not None else None
            if node is not None and request is not None:
                self.in_flight = True
                self._network.send(node, request.api, request.body, tag=self, expect_response=True)
        except Exception as error:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        logger.warning("client telemetry (KIP-714) is off for this client: %r; this is a bug of pyproducer", error)
        self.reporter, self.due_at, self._failed = None, NEVER, True
