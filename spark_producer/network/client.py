"""Connections to all brokers of a cluster, polled by one thread.

The order of a poll is that of Kafka's NetworkClient: select, read, write, disconnects, timeouts. Requests go to the kernel at
once; bytes that the kernel does not take wait for the next poll.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import time
from collections.abc import Callable, Mapping
from functools import partial
from random import Random
from typing import Any, NamedTuple

from spark_producer.errors import ConnectionFailed, KafkaTimeout, PyProducerError
from spark_producer.metrics import ProducerMetrics, unread_metrics
from spark_producer.network.node import NEVER, NodeConnection, NodeState, SentRequest, connection_lost, told_by
from spark_producer.network.settings import UNSECURED, ConnectionSettings
from spark_producer.network.traffic import report_written
from spark_producer.network.transport import ResolvedAddress, TcpTransport, Transport, resolve
from spark_producer.protocol import AnyApi, Api, Connection, RequestBody, Response, State
from spark_producer.protocol.apis import CLIENT_THROTTLES_SINCE

LONGEST_WAIT = 3600.0
"""The longest wait in seconds, since a selector does not take an infinite one."""

READS_PER_POLL = 16
"""The most reads from one connection, so that a peer which never stops sending cannot keep the others waiting."""


class Completion(NamedTuple):
    """The end of a request: `body` is the response message of `api`, if one is expected, or `error` says why there is none."""

    tag: object
    node: int
    api: AnyApi
    body: Any
    error: PyProducerError | None
    latency: float
    """The seconds from `send` to the completion."""


class Client:
    """All connections of one producer. Only the I/O thread uses it, except for `wakeup` and `load`.

    Bootstrap servers are the nodes -1, -2, … in the order given. They are used until `set_nodes` gives the cluster's nodes.
    """

    def __init__(
        self,
        settings: ConnectionSettings,
        *,
        clock: Callable[[], float] = time.monotonic,
        random: Random | None = None,
        resolver: Callable[[str, int], list[ResolvedAddress]] = resolve,
        open_transport: Callable[[ResolvedAddress, ConnectionSettings], Transport] = TcpTransport,
        metrics: ProducerMetrics | None = None,
    ) -> None:
        self._settings = settings
        if settings.security != UNSECURED:
            from spark_producer.network.weaknesses import warn_of_weaknesses  # PLAINTEXT users import none of this

            warn_of_weaknesses(settings)
        self._clock = clock
        self._random = random or Random()
        self._resolve = resolver
        self._open_transport = open_transport
        self._metrics = metrics or unread_metrics()
        self._bootstrap = {
            -1 - i: NodeConnection(-1 - i, host, port) for i, (host, port) in enumerate(settings.bootstrap)
        }
        self._cluster: dict[int, NodeConnection] = {}
        self._completions: list[Completion] = []
        self._disconnected: list[int] = []
        self._selector = selectors.DefaultSelector()
        self._wakeup_reader, self._wakeup_writer = socket.socketpair()
        self._wakeup_reader.setblocking(False)
        self._wakeup_writer.setblocking(False)
        self._selector.register(self._wakeup_reader, selectors.EVENT_READ, None)
        self._closed = False

    # Nodes

    def set_nodes(self, nodes: Mapping[int, tuple[str, int]]) -> None:
        """Take the cluster's nodes from Metadata, and close connections to nodes that have vanished or moved.

        After an empty mapping the bootstrap servers are used again.
        """
        for node_id, node in list(self._cluster.items()):
            if nodes.get(node_id) != (node.host, node.port):
                self._drop(node, connection_lost(node, "it left the cluster, or moved"))
                del self._cluster[node_id]
        for node_id, (host, port) in nodes.items():
            if node_id not in self._cluster:
                self._cluster[node_id] = NodeConnection(node_id, host, port)

    def ready(self, node: int) -> bool:
        """Whether a request may be sent now. Begins to connect if there is no connection and backoff allows one."""
        found = self._find(node)
        if found is None:
            return False
        now = self._clock()
        if found.can_connect(now):
            self._connect(found)
        return found.can_send(now, self._settings.max_in_flight)

    def in_flight(self, node: int) -> int:
        """Return the number of requests that were sent to `node` and have not completed."""
        found = self._find(node)
        return found.in_flight if found is not None else 0

    def load(self) -> tuple[int, int]:
        """Return the open connections and the requests in flight of all nodes together. Any thread may call it."""
        nodes = self._nodes()
        return sum(node.connection is not None for node in nodes), sum(node.in_flight for node in nodes)

    def least_loaded(self) -> int | None:
        """Return the best node for a request that any node can answer, or None if all of them are in backoff or busy.

        It is the node with the fewest requests in flight among those that can be sent to, else one that is connecting, else
        the one whose last attempt is the longest ago. Ties are broken at random, so that clients do not all ask the same node.
        """
        now = self._clock()
        nodes = list((self._cluster or self._bootstrap).values())
        self._random.shuffle(nodes)
        sendable = [node for node in nodes if node.can_send(now, self._settings.max_in_flight)]
        if sendable:
            return min(sendable, key=lambda node: node.in_flight).id
        for node in nodes:
            if node.state in (NodeState.CONNECTING, NodeState.NEGOTIATING):
                return node.id
        connectable = [node for node in nodes if node.can_connect(now)]
        return min(connectable, key=lambda node: node.last_attempt).id if connectable else None

    def stranded(self) -> bool:
        """Whether no node of the cluster is connected, connecting, or may be connected to now (KIP-899).

        Then only the bootstrap servers can tell where the cluster is. It is False as long as they are used.
        """
        now = self._clock()
        return bool(self._cluster) and not any(
            node.state is not NodeState.DISCONNECTED or node.can_connect(now) for node in self._cluster.values()
        )

    def next_attempt_in(self, node: int) -> float:
        """Return the seconds until `ready` may begin to connect again; 0 if it may now, or need not."""
        found = self._find(node)
        return found.next_attempt_in(self._clock()) if found is not None else 0.0

    def last_error(self, node: int) -> PyProducerError | None:
        """Return why the last connection to `node`, or attempt at one, ended; None if it is ready or was never tried."""
        found = self._find(node)
        return found.error if found is not None else None

    def take_disconnected(self) -> list[int]:
        """Return the nodes whose connection, or attempt at one, has failed since the last call."""
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

        It never raises: if the connection breaks between `ready` and this call, that is a completion with an error. The
        buffers in `body` must not change before the completion. `timeout` is in seconds, by default that of the settings.
        Without `expect_response` (acks=0) a request completes once the kernel has taken all of it.
        """
        found = self._find(node)
        now = self._clock()
        allowed = self._settings.request_timeout if timeout is None else timeout
        request = SentRequest(tag, api, now, now + allowed)
        if found is None or found.connection is None or found.state is not NodeState.READY:
            error = ConnectionFailed(f"{api.name} was not sent: there is no connection to {found or f'node {node}'}")
            self._complete(node, request, None, error)
            return
        try:
            found.connection.send(api, body, request, expect_response=expect_response)
        except PyProducerError as refused:
            self._complete(node, request, None, told_by(found, refused))
            return
        if not expect_response:
            found.unwritten.append(request)
        self._guarded(found, self._write)

    def poll(self, timeout: float) -> list[Completion]:
        """Wait at most `timeout` seconds for an event, do what is due, and return the completions."""
        now = self._clock()
        deadline = min([node.next_deadline(now, self._settings) for node in self._nodes()], default=NEVER)
        wait = 0.0 if self._completions else min(timeout, deadline - now, LONGEST_WAIT)
        events = self._selector.select(max(0.0, wait))
        woken = self._clock()
        for key, mask in events:
            if key.data is None:
                self._drain_wakeups()
            else:
                self._guarded(key.data, partial(self._on_event, mask=mask))
        done = self._clock()
        if done >= deadline:  # the next poll looks at what the events have changed since then
            self._expire(done)
        self._metrics.polled(woken - now, done - woken, done)
        completions, self._completions = self._completions, []
        return completions

    def wakeup(self) -> None:
        """Make a waiting poll, or else the next one, return at once. Any thread may call it."""
        try:
            self._wakeup_writer.send(b"\0")
        except OSError:
            return  # the pipe is full of wakeups, or closed since no poll will come

    def close(self) -> None:
        """Close every connection. Requests in flight get no completion, since no poll follows."""
        if self._closed:
            return
        self._closed = True
        for node in self._nodes():
            self._unregister(node)
            node.disconnected(None)
        self._selector.close()
        self._wakeup_reader.close()
        self._wakeup_writer.close()

    # Connecting

    def _connect(self, node: NodeConnection) -> None:
        """Begin a new attempt, which tries every address of the node in turn."""
        try:
            node.resolved(self._resolve(node.host, node.port))
        except ConnectionFailed as error:
            node.error = error
        self._connect_to_next_address(node)

    def _connect_to_next_address(self, node: NodeConnection) -> None:
        while node.has_more_addresses():
            try:
                transport = self._open_transport(node.next_address(), self._settings)
            except ConnectionFailed as error:
                node.error = error
                continue
            node.connecting(transport, self._clock(), self._settings, self._random)
            node.watched = selectors.EVENT_WRITE
            self._selector.register(transport.fileno(), node.watched, node)
            return
        node.failed(True, self._clock(), self._settings, self._random)
        self._disconnected.append(node.id)

    def _established(self, node: NodeConnection) -> None:
        connection: Connection[SentRequest] = Connection(self._settings.client_id)
        node.established(connection, self._clock(), self._settings)
        self._metrics.connection_created(self._clock())
        connection.start()
        self._write(node)

    # Events

    def _guarded(self, node: NodeConnection, act: Callable[[NodeConnection], None]) -> None:
        """Let `act` use the node's connection; an error ends this connection and no other."""
        try:
            act(node)
        except PyProducerError as error:
            self._fail(node, told_by(node, error))

    def _on_event(self, node: NodeConnection, mask: int) -> None:
        if node.state is NodeState.CONNECTING:
            if node.transport is not None and node.transport.finish_connect():
                self._established(node)
            return
        if mask & selectors.EVENT_READ:
            self._receive(node)
        if mask & selectors.EVENT_WRITE and node.transport is not None:
            self._written(node, node.transport.flush())

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
            node.watched = events
            self._selector.modify(node.transport.fileno(), events, node)
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
                raise connection_lost(node, "the peer closed it")
            self._metrics.bytes_received(node.id, count, self._clock())
            for response in connection.received(count):
                self._answered(node, response)
            if connection.fault is not None:
                raise connection.fault
            if count < len(space):
                break
        node.used(self._clock())
        if node.state is NodeState.NEGOTIATING:
            self._negotiate(node, connection)

    def _negotiate(self, node: NodeConnection, connection: Connection[SentRequest]) -> None:
        if connection.state is State.READY and connection.api_versions is not None:
            now = self._clock()
            node.negotiated(now)
            self._metrics.response_received(node.id, connection.api_versions.throttle_time_ms, now)
            node.throttled(connection.api_versions.throttle_time_ms / 1000, now)
        else:
            self._write(node)  # it asks again in another version

    def _answered(self, node: NodeConnection, response: Response[SentRequest]) -> None:
        now = self._clock()
        throttle_ms = getattr(response.body, "throttle_time_ms", None)
        self._metrics.response_received(node.id, throttle_ms, now)
        if throttle_ms and throttle_ms > 0 and response.version >= CLIENT_THROTTLES_SINCE.get(response.api.key, 0):
            node.throttled(throttle_ms / 1000, now)
        self._complete(node.id, response.tag, response.body, None)

    # Ends

    def _fail(self, node: NodeConnection, error: PyProducerError) -> None:
        """End a connection, or an attempt at one address, that has failed."""
        was_connecting = node.state is NodeState.CONNECTING
        self._drop(node, error)
        if was_connecting and node.has_more_addresses():
            self._connect_to_next_address(node)
            return
        node.failed(was_connecting, self._clock(), self._settings, self._random)
        self._disconnected.append(node.id)

    def _drop(self, node: NodeConnection, error: PyProducerError) -> None:
        """Close the connection, which frees the buffers, and then fail the requests in flight in the order sent."""
        now = self._clock()
        self._unregister(node)
        for request in node.disconnected(error):
            # Only the late requests have timed out; the others have lost their connection.
            own = not isinstance(error, KafkaTimeout) or now >= request.deadline
            self._complete(node.id, request, None, error if own else connection_lost(node, str(error)))

    def _unregister(self, node: NodeConnection) -> None:
        if node.transport is not None:
            self._selector.unregister(node.transport.fileno())
            if node.connection is not None:
                self._metrics.connection_closed(self._clock())

    def _expire(self, now: float) -> None:
        for node in self._nodes():
            if node.idle(now, self._settings):
                self._unregister(node)
                node.disconnected(None)
                continue
            reason = node.expired(now, self._settings)
            if reason is not None:
                self._fail(node, KafkaTimeout(reason))

    def _complete(
        self, node: int, request: SentRequest, body: tuple[Any, ...] | None, error: PyProducerError | None
    ) -> None:
        latency = self._clock() - request.sent_at
        self._completions.append(Completion(request.tag, node, request.api, body, error, latency))

    def _nodes(self) -> list[NodeConnection]:
        return [*self._bootstrap.values(), *self._cluster.values()]

    def _find(self, node: int) -> NodeConnection | None:
        return self._bootstrap.get(node) or self._cluster.get(node)

    def _drain_wakeups(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while len(self._wakeup_reader.recv(4096)) == 4096:  # fewer bytes mean that none are left
                continue
