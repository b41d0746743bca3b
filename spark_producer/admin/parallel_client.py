"""A client that has requests to many brokers in flight at once, and waits for all their answers."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeAlias

from spark_producer.common.escape import for_log
from spark_producer.errors import BrokersUnreachable, ConnectionFailed, KafkaTimeout, PyProducerError
from spark_producer.network.addresses import format_address
from spark_producer.network.client import Client
from spark_producer.network.settings import ConnectionSettings, principal
from spark_producer.protocol import METADATA, AnyApi
from spark_producer.protocol.messages import MetadataRequest, MetadataRequestTopic, MetadataResponse

IN_FLIGHT = 5
"""The most requests to one broker that are not answered: it remembers as many batches of a producer and partition."""

MAX_POLL_S = 0.1
"""Seconds after which a wait looks around, although nothing has come."""

ANY = None
"""Stands for the node of a call that any broker can answer."""


class Call(NamedTuple):
    """One request. `node` is the broker that must answer; None for any."""

    node: int | None
    api: AnyApi
    body: Any


Answered: TypeAlias = Any | PyProducerError
"""The body of a response, or why there is none."""


class ParallelClient:
    """A client for one thread, which waits while a call is under way. Connections stay open between calls.

    `timeout` (seconds) bounds each call as a whole, if the caller names no deadline. `requests` counts what was sent, and
    `rounds` how often requests were sent together and waited for. `on_wait`, if given, is called some ten times a second while
    something is waited for, with the seconds that have passed, and with what it is.
    """

    def __init__(
        self,
        settings: ConnectionSettings,
        *,
        timeout: float = 60.0,
        on_wait: Callable[[float, str], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.clock = clock
        self.timeout = timeout
        self.on_wait = on_wait
        self.user = principal(settings.security)
        self.brokers: dict[int, tuple[str, int]] = {}
        """The brokers of the cluster, once they are known."""
        self.requests = 0
        self.rounds = 0
        self._bootstrap = {-1 - i: address for i, address in enumerate(settings.bootstrap)}
        self._request_timeout = min(timeout, settings.request_timeout)
        self._client = Client(replace(settings, max_in_flight=IN_FLIGHT, request_timeout=timeout), clock=clock)

    def close(self) -> None:
        """Close every connection."""
        self._client.close()

    def now_ms(self) -> int:
        """Return the milliseconds since 1970."""
        return int(time.time() * 1000)

    def deadline(self) -> float:
        """Return the time, by `clock`, at which a call that begins now should be done."""
        return self.clock() + self.timeout

    def ask(self, node: int | None, api: AnyApi, body: Any, deadline: float) -> Any:
        """Send one request and return the body of its response.

        Raises:
            BrokersUnreachable, KafkaTimeout, ConnectionFailed, UnsupportedVersion, SecurityError: as `ask_all` returns them.
        """
        [answer] = self.ask_all([Call(node, api, body)], deadline)
        if isinstance(answer, PyProducerError):
            raise answer
        return answer

    def ask_all(self, calls: Sequence[Call], deadline: float) -> list[Answered]:
        """Send requests and return an answer for each, in order. Requests to one node arrive in their order.

        An answer is the body of the response, or the error in its place: BrokersUnreachable (nothing was sent, since the node
        could not be connected to, or no node before the deadline), KafkaTimeout or ConnectionFailed (it is not known whether the
        broker has acted), UnsupportedVersion.

        Raises:
            SecurityError: the brokers refuse us, or we them, and would again.
        """
        if not calls:
            return []
        self.rounds += 1
        self._client.poll(0)  # a connection that was closed meanwhile must not cost a request
        self._client.take_disconnected()
        answers: list[Answered] = [None] * len(calls)
        waiting: dict[int | None, deque[int]] = {}
        for number, call in enumerate(calls):
            waiting.setdefault(call.node, deque()).append(number)
        tags: dict[object, int] = {}
        began = self.clock()
        while waiting or tags:
            now = self.clock()
            self._tell_wait(now - began, calls, waiting, tags)
            for node in list(waiting):
                self._send(node, waiting[node], calls, tags, deadline)
                if not waiting[node]:
                    del waiting[node]
            lost = set(self._client.take_disconnected())
            for node in [node for node in waiting if now >= deadline or node in lost or self._is_unknown(node)]:
                for number in waiting.pop(node):
                    answers[number] = self._unreachable(node)
            if waiting or tags:
                self._collect(tags, answers, max(0.0, min(deadline - now, MAX_POLL_S)))
        return answers

    def ask_any(self, api: AnyApi, body: Any, deadline: float) -> Any:
        """Ask any broker, and again if the connection breaks or the broker keeps silent: for questions only.

        Raises: as `ask`.
        """
        while True:
            try:
                return self.ask(ANY, api, body, deadline)
            except (ConnectionFailed, KafkaTimeout):
                if self.clock() >= deadline:
                    raise

    def metadata(self, topics: Sequence[str], deadline: float, node: int | None = ANY) -> MetadataResponse:
        """Return what a broker says of the cluster and of `topics`: `node` if it is named, else any one that answers.

        Raises: as `ask`.
        """
        body = MetadataRequest(tuple(MetadataRequestTopic(name=name) for name in topics), False)
        answer: MetadataResponse = (
            self.ask_any(METADATA, body, deadline) if node is ANY else self.ask(node, METADATA, body, deadline)
        )
        if answer.brokers:
            self.brokers = {row.node_id: (row.host, row.port) for row in answer.brokers}
            self._client.set_nodes(self.brokers)
        return answer

    def pause(self, seconds: float) -> None:
        """Wait, and look after the connections meanwhile."""
        until = self.clock() + seconds
        while (left := until - self.clock()) > 0:
            self._client.poll(left)

    def name_of(self, node: int | None) -> str:
        """Return the address of a node, for messages."""
        known: Mapping[int, tuple[str, int]] = {**self._bootstrap, **self.brokers}
        if node is None:
            return ", ".join(self.name_of(each) for each in known)
        if node not in known:
            return f"broker {node}"
        host, port = known[node]
        return format_address(host if node in self._bootstrap else for_log(host), port)

    def _send(
        self, node: int | None, numbers: deque[int], calls: Sequence[Call], tags: dict[object, int], deadline: float
    ) -> None:
        while numbers and (chosen := self._ready(node)) is not None:
            call, tag = calls[numbers[0]], object()
            tags[tag] = numbers.popleft()
            self.requests += 1
            allowed = max(0.0, min(deadline - self.clock(), self._request_timeout))
            self._client.send(chosen, call.api, call.body, tag=tag, timeout=allowed)

    def _tell_wait(
        self,
        seconds: float,
        calls: Sequence[Call],
        waiting: Mapping[int | None, deque[int]],
        tags: Mapping[object, int],
    ) -> None:
        if self.on_wait is not None:
            nodes = dict.fromkeys([*waiting, *(calls[number].node for number in tags.values())])
            self.on_wait(seconds, ", ".join(map(self.name_of, nodes)))

    def _is_unknown(self, node: int | None) -> bool:
        return node is not None and node not in self.brokers and node not in self._bootstrap

    def _ready(self, node: int | None) -> int | None:
        """Return the node, or for None any one, that takes a request now."""
        if node is not None:
            return node if self._client.ready(node) else None
        if self._client.all_nodes_unavailable():  # whoever names a broker must ask for the cluster first
            self.brokers = {}
            self._client.set_nodes({})
        best = self._client.least_loaded()
        return best if best is not None and self._client.ready(best) else None

    def _collect(self, tags: dict[object, int], answers: list[Answered], seconds: float) -> None:
        completions = self._client.poll(seconds)
        fatal_error = self._client.fatal_error()
        if fatal_error is not None:
            raise fatal_error
        for done in completions:
            number = tags.pop(done.tag, None)
            if number is None:
                continue
            error = done.error
            if isinstance(error, KafkaTimeout):
                error = KafkaTimeout(f"{self.name_of(done.node)} did not answer {done.api.name} in time")
            answers[number] = done.body if error is None else error

    def _unreachable(self, node: int | None) -> BrokersUnreachable:
        nodes = [node] if node is not None else sorted(self.brokers or self._bootstrap)
        reasons = "; ".join(
            f"{self.name_of(each)}: {self._client.last_error(each) or 'still connecting'}" for each in nodes
        )
        return BrokersUnreachable(
            f"no broker could be reached in time: {reasons}. What to do: check that the brokers run, and their "
            "advertised.listeners"
        )
