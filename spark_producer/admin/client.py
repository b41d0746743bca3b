"""A client that sends one request at a time and waits for its answer, for the driver's checks, the command line and tools."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from spark_producer.common.backoff import Backoff
from spark_producer.common.cluster import NO_LEADER
from spark_producer.common.error_codes import Code
from spark_producer.common.escape import for_log
from spark_producer.errors import BrokersUnreachable, ConnectionFailed, KafkaTimeout, PyProducerError, TopicNotFound
from spark_producer.network.addresses import format_address
from spark_producer.network.client import Client, Completion
from spark_producer.network.metadata_wait import TopicStatus, TopicWait
from spark_producer.network.settings import ConnectionSettings, principal
from spark_producer.protocol import METADATA, Api, RequestBody, ResponseBody
from spark_producer.protocol.messages import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)

ON_WAIT_INTERVAL = 0.1
"""Seconds between two calls of `on_wait`."""


class Described(NamedTuple):
    """A topic in an answer, in the form that `TopicWait` takes."""

    error_code: int
    leaders: tuple[int, ...]


class BlockingClient:
    """A client for one thread, which does nothing else while a call waits. `timeout` (seconds) bounds each call as a whole;
    `timeout_option` is the name, for messages, of the option that sets it.

        with BlockingClient(ConnectionSettings((("localhost", 9092),)), timeout=10) as client:
            client.metadata(["orders"])

    `on_wait`, if given, is called some ten times a second while a call waits for a connection, an answer, or a topic. It gets the
    seconds since the call began, and the addresses or the topic that the call waits for. An exception from it ends the call.

    Of `settings` the client replaces two: there is always one request in flight, and each may take `timeout` seconds.
    A request that is lost with its connection raises ConnectionFailed; only questions, such as `metadata`, are asked again.
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
        """The seconds that bound each call."""
        self._patience = f"{timeout:g} s" + (f" ({timeout_option})" if timeout_option else "")
        self.retry_backoff = Backoff(settings.retry_backoff, settings.retry_backoff_max)
        """The pauses before a question is asked again, because a partition has no leader yet for example."""
        self._clock = clock
        self._user = principal(settings.security)
        self._on_wait = on_wait
        self._nodes = {-1 - i: address for i, address in enumerate(settings.bootstrap)}
        """The addresses to ask, by node: those of the bootstrap servers, and later those of the cluster's brokers."""
        self._client = Client(replace(settings, max_in_flight=1, request_timeout=timeout), clock=clock)

    def __enter__(self) -> BlockingClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close every connection."""
        self._client.close()

    def request(
        self, api: Api[RequestBody, ResponseBody], body: RequestBody, *, node: int | None = None
    ) -> ResponseBody:
        """Send a request to `node`, or to any broker, and return the body of its response.

        Raises:
            BrokersUnreachable: no broker (or not `node`) could be reached in time; the text names each one and the reason.
            KafkaTimeout: the broker was reached, but did not answer in time.
            ConnectionFailed: the connection broke before the answer came.
            UnsupportedVersion: the broker does not speak this API.
            AuthenticationFailed, TlsFailed, ConfigError: the brokers refuse us, or we them, and would again: raised at once.
        """
        return self._request(api, body, node, self._clock() + self.timeout)

    def request_each(
        self, api: Api[RequestBody, ResponseBody], body: RequestBody, nodes: Iterable[int]
    ) -> dict[int, ResponseBody | PyProducerError]:
        """Send a request to each of `nodes` at once, and return the body of each response, or why there is none.

        All of them together have the time of one call: a broker that is silent delays no other.

        Raises:
            AuthenticationFailed, TlsFailed, ConfigError: as `request`.
        """
        deadline = self._clock() + self.timeout
        answers: dict[int, ResponseBody | PyProducerError] = {}
        left = dict.fromkeys(nodes)
        tags: dict[object, int] = {}
        while left or tags:
            for node in [node for node in left if self._client.ready(node)]:
                tag = object()
                tags[tag] = node
                del left[node]
                self._client.send(node, api, body, tag=tag, timeout=max(0.0, deadline - self._clock()))
            for completion in self._poll(max(0.0, min(deadline - self._clock(), ON_WAIT_INTERVAL))):
                if completion.tag in tags:
                    node = tags.pop(completion.tag)
                    answers[node] = self._outcome(completion, api.name)
            if self._clock() >= deadline:
                answers |= {node: self._unreachable([node]) for node in left}
                left = {}
            self._tell_wait(self._addresses([*left, *tags.values()]), deadline)
        return answers

    def metadata(self, topics: Sequence[str] | None, *, allow_auto_topic_creation: bool = False) -> MetadataResponse:
        """Return what the cluster says of itself and of `topics` (None: all of them). A topic that fails carries its error code.

        Raises: as `request`, except that the question is asked again after a broken connection until the time is up.
        """
        return self._metadata(topics, allow_auto_topic_creation, self._clock() + self.timeout)

    def leader_of(self, topic: str, partition: int) -> int:
        """Return the node that leads a partition; wait for an election that is under way.

        Raises: as `wait_for_topic`, and
            TopicNotFound: there is no such partition.
        """
        return self.wait_for_topic(topic, partition=partition)[partition]

    def leaders_of(self, topic: str, partitions: Iterable[int], *, may_appear: bool = False) -> dict[int, int]:
        """Return the nodes that lead some partitions: one question, if no election is under way; else it waits for that.

        Raises: as `leader_of`.
        """
        deadline = self._clock() + self.timeout
        wanted = list(partitions)
        leaders = self._wait_for_topic(topic, deadline, may_appear=may_appear)
        if min(wanted, default=0) < 0:  # a broker has told of it
            raise _no_partition("topic", topic, min(wanted), len(leaders))
        while lacking := [at for at in wanted if at >= len(leaders) or leaders[at] == NO_LEADER]:
            leaders = self._wait_for_topic(topic, deadline, partition=lacking[0], may_appear=may_appear)
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
    ) -> tuple[int, ...]:
        """Wait until the topic exists and `partition`, if given, has a leader; return each partition's leader (-1: none now).

        With `create` the request may create the topic. With `create`, or with `may_appear` for a topic that was just created,
        the wait for an unknown topic lasts `unknown_timeout` seconds at most, unless one of the brokers knows it. `called` is
        what messages call the topic.

        Raises: as `metadata`, and
            TopicNotFound: there is no such topic, or no such partition. BrokerError: the broker refuses to tell.
            MetadataTimeout: there is still no leader when the time is up.
        """
        deadline = self._clock() + self.timeout
        return self._wait_for_topic(
            topic,
            deadline,
            partition=partition,
            may_appear=may_appear,
            create=create,
            unknown_timeout=unknown_timeout,
            called=called,
        )

    def _wait_for_topic(
        self,
        topic: str,
        deadline: float,
        *,
        partition: int | None = None,
        may_appear: bool = False,
        create: bool = False,
        unknown_timeout: float = float("inf"),
        called: str = "topic",
    ) -> tuple[int, ...]:
        highest, needs_leader = (-1, False) if partition is None else (partition, True)
        wait = TopicWait(
            topic,
            deadline,
            self._patience,
            partition=highest,
            needs_leader=needs_leader,
            may_appear=may_appear or create,
            unknown_timeout=unknown_timeout,
            user=self._user,
            called=called,
        )
        attempt = 0
        while True:
            try:
                answer = _described(self._metadata([topic], create, deadline), topic)
            except KafkaTimeout as error:  # of the last question: what was answered before says more
                raise wait.error() if wait.answered else error from None
            verdict = self._judged(wait, answer)
            if verdict is TopicStatus.READY:
                return answer.leaders
            if verdict is TopicStatus.NO_PARTITION:
                raise _no_partition(called, topic, partition, len(answer.leaders))
            left, pause = deadline - self._clock(), self.retry_backoff.delay(attempt)
            attempt += 1
            if left <= ON_WAIT_INTERVAL:  # no time for another answer
                raise wait.error()
            told = f"{wait.code.name}: {wait.code.advice}" if wait.code else wait.code.name
            self._pause(
                min(pause, left - ON_WAIT_INTERVAL), f"{called} {topic!r} (the brokers answer {told})", deadline
            )

    def _judged(self, wait: TopicWait, answer: Described) -> TopicStatus:
        """Return what an answer means. That a topic is unknown counts only if no broker knows it: one may be behind."""
        try:
            return wait.evaluate(self._clock(), answer)
        except TopicNotFound:
            if not wait.ends_early(self._clock()) or not self._known_to_any(wait.topic):
                raise
            wait.exists()
            return TopicStatus.ASK_AGAIN

    def _known_to_any(self, topic: str) -> bool:
        body = MetadataRequest((MetadataRequestTopic(name=topic),), False)
        answers = self.request_each(METADATA, body, [node for node in self._nodes if node >= 0])
        unknown = Code.UNKNOWN_TOPIC_OR_PARTITION
        return any(
            isinstance(one, MetadataResponse) and _described(one, topic).error_code != unknown
            for one in answers.values()
        )

    def _metadata(
        self, topics: Sequence[str] | None, allow_auto_topic_creation: bool, deadline: float
    ) -> MetadataResponse:
        wanted = None if topics is None else tuple(MetadataRequestTopic(name=name) for name in topics)
        body = MetadataRequest(wanted, allow_auto_topic_creation)
        while True:
            try:
                answer = self._request(METADATA, body, None, deadline)
            except ConnectionFailed:
                if self._clock() >= deadline:
                    raise
                continue
            if answer.brokers:
                self._nodes = {row.node_id: (row.host, row.port) for row in answer.brokers}
                self._client.set_nodes(self._nodes)
            return answer

    def _request(
        self, api: Api[RequestBody, ResponseBody], body: RequestBody, node: int | None, deadline: float
    ) -> ResponseBody:
        if node is not None and node not in self._nodes:
            raise self._unreachable([node])
        chosen = self._wait_until_ready([node] if node is not None else list(self._nodes), deadline)
        tag = object()
        self._client.send(chosen, api, body, tag=tag, timeout=max(0.0, deadline - self._clock()))
        while True:
            left = max(0.0, deadline - self._clock())
            for completion in self._poll(left if self._on_wait is None else min(left, ON_WAIT_INTERVAL)):
                if completion.tag is tag:
                    answer: ResponseBody | PyProducerError = self._outcome(completion, api.name)
                    if isinstance(answer, PyProducerError):
                        raise answer
                    return answer
            self._tell_wait(self._addresses([chosen]), deadline)

    def _outcome(self, completion: Completion, name: str) -> Any:
        """Return the body of a response, or the error in its place."""
        if isinstance(completion.error, KafkaTimeout):  # which names request.timeout.ms
            return KafkaTimeout(f"{self._addresses([completion.node])} did not answer {name} within {self._patience}")
        return completion.body if completion.error is None else completion.error

    def _wait_until_ready(self, nodes: list[int], deadline: float) -> int:
        """Return the first of `nodes` that is ready for a request. All are connected to at once: a silent one delays nothing."""
        while True:
            for node in nodes:
                if self._client.ready(node):
                    return node
            self._tell_wait(self._addresses(nodes), deadline)
            left = deadline - self._clock()
            self._poll(max(0.0, min(left, ON_WAIT_INTERVAL)))  # also when a slow name look-up took all the time
            if left <= 0:
                raise self._unreachable(nodes)

    def _poll(self, seconds: float) -> list[Completion]:
        """Wait for an event up to `seconds`. Every wait ends at once if none can succeed."""
        completions = self._client.poll(seconds)
        fatal_error = self._client.fatal_error()
        if fatal_error is not None:
            raise fatal_error
        return completions

    def _tell_wait(self, subject: str, deadline: float) -> None:
        if self._on_wait is not None:
            self._on_wait(self.timeout - (deadline - self._clock()), subject)

    def _addresses(self, nodes: list[int]) -> str:
        return ", ".join(self._address(node) for node in nodes if node in self._nodes)

    def _address(self, node: int) -> str:
        host, port = self._nodes[node]
        return format_address(host if node < 0 else for_log(host), port)

    def _pause(self, seconds: float, subject: str, deadline: float) -> None:
        """Wait, and tell `on_wait` for what."""
        until = self._clock() + seconds
        while (left := until - self._clock()) > 0:
            self._tell_wait(subject, deadline)
            self._poll(left if self._on_wait is None else min(left, ON_WAIT_INTERVAL))

    def _unreachable(self, nodes: list[int]) -> BrokersUnreachable:
        where = "; ".join(self._why_not(node) for node in nodes)
        advice = (
            "check the bootstrap servers (kafka.bootstrap.servers, --bootstrap-servers), that the brokers run, and firewalls"
            if min(nodes) < 0
            else "these addresses come from the brokers themselves: check their advertised.listeners"
        )
        return BrokersUnreachable(
            f"no broker could be reached within {self.timeout:g} s: {where}. What to do: {advice}."
        )

    def _why_not(self, node: int) -> str:
        if node not in self._nodes:
            return f"broker {node}: it is not among the brokers of the cluster"
        return f"{self._address(node)}: {self._client.last_error(node) or 'still connecting'}"


def _no_partition(called: str, topic: str, partition: int | None, count: int) -> TopicNotFound:
    said = f"{called} {topic!r} has no partition {partition}: it has {count}, and the first is 0"
    return TopicNotFound(said, code=Code.UNKNOWN_TOPIC_OR_PARTITION, topic=topic, partition=partition)


def _described(answer: MetadataResponse, topic: str) -> Described:
    """Return what an answer says of a topic.

    As in the producer (`Cluster.leader_of`, `cluster_updates`), a leader that is not among the brokers of the answer counts as
    none, and a topic whose partitions do not count from 0 as one that is still being made.
    """
    if answer.error_code:
        return Described(answer.error_code, ())
    found = next((row for row in answer.topics if row.name == topic), None)
    if found is None:
        return Described(Code.UNKNOWN_TOPIC_OR_PARTITION, ())
    rows = sorted(found.partitions, key=lambda row: row.partition_index)
    if [row.partition_index for row in rows] != list(range(len(rows))):
        return Described(found.error_code or Code.LEADER_NOT_AVAILABLE, ())
    told = {broker.node_id for broker in answer.brokers}
    leaders = (row.leader_id if row.leader_id in told or not told else NO_LEADER for row in rows)
    return Described(found.error_code, tuple(leaders))
