"""One broker of a client: its address, its connection, and its states, backoff, throttling and deadlines.

All decisions take the time `now` as an argument.
"""

from __future__ import annotations

import enum
from collections import deque
from dataclasses import dataclass
from random import Random

from spark_producer.common.addresses import broker_name
from spark_producer.common.backoff import exponential
from spark_producer.errors import (
    AuthenticationFailed,
    ConfigError,
    ConnectionFailed,
    ProtocolError,
    PyProducerError,
    RemoteProtocolError,
    TlsFailed,
)
from spark_producer.metrics import ProducerMetrics
from spark_producer.network.settings import ConnectionSettings
from spark_producer.network.transport import ResolvedAddress, TcpTransport, Transport
from spark_producer.protocol import API_VERSIONS, IDENTITY_VERSION, AnyApi, BrokerIdentity, Connection
from spark_producer.protocol.messages import ApiVersionsResponse

NEVER = float("inf")

MIN_REAUTHENTICATION_INTERVAL_S = 1.05
"""Minimum seconds between two logins on a connection: a broker rejects a second one within a second (Kafka's KafkaChannel)."""

REAUTHENTICATION_WINDOW = (0.85, 0.95)
"""Minimum and maximum fraction of a session's lifetime after which it is renewed, as in Kafka's SaslClientAuthenticator."""


class NodeState(enum.Enum):
    """The state of the connection to a node."""

    DISCONNECTED = "disconnected"
    CONNECTING = "connecting"
    NEGOTIATING = "negotiating"
    READY = "ready"
    REAUTHENTICATING = "re-authenticating"


@dataclass(slots=True)
class SentRequest:
    """An in-flight request."""

    tag: object
    api: AnyApi
    sent_at: float
    deadline: float


class NodeConnection:
    """One broker. The polling thread owns it."""

    def __init__(self, node_id: int, host: str, port: int) -> None:
        self.id = node_id
        self.host = host
        self.port = port
        self.state = NodeState.DISCONNECTED
        self.transport: Transport | None = None
        self.connection: Connection[SentRequest] | None = None
        self.error: PyProducerError | None = None
        """The error that ended the last connection, or attempt to connect."""
        self.unwritten: list[SentRequest] = []
        """The requests without a response (acks=0) that are not written completely."""
        self.unanswering = False
        """Whether a request without a response (acks=0) was ever sent to it."""
        self.fully_written = True
        self.watched = 0
        """The events that the selector waits for; 0 if it is not registered."""
        self.unsent = 0
        """Bytes that the transport had not written at the last report."""
        self.request_size = 0
        """Bytes of the request that is being written; 0 if there is none."""
        self.reauthentication_started_at = -NEVER
        """Start of the last re-authentication."""
        self.last_attempt = -NEVER
        self.deadline = NEVER
        """The deadline of the current step: connecting, negotiation, login, re-authentication; while ready, the time of the next
        re-authentication (KIP-368)."""
        self._addresses: deque[ResolvedAddress] = deque()
        self._last_address: ResolvedAddress | None = None
        self._proven = False
        self._failures = 0
        self._failed_connects = 0
        self._retry_at = -NEVER
        self._throttled_until = -NEVER
        self._last_used = -NEVER

    def __str__(self) -> str:
        return broker_name(self.id, self.host, self.port)

    @property
    def proven(self) -> bool:
        """Whether the broker has ever answered a request."""
        return self._proven or (self.connection is not None and self.connection.has_response)

    @property
    def in_flight(self) -> int:
        """The number of in-flight requests. Any thread may read it."""
        connection = self.connection
        waiting = connection.in_flight if connection is not None else 0
        return waiting + len(self.unwritten)

    def sent(self) -> list[SentRequest]:
        """Return the in-flight requests in the order in which they were sent."""
        waiting = self.connection.tags() if self.connection is not None else []
        return sorted(waiting + self.unwritten, key=lambda request: request.sent_at) if self.unwritten else waiting

    def can_send(self, now: float, max_in_flight: int) -> bool:
        """Return whether a request may be sent now."""
        return (
            self.state is NodeState.READY
            and self.fully_written
            and now >= self._throttled_until
            and self.in_flight < max_in_flight
            and now < self.deadline
        )

    def reauthentication_due(self, now: float) -> bool:
        """Return whether the connection must re-authenticate before the next request."""
        return now >= self.deadline and self.state is NodeState.READY

    def can_connect(self, now: float) -> bool:
        """Return whether there is no connection, and the backoff is over."""
        return self.state is NodeState.DISCONNECTED and now >= self._retry_at

    def next_attempt_in(self, now: float) -> float:
        """Return the seconds until the backoff ends."""
        return max(0.0, self._retry_at - now) if self.state is NodeState.DISCONNECTED else 0.0

    # Addresses: an attempt tries all of them before the node has failed, and the next one starts with another address.

    def has_more_addresses(self) -> bool:
        """Return whether this attempt has more addresses."""
        return bool(self._addresses)

    def resolved(self, addresses: list[ResolvedAddress]) -> None:
        """Set the addresses of a new attempt. The one that was used last comes last."""
        self._addresses = deque(sorted(addresses, key=lambda address: address == self._last_address))

    def next_address(self) -> ResolvedAddress:
        """Return the next address to try."""
        self._last_address = self._addresses.popleft()
        return self._last_address

    # Events

    def connecting(self, transport: Transport, now: float, settings: ConnectionSettings, random: Random) -> None:
        """Record that a connection to the next address has begun."""
        self.transport = transport
        self.state = NodeState.CONNECTING
        self.last_attempt = now
        self.deadline = now + exponential(
            settings.connection_setup_timeout, settings.connection_setup_timeout_max, self._failed_connects, random
        )

    def established(self, connection: Connection[SentRequest], now: float, settings: ConnectionSettings) -> None:
        """Record that the transport is connected, so that negotiation and login begin."""
        self.connection = connection
        self.state = NodeState.NEGOTIATING
        self.deadline = now + settings.request_timeout

    def opened(self, now: float, random: Random) -> None:
        """Record that negotiation and login are done: requests may be sent, and earlier failures no longer count."""
        self.error = None
        self._failures = self._failed_connects = 0
        self._addresses.clear()
        self._last_used = now
        self.authenticated(now, random)

    def reauthenticating(self, now: float, settings: ConnectionSettings) -> None:
        """Record that a re-authentication has begun."""
        self.reauthentication_started_at = now
        self.state = NodeState.REAUTHENTICATING
        self.deadline = (
            max(now, self._throttled_until) + settings.request_timeout
        )  # a broker that pauses does not answer

    def authenticated(self, now: float, random: Random) -> None:
        """Record that the login is done, or was not needed, and draw the time of the next one."""
        self.state = NodeState.READY
        lifetime = self.connection.session_lifetime_ms / 1000 if self.connection is not None else 0
        fraction = random.uniform(*REAUTHENTICATION_WINDOW) if lifetime else 0
        self.deadline = now + max(MIN_REAUTHENTICATION_INTERVAL_S, lifetime * fraction) if lifetime else NEVER

    def writing(self, size: int) -> None:
        """Record that a request of `size` bytes goes to the transport."""
        self.request_size += size
        self.unsent += size

    def used(self, now: float) -> None:
        """Record that bytes were sent or received."""
        self._last_used = now

    def throttled(self, seconds: float, now: float) -> None:
        """Record a throttle time. The deadlines of in-flight requests are extended by it (KIP-219)."""
        self._throttled_until = max(self._throttled_until, now + seconds)
        for request in self.sent():
            request.deadline += seconds
        if self.state is NodeState.REAUTHENTICATING:
            self.deadline += seconds

    def disconnected(self, error: PyProducerError | None) -> list[SentRequest]:
        """Close connection and transport, and return the in-flight requests in the order sent."""
        in_flight = self.sent()
        self._proven = self.proven
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
        return in_flight

    def failed(
        self, was_connecting: bool, now: float, settings: ConnectionSettings, random: Random, *, longest: bool = False
    ) -> None:
        """Record that the attempt, or the connection, has failed, and set the backoff; with `longest` the maximum."""
        self._addresses.clear()
        self.last_attempt = now
        pause = exponential(settings.reconnect_backoff, settings.reconnect_backoff_max, self._failures, random)
        self._retry_at = now + (settings.reconnect_backoff_max if longest else pause)
        self._failures += 1
        self._failed_connects += was_connecting

    # Deadlines

    def next_deadline(self, now: float, settings: ConnectionSettings) -> float:
        """Return the time of the next deadline: a timeout, the idle time, a re-authentication, or the end of a throttle time."""
        if self.state is NodeState.DISCONNECTED:
            return NEVER
        due = self.deadline
        sent = self.sent()
        if not sent and self.state is NodeState.READY:
            due = self._last_used + settings.connections_max_idle
        for request in sent:
            if request.deadline < due:
                due = request.deadline
        return min(due, self._throttled_until) if self._throttled_until > now else due

    def expired(self, now: float, settings: ConnectionSettings) -> str | None:
        """Return the message of a timeout, if one has passed."""
        late = next((request for request in self.sent() if now >= request.deadline), None)
        if late is not None:
            return f"{self} did not answer {late.api.name} within {now - late.sent_at:.3g} s (request.timeout.ms)"
        if now < self.deadline or self.state is NodeState.READY:
            return None
        if self.state is NodeState.CONNECTING:
            return self._not_connected()
        step = self.connection.step if self.connection is not None else ""
        limit = f"within {settings.request_timeout:g} s"
        if self.state is NodeState.REAUTHENTICATING:
            return f"{self} did not answer {step} of a re-authentication {limit} (request.timeout.ms)"
        if step != API_VERSIONS.name:
            return f"{self} did not finish the login {limit} (request.timeout.ms): it did not answer {step}"
        return (
            f"{self} accepted the connection but did not answer ApiVersions {limit}: "
            "it may expect TLS (check security.protocol), hang, or not be a Kafka broker"
        )

    def _not_connected(self) -> str:
        limit = "in time (socket.connection.setup.timeout.ms)"
        step = self.transport.step if self.transport is not None else TcpTransport.step
        if step == TcpTransport.step:
            return f"no connection to {self._last_address} {limit}"
        cause = "the peer may not use TLS (check security.protocol), or hang"
        return f"the {step} with {self._last_address} did not complete {limit}: {cause}"

    def idle(self, now: float, settings: ConnectionSettings) -> bool:
        """Return whether the connection has been idle for `connections.max.idle.ms`."""
        quiet = self.state is NodeState.READY and not self.in_flight and self.fully_written
        return quiet and now >= self._last_used + settings.connections_max_idle


def connection_lost(node: NodeConnection, reason: str) -> ConnectionFailed:
    """Return the error of the in-flight requests of a connection that was closed for `reason`."""
    return ConnectionFailed(f"the connection to {node} was closed: {reason}")


def with_broker_name(node: NodeConnection, error: PyProducerError) -> PyProducerError:
    """Return an error with the name of its broker, which the protocol layer does not know.

    The error and its causes lose their tracebacks: their local variables hold the data being sent, including passwords, and some
    tools print them.
    """
    visited: list[BaseException] = []  # a chain of causes may have a cycle: an error that was raised from itself
    links: list[BaseException | None] = [error]
    while links:
        link = links.pop()
        if link is not None and link not in visited:
            visited.append(link.with_traceback(None))
            links += link.__cause__, link.__context__
    if isinstance(error, RemoteProtocolError) and getattr(error, "tls_alert", False):
        return TlsFailed(
            f"{node} expects TLS, which is off. Set kafka.security.protocol to SSL or SASL_SSL",
            fatal=True,
        )
    if isinstance(error, ProtocolError | AuthenticationFailed | ConfigError):
        return type(error)(f"{node}: {error}", **error.__dict__)
    return error


def report_written(metrics: ProducerMetrics, node: NodeConnection, queued: int, now: float) -> None:
    """Report the bytes that the kernel has accepted; `queued` bytes are left. A request counts with its last byte."""
    taken, node.unsent = node.unsent - queued, queued
    if taken > 0:  # encryption adds bytes, so the queue may grow although none was sent
        request_size = 0 if queued else node.request_size
        metrics.bytes_sent(node.id, taken, request_size, now)
        node.request_size -= request_size


class FinalizedFeatures:
    """The finalized features of the cluster, from the ApiVersions response with the highest epoch (KIP-584)."""

    def __init__(self) -> None:
        self._epoch = -1
        self._levels: dict[str, int] = {}

    def update(self, response: ApiVersionsResponse) -> None:
        """Apply an ApiVersions response, the first one on each connection."""
        if response.finalized_features_epoch >= self._epoch:
            self._epoch = response.finalized_features_epoch
            self._levels = {feature.name: feature.max_version_level for feature in response.finalized_features}

    def level(self, feature: str) -> int:
        """Return the level of a feature; 0 if the cluster has not finalized it."""
        return self._levels.get(feature, 0)


class BrokerIdentities:
    """The broker that each connection is meant for, which brokers since Kafka 4.4 compare with themselves (KIP-1242).

    A broker that does not compare refuses the version, which costs a second request. So the version is used once some broker is
    known to compare, and not for those that are known not to: what one broker says changes the connections to no other.
    """

    def __init__(self) -> None:
        self._cluster_id: str | None = None
        self._some_compare = False
        self._older: set[int] = set()
        """the brokers of the cluster that did not compare when they were connected to last"""

    def use(self, cluster_id: str | None) -> None:
        """Set the id of the cluster; None if nothing is to be compared, or the bootstrap servers are used again."""
        self._cluster_id = cluster_id
        if cluster_id is None:  # the addresses of the brokers may change
            self._older.clear()

    def update(self, node: int, response: ApiVersionsResponse) -> None:
        """Apply the ApiVersions response of a node, the first one on each connection."""
        if any(row.api_key == API_VERSIONS.key and row.max_version >= IDENTITY_VERSION for row in response.api_keys):
            self._some_compare = True
            self._older.discard(node)
        elif node >= 0:
            self._older.add(node)

    def of(self, node: int) -> BrokerIdentity | None:
        """Return the broker that must be at the address of `node`; None for a bootstrap server, or if it would not compare."""
        if self._cluster_id is None or not self._some_compare or node < 0 or node in self._older:
            return None
        return BrokerIdentity(self._cluster_id, node)
