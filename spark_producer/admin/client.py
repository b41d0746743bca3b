"""A client that blocks until brokers respond: for the driver's checks, exactly-once commits, the command line and jobs."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from spark_producer.admin.exchange import ANY, Exchange, NodeRequest, ResponseOrError, only_response
from spark_producer.admin.topic_leaders import TopicLeaders, missing_partition, topic_leaders
from spark_producer.common.backoff import Backoff
from spark_producer.common.cluster import NO_LEADER
from spark_producer.common.error_codes import Code
from spark_producer.common.escape import for_log
from spark_producer.errors import BrokersUnreachable, ConnectionFailed, KafkaTimeout, PyProducerError, TopicNotFound
from spark_producer.network.addresses import format_address
from spark_producer.network.client import Client, Completion
from spark_producer.network.metadata_wait import TopicStatus, TopicWait
from spark_producer.network.settings import ConnectionSettings, principal
from spark_producer.protocol import METADATA, AnyApi, Api, RequestBody, ResponseBody
from spark_producer.protocol.messages import MetadataRequest, MetadataRequestTopic, MetadataResponse

MAX_IN_FLIGHT = 5
"""Maximum requests to one broker without a response: brokers remember as many batches of a producer in a partition."""

POLL_INTERVAL = 0.1
"""Maximum seconds between two calls of `on_wait`, and between the first attempts to connect to two nodes for one request."""


class BlockingClient:
    """A client for one thread, which blocks while a call waits. Connections stay open between calls.

        with BlockingClient(ConnectionSettings((("localhost", 9092),)), timeout=10) as client:
            client.metadata(["orders"])

    `timeout` (seconds) bounds each call without a deadline of its own, and `timeout_option` is the name, for messages, of the
    option that sets it. No request takes longer than the `request_timeout` of `settings`. Deadlines are in seconds of `clock`.

    `on_wait`, if given, is called some ten times a second while a call waits for a connection, a response, or a topic. It gets
    the seconds since the call began, and the addresses or the topic that the call waits for. An exception from it ends the call.

    A request that is lost with its connection raises ConnectionFailed; only `metadata`, `request_any` and the calls that wait for
    topics are repeated. Ctrl-C, or any other exception in the middle of a call, closes all connections; the next call opens new
    ones.
    """

    def __init__(
        self,
        settings: ConnectionSettings,
        *,
        timeout: float = 60.0,
        timeout_option: str = "",
        clock: Callable[[], float] = time.monotonic,
        on_wait: Callable[[float, str], None] | None = None,
    ) -> None:
        self.timeout = timeout
        self.clock = clock
        self.on_wait = on_wait
        self.user = principal(settings.security)
        """The name by which the brokers know this client, for messages."""
        self.retry_backoff = Backoff(settings.retry_backoff, settings.retry_backoff_max)
        """The pauses before a request is repeated, because a partition has no leader yet for example."""
        self.brokers: dict[int, tuple[str, int]] = {}
        """The addresses of the cluster's brokers by node, from the last Metadata response; empty before the first."""
        self.requests = 0
        """The number of requests sent."""
        self.rounds = 0
        """The number of times that requests were sent together and waited for."""
        self._timeout_text = f"{timeout:g} s" + (f" ({timeout_option})" if timeout_option else "")
        self._bootstrap = {-1 - i: address for i, address in enumerate(settings.bootstrap)}
        self._request_timeout = settings.request_timeout
        self._settings = replace(settings, max_in_flight=MAX_IN_FLIGHT, request_timeout=timeout)
        self._client: Client | None = Client(self._settings, clock=clock)
        """The connections; None after an interrupt has closed them."""

    def __enter__(self) -> BlockingClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close every connection."""
        if self._client is not None:
            self._client.close()

    def now_ms(self) -> int:
        """Return the milliseconds since 1970."""
        return int(time.time() * 1000)

    def deadline(self) -> float:
        """Return the deadline of a call that begins now, in seconds of `clock`."""
        return self.clock() + self.timeout

    # Requests

    def request(
        self,
        api: Api[RequestBody, ResponseBody],
        body: RequestBody,
        *,
        node: int | None = ANY,
        deadline: float | None = None,
    ) -> ResponseBody:
        """Send a request to `node`, or to any broker, and return the body of its response.

        Raises:
            BrokersUnreachable: no broker (or not `node`) could be reached in time; the text names each one and the reason.
            KafkaTimeout: the broker was reached, but did not respond in time.
            ConnectionFailed: the connection broke before the response came.
            UnsupportedVersion: the broker does not support this API.
            AuthenticationFailed, TlsFailed, ConfigError: the login or the handshake failed, and would fail again: raised at once.
        """
        response: ResponseBody = only_response(self._exchange([NodeRequest(node, api, body)], deadline))
        return response

    def request_all(self, requests: Sequence[NodeRequest], deadline: float | None = None) -> list[ResponseOrError]:
        """Send requests at once and return a response for each, in order. Requests to one node arrive in their order.

        An error stands in place of a response: BrokersUnreachable (nothing was sent, because the first attempt to connect to the
        node failed, or no node was reached before the deadline), KafkaTimeout or ConnectionFailed (the broker may have acted or
        not), UnsupportedVersion.

        Raises:
            AuthenticationFailed, TlsFailed, ConfigError: as `request`.
        """
        return self._exchange(requests, deadline, fail_fast=True)

    def request_each(
        self, api: Api[RequestBody, ResponseBody], body: RequestBody, nodes: Iterable[int]
    ) -> dict[int, ResponseBody | PyProducerError]:
        """Send a request to each of `nodes` at once, and return the body of each response, or the error in its place.

        All of them together have the time of one call: a silent broker delays no other.

        Raises:
            AuthenticationFailed, TlsFailed, ConfigError: as `request`.
        """
        distinct = list(dict.fromkeys(nodes))
        return dict(zip(distinct, self._exchange([NodeRequest(node, api, body) for node in distinct]), strict=True))

    def request_any(self, api: AnyApi, body: Any, deadline: float | None = None) -> Any:
        """Send a request to any broker, and again after a broken connection or a timeout; so it must not change anything.

        Raises: as `request`.
        """
        return self._request_any(api, body, self.deadline() if deadline is None else deadline)

    def metadata(
        self,
        topics: Sequence[str] | None,
        deadline: float | None = None,
        node: int | None = ANY,
        *,
        allow_auto_topic_creation: bool = False,
        with_rights: bool = False,
    ) -> MetadataResponse:
        """Return the cluster's brokers, and `topics` (None: all of them), as `node` or any broker knows them.

        A topic that fails carries its error code; `with_rights` each has those of the user (`topic_authorized_operations`).
        Without a `node` the request is repeated, as by `request_any`.

        Raises: as `request`.
        """
        wanted = None if topics is None else tuple(MetadataRequestTopic(name=name) for name in topics)
        body = MetadataRequest(wanted, allow_auto_topic_creation, include_topic_authorized_operations=with_rights)
        if node is not ANY:
            return self._learned(only_response(self.request_all([NodeRequest(node, METADATA, body)], deadline)))
        return self._learned(self.request_any(METADATA, body, deadline))

    def pause(self, seconds: float) -> None:
        """Wait, and meanwhile read what arrives."""
        self._pause(seconds, "", self.clock())

    # Topics

    def leaders_of(self, topic: str, partitions: Iterable[int], *, may_appear: bool = False) -> dict[int, int]:
        """Return the nodes that lead some partitions: one request, or more while an election is under way.

        Raises: as `wait_for_topic`.
        """
        deadline = self.deadline()
        wanted = list(partitions)
        leaders = self.wait_for_topic(topic, deadline=deadline, may_appear=may_appear)
        if min(wanted, default=0) < 0:  # such numbers come from brokers
            raise missing_partition("topic", topic, min(wanted), len(leaders))
        while lacking := [each for each in wanted if each >= len(leaders) or leaders[each] == NO_LEADER]:
            leaders = self.wait_for_topic(topic, deadline=deadline, partition=lacking[0], may_appear=may_appear)
        return {partition: leaders[partition] for partition in wanted}

    def wait_for_topic(
        self,
        topic: str,
        *,
        partition: int | None = None,
        may_appear: bool = False,
        create: bool = False,
        unknown_timeout: float = float("inf"),
        called: str = "topic",
        deadline: float | None = None,
    ) -> tuple[int, ...]:
        """Wait until the topic exists and `partition`, if given, has a leader; return each partition's leader (-1: none now).

        With `create` the broker may create the topic. With `create`, or with `may_appear` for a topic that was just created, an
        unknown topic is waited for, at most `unknown_timeout` seconds unless one of the brokers knows it. `called` is what
        messages call the topic.

        Raises: as `metadata`, and
            TopicNotFound: there is no such topic, or no such partition. BrokerError: the broker refuses.
            MetadataTimeout: there is still no leader when the time is up.
        """
        deadline = self.deadline() if deadline is None else deadline
        wait = TopicWait(
            topic,
            deadline,
            self._timeout_text,
            partition=-1 if partition is None else partition,
            needs_leader=partition is not None,
            may_appear=may_appear or create,
            unknown_timeout=unknown_timeout,
            user=self.user,
            called=called,
        )
        body, began = MetadataRequest((MetadataRequestTopic(name=topic),), create), deadline - self.timeout
        attempt = 0
        while True:
            try:
                found = topic_leaders(self._learned(self._request_any(METADATA, body, deadline, began)), topic)
            except KafkaTimeout as error:  # an earlier response explains more than a timeout
                raise wait.error() if wait.answered else error from None
            status = self._judged(wait, found)
            if status is TopicStatus.READY:
                return found.leaders
            if status is TopicStatus.NO_PARTITION:
                raise missing_partition(called, topic, partition, len(found.leaders))
            left, pause = deadline - self.clock(), self.retry_backoff.delay(attempt)
            attempt += 1
            if left <= POLL_INTERVAL:  # no time for another response
                raise wait.error()
            reason = f"{wait.code.name}: {wait.code.advice}" if wait.code else wait.code.name
            self._pause(min(pause, left - POLL_INTERVAL), f"{called} {topic!r} (the brokers answer {reason})", began)

    def _judged(self, wait: TopicWait, found: TopicLeaders) -> TopicStatus:
        """Return the topic's status after a response. It is unknown only if no broker knows it, since metadata spreads slowly."""
        try:
            return wait.evaluate(self.clock(), found)
        except TopicNotFound:
            if not wait.ends_early(self.clock()) or not self._known_to_any(wait.topic):
                raise
            wait.exists()
            return TopicStatus.PENDING

    def _known_to_any(self, topic: str) -> bool:
        body = MetadataRequest((MetadataRequestTopic(name=topic),), False)
        unknown = Code.UNKNOWN_TOPIC_OR_PARTITION
        return any(
            isinstance(one, MetadataResponse) and topic_leaders(one, topic).error_code != unknown
            for one in self.request_each(METADATA, body, self.brokers).values()
        )

    # Exchanges

    def _request_any(self, api: AnyApi, body: Any, deadline: float, began: float | None = None) -> Any:
        while True:
            try:
                return only_response(self._exchange([NodeRequest(ANY, api, body)], deadline, began=began))
            except (ConnectionFailed, KafkaTimeout):
                if self.clock() >= deadline:
                    raise

    def _learned(self, response: MetadataResponse) -> MetadataResponse:
        """Return a response, after the connections have taken over its brokers."""
        if response.brokers:
            with self._closed_if_interrupted():
                self.brokers = {row.node_id: (row.host, row.port) for row in response.brokers}
                self._connections().set_nodes(self.brokers)
        return response

    def _exchange(
        self,
        requests: Sequence[NodeRequest],
        deadline: float | None = None,
        *,
        began: float | None = None,
        fail_fast: bool = False,
    ) -> list[ResponseOrError]:
        """Send requests and return their responses. `began` is the start of the call for `on_wait`, by default now.

        With `fail_fast` a node is given up after its first failed attempt to connect, and not only at the deadline.
        """
        if not requests:
            return []
        self.rounds += 1
        exchange = Exchange(requests, self.clock())
        deadline = exchange.started + self.timeout if deadline is None else deadline
        began = exchange.started if began is None else began
        with self._closed_if_interrupted():
            client = self._connections()
            client.poll(0)  # a connection that was closed meanwhile must not cost a request
            client.take_disconnected()
            while True:
                now = self.clock()
                self._send(exchange, deadline)
                lost = set(client.take_disconnected()) if fail_fast else ()
                for node in [each for each in exchange.unsent if each in lost or self._is_unknown(each)]:
                    self._give_up(exchange, node, f"no broker could be reached: {self._reasons(node)}")
                if not exchange.is_done:
                    self._receive(exchange, max(0.0, min(deadline - now, POLL_INTERVAL)))
                if now >= deadline:  # after a poll: a slow name look-up may have taken all the time
                    for node in list(exchange.unsent):
                        text = f"no broker could be reached within {self.timeout:g} s: {self._reasons(node)}"
                        self._give_up(exchange, node, text)
                if exchange.is_done:
                    return exchange.responses
                self._report_wait(self.clock() - began, self._addresses(exchange.nodes()))

    def _send(self, exchange: Exchange, deadline: float) -> None:
        """Send the requests whose nodes are ready."""
        for node, positions in list(exchange.unsent.items()):
            while positions and (chosen := self._ready(node, exchange)) is not None:
                tag, position = object(), positions.popleft()
                exchange.in_flight[tag] = position, chosen
                request = exchange.requests[position]
                self.requests += 1
                allowed = max(0.0, min(deadline - self.clock(), self._request_timeout))
                self._connections().send(chosen, request.api, request.body, tag=tag, timeout=allowed)
            if not positions:
                del exchange.unsent[node]

    def _ready(self, node: int | None, exchange: Exchange) -> int | None:
        """Return `node`, or the best one for a request to any, if it takes a request now; begin to connect if it does not.

        For a request to any node one more connection is begun in each interval: a silent node delays the request no longer, and
        a large cluster is not connected to as a whole.
        """
        client = self._connections()
        if node is not ANY:
            return node if client.ready(node) else None
        if client.all_nodes_unavailable():  # only the bootstrap servers can say where the cluster is (KIP-899)
            self.brokers = {}
            client.set_nodes({})
        best = client.least_loaded()
        if best is not None and client.ready(best):
            return best
        others = int((self.clock() - exchange.started) / POLL_INTERVAL)
        return next((each for each in list(self._nodes)[:others] if client.ready(each)), None)

    def _receive(self, exchange: Exchange, seconds: float) -> None:
        """Wait for an event up to `seconds`, and note the responses. Raises an error that would come again at once."""
        for completion in self._poll(seconds):
            position, _ = exchange.in_flight.pop(completion.tag, (None, None))
            if position is None:  # of an earlier call, which ended without it
                continue
            error = completion.error
            if isinstance(error, KafkaTimeout):
                limit = self._timeout_text
                if self._request_timeout < self.timeout:
                    limit = f"{self._request_timeout:g} s (request.timeout.ms)"
                address = self._address(completion.node)
                error = KafkaTimeout(f"{address} did not answer {completion.api.name} within {limit}")
            exchange.responses[position] = completion.body if error is None else error

    def _give_up(self, exchange: Exchange, node: int | None, text: str) -> None:
        """Put an error in place of the responses to the requests that wait for a connection to `node`."""
        advice = (
            "check the bootstrap servers (kafka.bootstrap.servers, --bootstrap-servers), that the brokers run, and firewalls"
            if (min(self._nodes) if node is ANY else node) < 0
            else "these addresses come from the brokers themselves: check their advertised.listeners"
        )
        for position in exchange.unsent.pop(node):
            exchange.responses[position] = BrokersUnreachable(f"{text}. What to do: {advice}.")

    def _pause(self, seconds: float, subject: str, began: float) -> None:
        until = self.clock() + seconds
        with self._closed_if_interrupted():
            while (left := until - self.clock()) > 0:
                if subject:
                    self._report_wait(self.clock() - began, subject)
                self._poll(min(left, POLL_INTERVAL))

    def _poll(self, seconds: float) -> list[Completion]:
        client = self._connections()
        completions = client.poll(seconds)
        fatal_error = client.fatal_error()
        if fatal_error is not None:
            raise fatal_error
        return completions

    def _report_wait(self, seconds: float, subject: str) -> None:
        if self.on_wait is not None:
            self.on_wait(seconds, subject)

    # Connections

    def _connections(self) -> Client:
        if self._client is None:
            client = Client(self._settings, clock=self.clock)
            client.set_nodes(self.brokers)
            self._client = client
        return self._client

    @contextlib.contextmanager
    def _closed_if_interrupted(self) -> Iterator[None]:
        """Close all connections if Ctrl-C, or an error of `on_wait`, interrupts the body.

        It may come between any two steps: a request may be half written, and a response half read, and no later response would
        fit its request.
        """
        try:
            yield
        except PyProducerError:
            raise
        except BaseException:
            interrupted, self._client = self._client, None
            if interrupted is not None:
                with contextlib.suppress(KeyError):  # a socket was on its way out of the selector
                    interrupted.close()
            raise

    # Messages

    @property
    def _nodes(self) -> dict[int, tuple[str, int]]:
        """The nodes that any request can go to."""
        return self.brokers or self._bootstrap

    def _is_unknown(self, node: int | None) -> bool:
        return node is not ANY and node not in self.brokers and node not in self._bootstrap

    def _addresses(self, nodes: Iterable[int | None]) -> str:
        named = dict.fromkeys(each for node in nodes for each in (self._nodes if node is ANY else [node]))
        return ", ".join(map(self._address, named))

    def _address(self, node: int) -> str:
        if self._is_unknown(node):
            return f"broker {node}"
        host, port = self.brokers[node] if node in self.brokers else self._bootstrap[node]
        return format_address(host if node in self._bootstrap else for_log(host), port)

    def _reasons(self, node: int | None) -> str:
        return "; ".join(
            f"{self._address(each)}: {self._reason(each)}" for each in (self._nodes if node is ANY else [node])
        )

    def _reason(self, node: int) -> str:
        if self._is_unknown(node):
            return "it is not among the brokers of the cluster"
        return str(self._connections().last_error(node) or "still connecting")
