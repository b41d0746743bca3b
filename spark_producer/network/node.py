"""One broker as the client sees it: where it is, its connection, and when it may be used again.

Owns: the states of a node, backoff, throttling and deadlines, all as decisions that take `now`.
Must not know: selectors (`client`), how bytes are carried (`transport`), or what requests mean.
"""

from __future__ import annotations

import enum
from collections import deque
from dataclasses import dataclass
from random import Random

from spark_producer.backoff import exponential
from spark_producer.errors import ConnectionFailed, PyProducerError
from spark_producer.network.addresses import format_address
from spark_producer.network.settings import ConnectionSettings
from spark_producer.network.transport import ResolvedAddress, Transport
from spark_producer.protocol import Api, Connection

NEVER = float("inf")


class NodeState(enum.Enum):
    """Where the connection to a node stands."""

    DISCONNECTED = "disconnected"
    CONNECTING = "connecting"
    NEGOTIATING = "negotiating"
    READY = "ready"


@dataclass(slots=True)
class SentRequest:
    """A request on its way."""

    tag: object
    api: Api
    sent_at: float
    deadline: float


class Node:
    """One broker. Owned by the thread that polls."""

    def __init__(self, node_id: int, host: str, port: int) -> None:
        self.id = node_id
        self.host = host
        self.port = port
        self.state = NodeState.DISCONNECTED
        self.transport: Transport | None = None
        self.connection: Connection[SentRequest] | None = None
        self.error: PyProducerError | None = None
        """why the last connection, or attempt at one, ended"""
        self.unwritten: list[SentRequest] = []
        """requests without a response that the kernel has not taken whole"""
        self.fully_written = True
        self.watched = 0
        """the events that the selector looks out for"""
        self.unsent = 0
        """bytes that the transport has not written, as far as was counted"""
        self.request_size = 0
        """of what is being written; 0 if nothing is"""
        self.last_attempt = -NEVER
        self.deadline = NEVER
        """of connecting or negotiating"""
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
        """Requests sent, or being sent, and not yet completed. Any thread may ask."""
        connection = self.connection
        waiting = connection.in_flight if connection is not None else 0
        return waiting + len(self.unwritten)

    def sent(self) -> list[SentRequest]:
        """The requests of `in_flight`, in the order in which they were sent."""
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
        """Seconds until `can_connect`, as far as backoff decides it."""
        return max(0.0, self._retry_at - now) if self.state is NodeState.DISCONNECTED else 0.0

    # Addresses: all are tried in turn before the node has failed; a new attempt starts with another one if it can.

    def has_more_addresses(self) -> bool:
        """Whether this attempt has addresses left."""
        return bool(self._addresses)

    def resolved(self, addresses: list[ResolvedAddress]) -> None:
        """Take the addresses of a new attempt; the one that was used last goes to the end."""
        self._addresses = deque(sorted(addresses, key=lambda address: address == self._last_address))

    def next_address(self) -> ResolvedAddress:
        """The address to try now."""
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
        """Requests may be sent; failures are forgotten."""
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
        """The broker asked for a pause; what is in flight gets as much more time (KIP-219)."""
        self._throttled_until = max(self._throttled_until, now + seconds)
        for request in self.sent():
            request.deadline += seconds

    def disconnected(self, error: PyProducerError | None) -> list[SentRequest]:
        """The connection is gone, its transport closed; returns what was in flight, in the order sent."""
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
        """The attempt, or the connection, has failed: the next attempt waits."""
        self._addresses.clear()
        self.last_attempt = now
        self._retry_at = now + exponential(
            settings.reconnect_backoff, settings.reconnect_backoff_max, self._failures, random
        )
        self._failures += 1
        self._failed_connects += was_connecting

    # Deadlines

    def next_deadline(self, now: float, settings: ConnectionSettings) -> float:
        """When something is to be decided next: `expired`, `idle`, or the end of a pause."""
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
        """What took too long, if anything did."""
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


def connection_lost(node: Node, reason: str) -> ConnectionFailed:
    """The error of requests whose connection ended for a reason other than their own."""
    return ConnectionFailed(f"the connection to {node} was closed: {reason}")
