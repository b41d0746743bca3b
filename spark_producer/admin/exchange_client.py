"""Requests of one thread, and the waits for their responses: several at once, to the same or to several brokers."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Self

from spark_producer.admin.exchange import ANY, Exchange, NodeRequest, ResponseOrError
from spark_producer.common.addresses import broker_name, format_address
from spark_producer.common.backoff import Backoff
from spark_producer.common.escape import for_log
from spark_producer.errors import (
    LOGIN_ADVICE,
    AuthenticationFailed,
    BrokersUnreachable,
    ConnectionFailed,
    KafkaTimeout,
    PyProducerError,
    RemoteProtocolError,
    text_and_advice,
)
from spark_producer.network.client import Client, Completion
from spark_producer.network.settings import ConnectionSettings, principal
from spark_producer.protocol import ClusterIdentity, is_misrouted
from spark_producer.protocol.messages import MetadataResponse

MAX_IN_FLIGHT = 5
"""Maximum requests to one broker without a response: brokers remember as many batches of a producer in a partition."""

POLL_INTERVAL = 0.1
"""Maximum seconds between two calls of `on_wait`, and between the first attempts to connect to two nodes for one request."""


class ExchangeClient:
    """The connections of a `BlockingClient`, and the exchanges of requests and responses on them.

    Its docstring describes the parameters.
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
        self._identity = ClusterIdentity(checks=settings.check_cluster)
        self._misrouted = False
        """Whether an address leads to another broker or cluster than expected (KIP-1242)."""
        self.rebootstraps = 0
        """The number of times that all brokers were forgotten: responses from before may be of another cluster."""
        self.requests = 0
        """The number of requests sent."""
        self.rounds = 0
        """The number of times that requests were sent together and waited for."""
        self._timeout_text = f"{timeout:g} s" + (f" ({timeout_option})" if timeout_option else "")
        self._begun: list[Exchange] = []
        """The exchanges whose responses have not all arrived, in the order in which they were begun."""
        self._bootstrap = {-1 - i: address for i, address in enumerate(settings.bootstrap)}
        self._request_timeout = settings.request_timeout
        self._settings = replace(settings, max_in_flight=MAX_IN_FLIGHT, request_timeout=timeout)
        self._client: Client | None = Client(self._settings, clock=clock)
        """The connections; None after an interrupt has closed them."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close every connection."""
        self._lose_all()
        if self._client is not None:
            self._client.close()

    def now_ms(self) -> int:
        """Return the milliseconds since 1970."""
        return int(time.time() * 1000)

    def deadline(self) -> float:
        """Return the deadline of a call that begins now, in seconds of `clock`."""
        return self.clock() + self.timeout

    # Requests

    def request_all(self, requests: Sequence[NodeRequest], deadline: float | None = None) -> list[ResponseOrError]:
        """Send requests at once and return a response for each, in order. Requests to one node arrive in their order.

        An error stands in place of a response: BrokersUnreachable (nothing was sent, because the first attempt to connect to the
        node failed, or no node was reached before the deadline), KafkaTimeout or ConnectionFailed (the broker may have acted or
        not), UnsupportedVersion.

        Raises:
            AuthenticationFailed, TlsFailed, ConfigError: as `request`.
        """
        return self.finish(self.begin(requests, deadline))

    def begin(self, requests: Sequence[NodeRequest], deadline: float | None = None) -> Exchange:
        """Send requests and return without waiting; `finish` returns the responses, which arrive during any wait meanwhile.

        So requests of several exchanges are under way together. Those to one node arrive in the order in which they were begun.
        """
        return self._begin(requests, deadline, fail_fast=True)

    def finish(self, exchange: Exchange, deadline: float | None = None) -> list[ResponseOrError]:
        """Wait for an exchange, and return its responses, as `request_all` does.

        After `deadline` a KafkaTimeout stands in place of each response that has not arrived, but the requests are left alone: a
        request that times out closes its connection, and so fails the other requests on it.
        """
        return self._finish(exchange, exchange.started, deadline)

    def is_sent(self, exchange: Exchange) -> bool:
        """Return whether no request of an exchange waits for its connection to open. Some may wait for others on it."""
        if any(isinstance(each, BrokersUnreachable | ConnectionFailed) for each in exchange.responses):
            return False
        return all(node is not ANY and self._connections().in_flight(node) for node in exchange.unsent)

    def drop(self, exchange: Exchange) -> None:
        """Ignore the responses of an exchange. Requests that are not sent yet are not sent any more."""
        if exchange in self._begun:
            self._begun.remove(exchange)

    def pause(self, seconds: float) -> None:
        """Wait, and meanwhile read what arrives."""
        self._pause(seconds, "", self.clock())

    def _exchange(
        self, requests: Sequence[NodeRequest], deadline: float | None = None, *, began: float | None = None
    ) -> list[ResponseOrError]:
        """Send requests and return their responses. `began` is the start of the call for `on_wait`, by default now.

        A node is given up at the deadline, and not after its first failed attempt to connect as in `request_all`.
        """
        exchange = self._begin(requests, deadline, fail_fast=False)
        return self._finish(exchange, exchange.started if began is None else began)

    def _begin(self, requests: Sequence[NodeRequest], deadline: float | None, *, fail_fast: bool) -> Exchange:
        started = self.clock()
        exchange = Exchange(requests, started, started + self.timeout if deadline is None else deadline, fail_fast)
        if requests:
            with self._closed_if_interrupted():
                client = self._connections()
                if not self._begun:  # otherwise it has just been done
                    self._take(client.poll(0))  # a connection that was closed meanwhile must not cost a request
                self._give_up_lost()
                self._begun.append(exchange)
                self._rebootstrap_if_misrouted()
                self._send_all()
        return exchange

    def _finish(self, exchange: Exchange, began: float, deadline: float | None = None) -> list[ResponseOrError]:
        if not exchange.is_done and not exchange.is_in_round:
            self.rounds += 1
            for each in self._begun:
                each.is_in_round = True
        try:
            with self._closed_if_interrupted():
                while not exchange.is_done:
                    self._advance(exchange)
                    if deadline is not None and self.clock() >= deadline:
                        exchange.lose(KafkaTimeout(f"{self._addresses(exchange.nodes())} did not answer in time"))
                    if not exchange.is_done:
                        self._report_wait(self.clock() - began, self._addresses(exchange.nodes()))
        except PyProducerError as error:
            exchange.lose(error)  # it may be finished once more
            raise
        finally:
            self.drop(exchange)
        return exchange.responses

    def _advance(self, exchange: Exchange) -> None:
        """Send what can be sent, wait for an event, and give up what was not sent until the deadline of `exchange`."""
        now = self.clock()
        self._send_all()
        self._give_up_lost()
        self._rebootstrap_if_misrouted()
        if not exchange.is_done:
            self._take(self._poll(max(0.0, min(exchange.deadline - now, POLL_INTERVAL))))
        if now >= exchange.deadline:  # after a poll: a slow name look-up may have taken all the time
            for node in list(exchange.unsent):
                self._give_up(exchange, node, f" within {self.timeout:g} s")

    def _send_all(self) -> None:
        """Send the requests whose nodes are ready."""
        for exchange in self._begun:
            for node, positions in list(exchange.unsent.items()):
                while positions and (chosen := self._ready(node, exchange)) is not None:
                    tag, position = object(), positions.popleft()
                    exchange.in_flight[tag] = position, chosen
                    request = exchange.requests[position]
                    self.requests += 1
                    allowed = max(0.0, min(exchange.deadline - self.clock(), self._request_timeout))
                    self._connections().send(chosen, request.api, request.body, tag=tag, timeout=allowed)
                if not positions:
                    del exchange.unsent[node]

    def _give_up_lost(self) -> None:
        """Give up the nodes to which the first attempt to connect has failed."""
        client = self._connections()
        lost = set(client.take_disconnected())
        self._misrouted |= any(is_misrouted(client.last_error(node)) for node in lost)
        for exchange in self._begun:
            if exchange.fail_fast:
                for node in [each for each in exchange.unsent if each in lost or self._is_unknown(each)]:
                    self._give_up(exchange, node)

    def _rebootstrap_if_misrouted(self) -> None:
        """Use the bootstrap servers again after a refusal, once no request is for a certain node: those may still be answered."""
        if self._misrouted and all(node is ANY for exchange in self._begun for node in exchange.nodes()):
            self._rebootstrap()

    def _rebootstrap(self) -> None:
        """Forget all brokers, so that the bootstrap servers are used again."""
        self._misrouted = False
        self.rebootstraps += 1
        self._identity.forget()
        self.brokers = {}
        self._connections().set_nodes({})

    def _ready(self, node: int | None, exchange: Exchange) -> int | None:
        """Return `node`, or the best one for a request to any, if it takes a request now; begin to connect if it does not.

        For a request to any node one more connection is begun in each interval: a silent node delays the request no longer, and
        a large cluster is not connected to as a whole.
        """
        client = self._connections()
        if node is not ANY:
            return node if client.ready(node) else None
        if client.all_nodes_unavailable():  # only the bootstrap servers can say where the cluster is (KIP-899)
            self._rebootstrap()
        best = client.least_loaded()
        if best is not None and client.ready(best):
            return best
        others = int((self.clock() - exchange.started) / POLL_INTERVAL)
        return next((each for each in list(self._nodes)[:others] if client.ready(each)), None)

    def _take(self, completions: Iterable[Completion]) -> None:
        """Store the responses that have arrived."""
        for completion in completions:
            exchange = next((each for each in self._begun if completion.tag in each.in_flight), None)
            if exchange is None:  # of an earlier call, which ended without it
                continue
            position, _ = exchange.in_flight.pop(completion.tag)
            error = completion.error
            if isinstance(error, KafkaTimeout):
                limit = self._timeout_text
                if self._request_timeout < self.timeout:
                    limit = f"{self._request_timeout:g} s (request.timeout.ms)"
                address = self._address(completion.node)
                error = KafkaTimeout(f"{address} did not answer {completion.api.name} within {limit}")
            elif isinstance(
                error, RemoteProtocolError
            ):  # once: a peer that is no broker is known before the first request
                error = ConnectionFailed(f"the connection was closed, {error}")
            elif isinstance(completion.body, MetadataResponse):
                error = self._identity.accept(completion.body, self._broker_name(completion.node))
                self._misrouted |= error is not None
            exchange.responses[position] = completion.body if error is None else error
            exchange.last_response = self.clock()

    def _give_up(self, exchange: Exchange, node: int | None, limit: str = "") -> None:
        """Put an error in place of the responses to the requests that wait for a connection to `node`. `limit` names the wait."""
        error = self._login_problem(node, limit) or self._unreached(node, limit)
        for position in exchange.unsent.pop(node):
            exchange.responses[position] = error

    def _login_problem(self, node: int | None, limit: str) -> BrokersUnreachable | None:
        """Return the error about a login that cannot begin, as there is no token or ticket; None if that is not the reason."""
        errors = self._last_errors(node)
        found = next((each for each in errors if isinstance(each, AuthenticationFailed) and not each.connected), None)
        if found is None:
            return None
        return BrokersUnreachable(
            f"no login was possible{limit}: {text_and_advice(found)[0]}. {LOGIN_ADVICE}.", lacks_login=True
        )

    def _unreached(self, node: int | None, limit: str) -> BrokersUnreachable:
        if (min(self._nodes) if node is ANY else node) < 0:
            servers = "check the bootstrap servers (kafka.bootstrap.servers, --bootstrap-servers)"
            advice = f"{servers}, that the brokers run, and firewalls"
        elif (misrouted := next(filter(is_misrouted, self._last_errors(node)), None)) is not None:
            _, advice = text_and_advice(misrouted)
        else:
            advice = "these addresses come from the brokers themselves: check their advertised.listeners"
        return BrokersUnreachable(f"no broker could be reached{limit}: {self._reasons(node)}. What to do: {advice}.")

    def _last_errors(self, node: int | None) -> list[PyProducerError]:
        errors = [self._connections().last_error(each) for each in (self._nodes if node is ANY else [node])]
        return [each for each in errors if each is not None]

    def _pause(self, seconds: float, subject: str, began: float) -> None:
        until = self.clock() + seconds
        with self._closed_if_interrupted():
            while (left := until - self.clock()) > 0:
                if subject:
                    self._report_wait(self.clock() - began, subject)
                self._take(self._poll(min(left, POLL_INTERVAL)))

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
            client.set_nodes(self.brokers, self._identity.cluster_id)
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
            self._lose_all()
            if interrupted is not None:
                with contextlib.suppress(KeyError):  # a socket was on its way out of the selector
                    interrupted.close()
            raise

    def _lose_all(self) -> None:
        for exchange in self._begun:
            exchange.lose(ConnectionFailed("an interrupt has closed the connections"))
        self._begun.clear()

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

    def _broker_name(self, node: int) -> str:
        host, port = self.brokers.get(node) or self._bootstrap.get(node) or (None, 0)
        return broker_name(node, host, port)

    def _reasons(self, node: int | None) -> str:
        return "; ".join(
            f"{self._address(each)}: {self._reason(each)}" for each in (self._nodes if node is ANY else [node])
        )

    def _reason(self, node: int) -> str:
        if self._is_unknown(node):
            return "it is not among the brokers of the cluster"
        error = self._connections().last_error(node)
        return "still connecting" if error is None else text_and_advice(error)[0]
