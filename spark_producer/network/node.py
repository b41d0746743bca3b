"""One broker as the client sees it: its address, its connection, and when it may be used again.

The decisions about states, backoff, throttling and deadlines all take the time `now` as an argument.
"""

from __future__ import annotations

import enum
from collections import deque
from dataclasses import dataclass
from random import Random

from spark_producer.backoff import exponential
from spark_producer.errors import ConnectionFailed, ProtocolError, PyProducerError
from spark_producer.network.addresses import format_address
from spark_producer.network.settings import ConnectionSettings
from spark_producer.network.transport import ResolvedAddress, Transport
from spark_producer.protocol import AnyApi, Connection

NEVER = float("inf")


class NodeState(enum.Enum):
    """The state of the connection to a node."""

    DISCONNECTED = "disconnected"
    CONNECTING = "connecting"
    NEGOTIATING = "negotiating"
    READY = "ready"


@dataclass(slots=True)
class SentRequest:
    """A request that was sent and has not completed."""

    tag: object
    api: AnyApi
    sent_at: float
    deadline: float


class NodeConnection:
    """One broker. The thread that polls owns it."""

    def __init__(self, node_id: int, host: str, port: int) -> None:
        self.id = node_id
        self.host = host
        self.port = port
        self.state = NodeState.DISCONNECTED
        self.transport: Transport | None = None
        self.connection: Connection[SentRequest] | None = None
        self.error: PyProducerError | None = None
        """The reason why the last connection, or attempt at one, ended."""
        self.unwritten: list[SentRequest] = []
        """The requests without a response that the kernel has not taken whole."""
        self.fully_written = True
        self.watched = 0
        """The events that the selector waits for."""
        self.unsent = 0
        """The bytes that the transport had not written at the last count."""
        self.request_size = 0
        """The bytes of the request that is being written; 0 if there is none."""
        self.last_attempt = -NEVER
        self.deadline = NEVER
        """The deadline of connecting or negotiating."""
        self._addresses: deque[ResolvedAddress] = deque()
        self._last_address: ResolvedAddress | None = None
        self._failures = 0
        self._failed_connects = 0
        self._retry_at = -NEVER
        self._throttled_until = -NEVER
        self._last_used = -NEVER

    def __str__(self) -> str:
        name = "bootstrap server" if self.id < 0 else f"broker {self.id} at"
        return f"{name} {format_address(self.host, self.port)}"

    @property
    def in_flight(self) -> int:
        """The number of requests sent, or being sent, and not yet completed. Any thread may ask."""
        connection = self.connection
        waiting = connection.in_flight if connection is not None else 0
        return waiting + len(self.unwritten)

    def sent(self) -> list[SentRequest]:
        """Return the requests in flight, in the order in which they were sent."""
        waiting = self.connection.tags() if self.connection is not None else []
        return sorted(waiting + self.unwritten, key=lambda request: request.sent_at) if self.unwritten else waiting

    def can_send(self, now: float, max_in_flight: int) -> bool:
        """Whether a request may be sent now."""
        return (
            self.state is NodeState.READY
            and self.fully_written
            and now >= self._throttled_until
            and self.in_flight < max_in_flight
        )

    def can_connect(self, now: float) -> bool:
        """Whether there is no connection, and a new attempt is due."""
        return self.state is NodeState.DISCONNECTED and now >= self._retry_at

    def next_attempt_in(self, now: float) -> float:
        """Return the seconds until the backoff ends, so that `can_connect` may be true."""
        return max(0.0, self._retry_at - now) if self.state is NodeState.DISCONNECTED else 0.0

    # Addresses: all are tried in turn before the node has failed; a new attempt starts with another one if there is one.

    def has_more_addresses(self) -> bool:
        """Whether this attempt has addresses left."""
        return bool(self._addresses)

    def resolved(self, addresses: list[ResolvedAddress]) -> None:
        """Take the addresses of a new attempt, and move the one that was used last to the end."""
        self._addresses = deque(sorted(addresses, key=lambda address: address == self._last_address))

    def next_address(self) -> ResolvedAddress:
        """Return the address to try now."""
        self._last_address = self._addresses.popleft()
        return self._last_address

    # What happened

    def connecting(self, transport: Transport, now: float, settings: ConnectionSettings, random: Random) -> None:
        """A connection to the next address was begun."""
        self.transport = transport
        self.state = NodeState.CONNECTING
        self.last_attempt = now
        self.deadline = now + exponential(
            settings.connection_setup_timeout, settings.connection_setup_timeout_max, self._failed_connects, random
        )

    def established(self, connection: Connection[SentRequest], now: float, settings: ConnectionSettings) -> None:
        """The transport is connected; the versions are being negotiated."""
        self.connection = connection
        self.state = NodeState.NEGOTIATING
        self.deadline = now + settings.request_timeout

    def negotiated(self, now: float) -> None:
        """The versions are known, so requests may be sent, and earlier failures no longer count."""
        self.state = NodeState.READY
        self.deadline = NEVER
        self.error = None
        self._failures = self._failed_connects = 0
        self._addresses.clear()
        self._last_used = now

    def writing(self, size: int) -> None:
        """A request of `size` bytes goes to the transport."""
        self.request_size += size
        self.unsent += size

    def used(self, now: float) -> None:
        """Bytes went over the connection."""
        self._last_used = now

    def throttled(self, seconds: float, now: float) -> None:
        """The broker asked for a pause, by which the deadlines of requests in flight move too (KIP-219)."""
        self._throttled_until = max(self._throttled_until, now + seconds)
        for request in self.sent():
            request.deadline += seconds

    def disconnected(self, error: PyProducerError | None) -> list[SentRequest]:
        """The connection has ended and its transport is closed. Return the requests in flight, in the order sent."""
        lost = self.sent()
        if self.connection is not None:
            self.connection.close()
        if self.transport is not None:
            self.transport.close()
        self.transport = self.connection = None
        self.unwritten = []
        self.unsent = self.request_size = 0
        self.fully_written = True
        self.state = NodeState.DISCONNECTED
        self.deadline = NEVER
        self._throttled_until = -NEVER
        self.error = error
        return lost

    def failed(self, was_connecting: bool, now: float, settings: ConnectionSettings, random: Random) -> None:
        """The attempt, or the connection, has failed, so the next attempt must wait."""
        self._addresses.clear()
        self.last_attempt = now
        self._retry_at = now + exponential(
            settings.reconnect_backoff, settings.reconnect_backoff_max, self._failures, random
        )
        self._failures += 1
        self._failed_connects += was_connecting

    # Deadlines

    def next_deadline(self, now: float, settings: ConnectionSettings) -> float:
        """Return the time of the next decision: `expired`, `idle`, or the end of a pause."""
        if self.state is NodeState.DISCONNECTED:
            return NEVER
        sent = self.sent()
        due = min([request.deadline for request in sent], default=NEVER)
        if self.state is not NodeState.READY:
            return min(due, self.deadline)
        if not sent:
            due = self._last_used + settings.connections_max_idle
        return min(due, self._throttled_until) if self._throttled_until > now else due

    def expired(self, now: float, settings: ConnectionSettings) -> str | None:
        """Say what took too long, if anything did."""
        late = next((request for request in self.sent() if now >= request.deadline), None)
        if late is None and now < self.deadline:
            return None
        if self.state is NodeState.CONNECTING:
            return f"no connection to {self._last_address} in time (socket.connection.setup.timeout.ms)"
        if self.state is NodeState.NEGOTIATING:
            return (
                f"{self} took the connection but did not answer ApiVersions within {settings.request_timeout:g} s: "
                "it may expect TLS (see security.protocol), hang, or be no Kafka broker"
            )
        assert late is not None
        return f"{self} did not answer {late.api.name} within {now - late.sent_at:.3g} s (request.timeout.ms)"

    def idle(self, now: float, settings: ConnectionSettings) -> bool:
        """Whether the connection has been without use for too long."""
        quiet = self.state is NodeState.READY and not self.in_flight and self.fully_written
        return quiet and now >= self._last_used + settings.connections_max_idle


def connection_lost(node: NodeConnection, reason: str) -> ConnectionFailed:
    """Return the error of requests whose connection ended for a reason other than their own."""
    return ConnectionFailed(f"the connection to {node} was closed: {reason}")


def told_by(node: NodeConnection, error: PyProducerError) -> PyProducerError:
    """Return an error with the broker that it is about: what the protocol raises does not know whom it talks to."""
    return type(error)(f"{node}: {error}") if isinstance(error, ProtocolError) else error
