"""Connections to all brokers of a cluster, polled by one thread.

A poll has the order of Kafka's NetworkClient: select, read, write, disconnects, timeouts. Requests are written to the socket at
once; bytes that the kernel does not accept wait for the next poll.
"""

from __future__ import annotations

import selectors
import time
from collections.abc import Callable, Mapping
from functools import partial
from random import Random
from typing import Any, NamedTuple

from spark_producer.errors import ConnectionFailed, KafkaTimeout, PyProducerError, TlsFailed
from spark_producer.metrics import ProducerMetrics, unread_metrics
from spark_producer.network.auth import Logins, make_logins
from spark_producer.network.authentication import LOGIN_RECHECK_S, Authenticator
from spark_producer.network.node import (
    NEVER,
    BrokerIdentities,
    FinalizedFeatures,
    NodeConnection,
    NodeState,
    SentRequest,
    connection_lost,
    report_written,
    with_broker_name,
)
from spark_producer.network.nodes import Nodes
from spark_producer.network.poller import Poller
from spark_producer.network.settings import ConnectionSettings
from spark_producer.network.transport import ResolvedAddress, TcpTransport, Transport, resolve
from spark_producer.protocol import AnyApi, Api, Connection, ConnectionState, RequestBody, Response
from spark_producer.protocol.apis import CLIENT_THROTTLES_SINCE
from spark_producer.security import SecuritySettings

READS_PER_POLL = 16
"""Maximum number of reads from one connection in a poll, so that a peer that sends without end does not block the others."""


class Completion(NamedTuple):
    """The end of a request: `body` is its response message, or `error` the reason why there is none.

    Both are None if no response is expected, or if it is longer than its API allows.
    """

    tag: object
    node: int
    api: AnyApi
    body: Any
    error: PyProducerError | None
    latency: float
    """The seconds from `send` to the completion."""


class Client:
    """All connections of one producer. Only the I/O thread uses it, except for `wakeup` and `load`.

    Bootstrap servers are the nodes -1, -2, … in the order given. They are used until `set_nodes` has the nodes of the cluster.
    A connection is ready after TLS, version negotiation and login, as far as the settings require them. All of that runs on the
    polling thread, including the SASL mechanism: SCRAM takes 1 to 2 ms with the iterations of Kafka's brokers.
    """

    def __init__(
        self,
        settings: ConnectionSettings,
        *,
        clock: Callable[[], float] = time.monotonic,
        random: Random | None = None,
        resolver: Callable[[str, int], list[ResolvedAddress]] = resolve,
        open_transport: Callable[[ResolvedAddress, ConnectionSettings], Transport] | None = None,
        logins: Logins | None = None,
        metrics: ProducerMetrics | None = None,
    ) -> None:
        """`open_transport` and `logins` follow from `settings.security` by default."""
        self._settings = settings
        self._clock = clock
        self._random = random or Random()
        self._resolve = resolver
        self._open_transport = open_transport or transport_factory(settings.security)
        self._metrics = metrics or unread_metrics()
        self._nodes = Nodes(settings, self._random)
        self._completions: list[Completion] = []
        self._disconnected: list[int] = []
        self._unread: set[NodeConnection] = set()
        """The nodes whose transport holds bytes that the selector does not report."""
        self._poller = Poller()
        hosts = [host for host, _ in settings.bootstrap]
        logins = logins or make_logins(settings.security, self.wakeup, hosts)
        self._authenticator = Authenticator(settings, logins, self._nodes, self._metrics)
        self._closed = False
        self._finalized_features = FinalizedFeatures()
        self._identities = BrokerIdentities()

    # Nodes

    def set_nodes(self, nodes: Mapping[int, tuple[str, int]], cluster_id: str | None = None) -> None:
        """Set the nodes of the cluster, and close connections to nodes that have left it or have another address.

        With an empty mapping the bootstrap servers are used again. With `cluster_id` new connections are only to its brokers.
        """
        self._identities.use(cluster_id)
        for node in self._nodes.replace(nodes):
            self._drop(node, connection_lost(node, "the node left the cluster, or has another address now"))

    def ready(self, node: int) -> bool:
        """Return whether a request may be sent now. Begin to connect or re-authenticate if that is due, after any backoff."""
        found = self._nodes.find(node)
        if found is None:
            return False
        now = self._clock()
        if found.can_send(now, self._settings.max_in_flight):
            return True
        if found.can_connect(now):
            if self._authenticator.may_connect(found):
                self._connect(found)
            elif self._authenticator.store_login_error(found):
                self._disconnected.append(node)
        elif found.reauthentication_due(now):
            self._guarded(found, self._reauthenticate)
        return False

    def in_flight(self, node: int) -> int:
        """Return the number of in-flight requests of `node`."""
        found = self._nodes.find(node)
        return found.in_flight if found is not None else 0

    def load(self) -> tuple[int, int]:
        """Return the number of open connections and of in-flight requests. It is thread-safe."""
        return self._nodes.load()

    def least_loaded(self) -> int | None:
        """Return the best node for a request that any node can answer; None if all are in backoff or busy.

        It is the ready node with the fewest in-flight requests, else one that is connecting, else the one whose last attempt is
        the oldest. Ties are broken at random, so that clients spread over the nodes.
        """
        return self._nodes.least_loaded(self._clock())

    def ready_with(self, api: AnyApi) -> int | None:
        """Return the least loaded node that is connected, supports `api`, and may get a request now; None if there is none."""
        return self._nodes.ready_with(api, self._clock())

    def all_nodes_unavailable(self) -> bool:
        """Return whether no node of the cluster is connected, connecting, or out of backoff (KIP-899).

        Then only the bootstrap servers can find the cluster. It is False while they are used.
        """
        return self._nodes.all_nodes_unavailable(self._clock())

    def next_attempt_in(self, node: int) -> float:
        """Return the seconds until `ready` may connect again; 0 if it may now, or if there is a connection."""
        found = self._nodes.find(node)
        if found is None or found.state is not NodeState.DISCONNECTED:
            return 0.0
        return found.next_attempt_in(self._clock()) or self._authenticator.pause(found)

    def last_error(self, node: int) -> PyProducerError | None:
        """Return the error of the last connection to `node`, or attempt; None if it is ready or was never tried."""
        found = self._nodes.find(node)
        return found.error if found is not None else None

    def finalized_level(self, feature: str) -> int:
        """Return the finalized level of a cluster feature, from the newest ApiVersions response; 0 if unknown (KIP-584)."""
        return self._finalized_features.level(feature)

    def fatal_error(self) -> PyProducerError | None:
        """Return the error that ends the client, because the same settings would fail again. It appears after a disconnect."""
        return self._authenticator.fatal_error

    def take_disconnected(self) -> list[int]:
        """Return the nodes whose connection, or attempt to connect, has failed since the last call."""
        taken, self._disconnected = self._disconnected, []
        return taken

    # Requests

    def send(
        self,
        node: int,
        api: Api[RequestBody, Any],
        body: RequestBody,
        *,
        tag: object,
        expect_response: bool = True,
        timeout: float | None = None,
    ) -> None:
        """Send a request to a node that was `ready`. A later `poll` always returns its completion.

        It does not raise: if the connection breaks between `ready` and this call, the completion has an error. The buffers in
        `body` must not change before the completion. `timeout` is in seconds, by default that of the settings. Without
        `expect_response` (acks=0) a request completes once the kernel has accepted all of it.
        """
        found = self._nodes.find(node)
        now = self._clock()
        allowed = self._settings.request_timeout if timeout is None else timeout
        request = SentRequest(tag, api, now, now + allowed)
        if found is None or found.connection is None or found.state is not NodeState.READY:
            error = ConnectionFailed(f"{api.name} was not sent: no connection to {found or f'node {node}'}")
            self._complete(node, request, None, error)
            return
        try:
            found.connection.send(api, body, request, expect_response=expect_response)
        except PyProducerError as send_error:
            self._complete(node, request, None, with_broker_name(found, send_error))
            return
        if not expect_response:
            found.unwritten.append(request)
            found.unanswering = True
        self._guarded(found, self._write)

    def poll(self, timeout: float) -> list[Completion]:
        """Wait at most `timeout` seconds for an event, handle events and timeouts, and return the completions."""
        now = self._clock()
        deadline = min([node.next_deadline(now, self._settings) for node in self._nodes], default=NEVER)
        immediate = self._completions or self._unread
        events = self._poller.wait(0.0 if immediate else min(timeout, deadline - now))
        woken = self._clock()
        for node, mask in events:
            self._guarded(node, partial(self._on_event, mask=mask))
        if self._unread:
            self._read_rest()
        done = self._clock()
        if done >= deadline:  # the next poll handles deadlines that these events have changed
            self._expire(done)
        self._metrics.polled(woken - now, done - woken, done)
        completions, self._completions = self._completions, []
        return completions

    def wakeup(self) -> None:
        """Make the current poll, or the next one, return at once. It is thread-safe."""
        self._poller.wake()

    def close(self) -> None:
        """Close all connections. In-flight requests get no completion, since no poll follows."""
        if self._closed:
            return
        self._closed = True
        self._authenticator.close()
        for node in self._nodes:
            self._unregister(node)
            node.disconnected(None)
        self._poller.close()

    # Connecting

    def _connect(self, node: NodeConnection) -> None:
        """Begin an attempt to connect, which tries the addresses of the node in turn."""
        try:
            node.resolved(self._resolve(node.host, node.port))
        except ConnectionFailed as error:
            node.error = error
        self._connect_to_next_address(node)

    def _connect_to_next_address(self, node: NodeConnection) -> None:
        while node.has_more_addresses():
            try:
                transport = self._open_transport(node.next_address(), self._settings)
            except PyProducerError as error:
                node.error = error
                self._authenticator.address_failed(node)
                continue
            node.connecting(transport, self._clock(), self._settings, self._random)
            self._poller.watch(node, transport.fileno(), transport.wants)
            return
        self._failed(node, True)

    def _established(self, node: NodeConnection) -> None:
        connection: Connection[SentRequest] = Connection(
            self._settings.client_id,
            credentials=self._authenticator.login_for(node),
            expected=self._identities.of(node.id),
        )
        node.established(connection, self._clock(), self._settings)
        self._metrics.connection_created(self._clock())
        connection.start()
        self._write(node)

    def _reauthenticate(self, node: NodeConnection) -> None:
        """Re-authenticate after the in-flight requests, because the session ends soon (KIP-368)."""
        if node.connection is not None and self._authenticator.reauthenticate(node, node.connection):
            node.reauthenticating(self._clock(), self._settings)
            self._write(node)
        else:
            node.deadline = self._clock() + LOGIN_RECHECK_S  # the session is still valid for a while

    # Events

    def _guarded(self, node: NodeConnection, act: Callable[[NodeConnection], None]) -> None:
        """Call `act` on the node; an error closes its connection."""
        try:
            act(node)
        except PyProducerError as error:
            self._fail(node, with_broker_name(node, error))

    def _on_event(self, node: NodeConnection, mask: int) -> None:
        transport = node.transport
        if transport is None:
            return
        if node.state is NodeState.CONNECTING:
            if transport.finish_connect():
                self._established(node)
            else:
                self._poller.watch(node, transport.fileno(), transport.wants)
            return
        if mask & selectors.EVENT_READ:
            self._receive(node)
        if mask & selectors.EVENT_WRITE and node.transport is not None:
            self._written(node, node.transport.flush())

    def _read_rest(self) -> None:
        """Read from the transports that hold bytes that the selector does not report."""
        unread, self._unread = self._unread, set()
        for node in unread:
            self._guarded(node, self._receive)

    def _write(self, node: NodeConnection) -> None:
        if node.transport is not None and node.connection is not None:
            buffers = node.connection.outgoing()
            node.writing(sum(map(len, buffers)))
            self._written(node, node.transport.write(buffers))

    def _written(self, node: NodeConnection, everything: bool) -> None:
        if node.transport is None:
            return
        now = self._clock()
        node.fully_written = everything
        node.used(now)
        report_written(self._metrics, node, node.transport.queued, now)
        events = selectors.EVENT_READ if everything else selectors.EVENT_READ | selectors.EVENT_WRITE
        if events != node.watched:
            self._poller.watch(node, node.transport.fileno(), events)
        if everything and node.unwritten:
            written, node.unwritten = node.unwritten, []
            for request in written:
                self._complete(node.id, request, None, None)

    def _receive(self, node: NodeConnection) -> None:
        connection, transport = node.connection, node.transport
        if connection is None or transport is None:
            return
        for _ in range(READS_PER_POLL):
            space = connection.space()
            count = transport.receive_into(space)
            if count is None:
                break
            if count == 0:
                raise connection_lost(node, "the broker closed it")
            self._metrics.bytes_received(node.id, count, self._clock())
            for response in connection.received(count):
                self._response_received(node, response)
            if connection.fault is not None:
                raise connection.fault
            if count < len(space):
                break
        if transport.buffered:  # the rest of a TLS record, or an error or the end after the bytes read
            self._unread.add(node)
        node.used(self._clock())
        if node.state is not NodeState.READY:
            self._set_up(node, connection)

    def _set_up(self, node: NodeConnection, connection: Connection[SentRequest]) -> None:
        """Continue version negotiation and login."""
        now = self._clock()
        if connection.state is not ConnectionState.READY:
            self._write(node)  # the next request, if there is one
            return
        self._authenticator.opened(node, connection, now)
        if node.state is NodeState.REAUTHENTICATING:
            node.authenticated(now, self._random)
        elif connection.api_versions is not None:
            node.opened(now, self._random)
            self._finalized_features.update(connection.api_versions)
            self._identities.update(node.id, connection.api_versions)
            self._metrics.response_received(node.id, connection.api_versions.throttle_time_ms, now)
            node.throttled(connection.api_versions.throttle_time_ms / 1000, now)

    def _response_received(self, node: NodeConnection, response: Response[SentRequest]) -> None:
        now = self._clock()
        throttle_ms = getattr(response.body, "throttle_time_ms", None)
        self._metrics.response_received(node.id, throttle_ms, now)
        if throttle_ms and throttle_ms > 0 and response.version >= CLIENT_THROTTLES_SINCE.get(response.api.key, 0):
            node.throttled(throttle_ms / 1000, now)
        self._complete(node.id, response.tag, response.body, None)

    # Failures

    def _fail(self, node: NodeConnection, error: PyProducerError) -> None:
        """Close a connection, or an attempt at an address, that has failed."""
        was_connecting = node.state is NodeState.CONNECTING
        # With TLS 1.3 a broker rejects a client certificate only after the handshake.
        at_address = was_connecting or (isinstance(error, TlsFailed) and node.state is NodeState.NEGOTIATING)
        self._drop(node, error := self._authenticator.interpret(node, error, self._clock()))
        if at_address and node.has_more_addresses():
            self._authenticator.address_failed(node)
            self._connect_to_next_address(node)
            return
        self._failed(node, was_connecting)

    def _failed(self, node: NodeConnection, was_connecting: bool) -> None:
        """Record that a connection, or the last address of an attempt, has failed with `node.error`."""
        longest = self._authenticator.failed(node)
        node.failed(was_connecting, self._clock(), self._settings, self._random, longest=longest)
        self._disconnected.append(node.id)

    def _drop(self, node: NodeConnection, error: PyProducerError) -> None:
        """Close the connection, which releases the buffers, and then fail the in-flight requests in the order sent."""
        now = self._clock()
        self._unregister(node)
        for request in node.disconnected(error):
            # Only requests past their deadline have timed out; the others have lost their connection.
            timed_out = not isinstance(error, KafkaTimeout) or now >= request.deadline
            self._complete(node.id, request, None, error if timed_out else connection_lost(node, str(error)))

    def _unregister(self, node: NodeConnection) -> None:
        if node.transport is not None:
            self._poller.forget(node, node.transport.fileno())
            if node.connection is not None:
                self._metrics.connection_closed(self._clock())

    def _expire(self, now: float) -> None:
        for node in self._nodes:
            if node.idle(now, self._settings):
                self._unregister(node)
                node.disconnected(None)
            elif node.in_flight and node.reauthentication_due(now):
                self._guarded(node, self._reauthenticate)
            elif (reason := node.expired(now, self._settings)) is not None:
                self._fail(node, KafkaTimeout(reason))

    def _complete(
        self, node: int, request: SentRequest, body: tuple[Any, ...] | None, error: PyProducerError | None
    ) -> None:
        latency = self._clock() - request.sent_at
        self._completions.append(Completion(request.tag, node, request.api, body, error, latency))


def transport_factory(security: SecuritySettings) -> Callable[[ResolvedAddress, ConnectionSettings], Transport]:
    """Return the function that opens connections. TLS is imported only if it is enabled."""
    if security.tls is None:
        return TcpTransport
    from spark_producer.network.tls_transport import TlsConnector

    return TlsConnector(security.tls, security.allowed_secrets)
