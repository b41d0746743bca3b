"""The driver's requests to brokers: to coordinators of transactional ids and leaders of partitions, with retries."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from spark_producer.admin import BlockingClient
from spark_producer.admin.exchange import Exchange, NodeRequest
from spark_producer.common.backoff import Backoff
from spark_producer.common.cluster import TopicPartition
from spark_producer.common.error_codes import Action, Code
from spark_producer.common.escape import for_log
from spark_producer.errors import (
    BrokerError,
    BrokersUnreachable,
    ConnectionFailed,
    KafkaTimeout,
    PyProducerError,
    TopicNotFound,
    broker_error,
)
from spark_producer.exactly_once.cluster.early_requests import EarlyRequest, EarlyRequests, LogVersion
from spark_producer.exactly_once.cluster.required_acls import Right, missing_right
from spark_producer.protocol import FIND_COORDINATOR, AnyApi
from spark_producer.protocol.messages import (
    AddPartitionsToTxnResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    FoundCoordinator,
)

K = TypeVar("K")

MOVED = frozenset({Code.COORDINATOR_LOAD_IN_PROGRESS, Code.COORDINATOR_NOT_AVAILABLE, Code.NOT_COORDINATOR})

TRANSACTION_KEY_TYPE = 1
"""The key type of a transactional id in FindCoordinator."""

MAX_IDS_PER_REQUEST = 1000
"""Maximum number of ids in one request."""

FIRST_PAUSE_S, MAX_PAUSE_S = 0.002, 0.25
"""Seconds between two attempts, which double: markers take milliseconds, the election of a leader takes seconds."""

GONE_AFTER_S = 5.0
"""Seconds for which a topic must be unknown to count as deleted: a broker that has just started knows no topics."""


class RetryUntil:
    """Yields 0, 1, … with growing pauses in between, until the deadline.

    `waiting_for`, or the text that it returns, is for the error. A function may send requests, so it is called only then.

    Raises (on the next iteration):
        KafkaTimeout: the deadline has passed.
    """

    def __init__(
        self, client: BlockingClient, sink: str, deadline: float, waiting_for: str | Callable[[], str]
    ) -> None:
        self.waiting_for = waiting_for
        self._client = client
        self._sink = sink
        self._deadline = deadline

    def __iter__(self) -> Iterator[int]:
        number, backoff, began = 0, Backoff(FIRST_PAUSE_S, MAX_PAUSE_S), self._client.clock()
        while True:
            yield number
            if self._client.on_wait is not None:
                subject = self.waiting_for if isinstance(self.waiting_for, str) else "the end of transactions"
                self._client.on_wait(self._client.clock() - began, subject)
            pause = backoff.delay(number)
            if self._client.clock() + pause >= self._deadline:
                what = self.waiting_for if isinstance(self.waiting_for, str) else self.waiting_for()
                raise KafkaTimeout(f"exactlyOnceId {self._sink!r}: timed out waiting for {what}")
            self._client.pause(pause)
            number += 1


class TransactionAdmin:
    """The known coordinators and leaders of a cluster, and requests to them. `sink` and `client.user` are for messages."""

    def __init__(self, client: BlockingClient, sink: str) -> None:
        self.client = client
        self.sink = sink
        self.early = EarlyRequests(client, self._version_of)
        self.timeouts_ms: set[int] = set()
        """The timeouts of tasks' transactions in the last vote."""
        self._coordinators: dict[str, int] = {}
        self._leaders: dict[TopicPartition, int] = {}
        self._epochs: dict[TopicPartition, int] = {}
        """The newest leader epoch in any response: a broker with an older one is cut off."""
        self._topic_ids: dict[str, bytes] = {}
        self._known_partitions: dict[str, Collection[int]] = {}
        """The partitions of each topic, by the last response with it."""
        self._absent: dict[TopicPartition, tuple[float, float]] = {}
        """Unknown partitions: the times of the first and the last of the responses in a row that did not have them."""

    def nodes(self, deadline: float, *, refresh: bool = False) -> list[int]:
        """Return the brokers of the cluster."""
        if refresh or not self.client.brokers:
            self.early.metadata([], deadline)
        return sorted(self.client.brokers)

    def attempts(self, deadline: float, waiting_for: str | Callable[[], str]) -> RetryUntil:
        """Return attempts that end with `deadline`."""
        return RetryUntil(self.client, self.sink, deadline, waiting_for)

    # Coordinators

    def coordinators(self, ids: Collection[str], deadline: float) -> dict[str, int]:
        """Return the broker that coordinates each transactional id.

        Raises:
            BrokerError: the right to know it is missing. KafkaTimeout, SecurityError: no broker answers in time.
        """
        attempts = self.attempts(deadline, "the coordinator of its transactions")
        for _ in attempts:
            missing = [each for each in ids if each not in self._coordinators]
            if not missing:
                return {each: self._coordinators[each] for each in ids}
            for row in self._find(missing, deadline):
                if row.error_code == Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
                    raise missing_right(Right.TRANSACTIONS, self.sink, self.client.user)
                if row.error_code in MOVED:
                    attempts.waiting_for = f"the coordinator of {row.key!r} ({Code(row.error_code).name})"
                elif row.error_code:
                    raise broker_error(row.error_code, f"the coordinator of {row.key!r}", row.error_message)
                else:
                    self._coordinators[row.key] = row.node_id
            if not set(self._coordinators.values()) <= self.client.brokers.keys():
                self.client.metadata([], deadline)
        raise AssertionError

    def known_coordinators(self, ids: Iterable[str]) -> dict[str, int]:
        """Return the coordinators that are known, without a request."""
        return {each: self._coordinators[each] for each in ids if each in self._coordinators}

    def forget_coordinators(self, ids: Iterable[str]) -> None:
        """Look these coordinators up again the next time."""
        for each in ids:
            self._coordinators.pop(each, None)

    def _find(self, ids: Sequence[str], deadline: float) -> Iterator[FoundCoordinator]:
        for at in range(0, len(ids), MAX_IDS_PER_REQUEST):
            some = tuple(ids[at : at + MAX_IDS_PER_REQUEST])
            while some:
                body = FindCoordinatorRequest(some[0], TRANSACTION_KEY_TYPE, some)
                response: FindCoordinatorResponse = self.request_any(FIND_COORDINATOR, body, deadline)
                if response.coordinators:
                    yield from response.coordinators
                    break
                yield FoundCoordinator(  # before version 4 it is one id at a time
                    some[0], response.node_id, response.host, response.port, response.error_code, response.error_message
                )
                some = some[1:]

    def request_any(self, api: AnyApi, body: Any, deadline: float) -> Any:
        """Return the response of any broker; only for requests that change nothing."""
        return self.client.request_any(api, body, deadline)

    def request_coordinators(
        self,
        api: AnyApi,
        requests: Mapping[str, Any],
        deadline: float,
        *,
        resend: bool,
        postponed: set[str] | None = None,
        begun: Exchange | None = None,
        ask_next: Callable[[], None] = lambda: None,
    ) -> dict[str, Any]:
        """Send a request for each transactional id to its coordinator, and return the responses by id.

        A request is sent again while its coordinator moves or loads, or completes another transaction (51); with `resend` also
        after no response. A response is a body; or an error, if it is unknown whether the coordinator has acted, or if it could
        not be reached; or the last response before the deadline. The ids of requests that a coordinator asked to repeat later are
        added to `postponed`: it may have executed them nevertheless. `begun` are the first requests, if they are sent already.

        `ask_next` is called when the first requests are sent: what it sends early follows them on their connections, and does not
        count if one of them is sent again.
        """
        responses: dict[str, Any] = {}
        left = list(requests)
        try:
            for number in self.attempts(deadline, "its coordinator"):
                if begun is None:
                    nodes = self.coordinators(left, deadline)
                    calls = [NodeRequest(nodes[each], api, requests[each]) for each in left]
                    begun = self.client.begin(calls, deadline)
                if not number:
                    ask_next()
                found, begun = self.client.finish(begun), None
                responses.update(zip(left, found, strict=True))
                left = [each for each in left if self._must_retry(each, responses[each], resend)]
                if postponed is not None:
                    postponed.update(each for each in left if not isinstance(responses[each], PyProducerError))
                if not left:
                    break
                self.early.drop()
        except KafkaTimeout as error:
            for each in left:
                responses.setdefault(each, error)
        return responses

    def _must_retry(self, transactional_id: str, response: Any, resend: bool) -> bool:
        if isinstance(response, PyProducerError):
            self._coordinators.pop(transactional_id, None)
            return resend or isinstance(response, BrokersUnreachable)
        code = worst_error(response)
        if code in MOVED:
            self._coordinators.pop(transactional_id, None)
        return code in MOVED or code == Code.CONCURRENT_TRANSACTIONS

    # Leaders

    def leaders(self, partitions: Iterable[TopicPartition], deadline: float) -> dict[TopicPartition, int]:
        """Return the leader of each partition; those that do not exist are left out.

        Brokers do not know a partition if its topic was deleted, or created again with fewer. One response proves nothing, since
        a broker may lag; so all responses must lack it for `GONE_AFTER_S` seconds, or half of the time that is left.

        Raises:
            KafkaTimeout: partitions had no leader until the deadline; the message names them.
            BrokerError: the right to see a topic is missing.
        """
        wanted = list(partitions)
        confirmed_after = min(GONE_AFTER_S, (deadline - self.client.clock()) / 2)
        attempts = self.attempts(deadline, "leaders")
        for _ in attempts:
            missing = [each for each in wanted if each not in self._leaders]
            if missing:
                self._note_absent(missing, self._learn(sorted({topic for topic, _ in missing}), deadline))
                missing = [
                    each for each in missing if each not in self._leaders and not self._is_absent(each, confirmed_after)
                ]
            if not missing:
                return {each: self._leaders[each] for each in wanted if each in self._leaders}
            unknown = all(each in self._absent for each in missing)
            attempts.waiting_for = (
                f"brokers that know {format_partitions(missing)}"
                if unknown
                else f"a live leader of {format_partitions(missing)}: start its broker"
            )
        raise AssertionError

    def known_leaders(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the leaders that are known, without a request."""
        return {each: self._leaders[each] for each in partitions if each in self._leaders}

    def partitions_of(self, topic: str) -> list[TopicPartition]:
        """Return the partitions of a topic by the last response with it; none if it is unknown."""
        return [TopicPartition(topic, each) for each in sorted(self._known_partitions.get(topic, ()))]

    def _note_absent(self, partitions: Iterable[TopicPartition], known: Mapping[str, Collection[int]]) -> None:
        now = self.client.clock()
        for tp in partitions:
            if tp.partition in known.get(tp.topic, (tp.partition,)):
                self._absent.pop(tp, None)
            else:
                since, last = self._absent.get(tp, (now, now))
                self._absent[tp] = since if now - last <= GONE_AFTER_S else now, now

    def _is_absent(self, tp: TopicPartition, seconds: float) -> bool:
        """Return whether all responses in at least `seconds` did not have the partition."""
        since, last = self._absent.get(tp, (0.0, -1.0))
        return last - since >= seconds

    def has_topic(self, topic: str) -> bool:
        """Return whether the topic exists, by the last response with it."""
        return bool(self._known_partitions.get(topic))

    def not_found(self, tp: TopicPartition) -> BrokerError:
        """Return the error of rows for a partition that does not exist, by the last response with its topic."""
        topic, partition = tp
        known = self._known_partitions.get(topic, ())
        if not known:
            why, advice = "the topic does not exist", "create it, or correct its name, and write the batch again"
        elif partition in known:
            why, advice = "a broker does not know the partition, and others do", "write the batch again"
        else:
            why = f"the partition no longer exists: the topic was created again, and has {len(known)} now"
            advice = "write the batch again, so that its rows are shared among the partitions that there are"
        return TopicNotFound(
            f"exactlyOnceId {self.sink!r}: rows for {format_partitions([tp])} were not written, because {why} "
            f"(UNKNOWN_TOPIC_OR_PARTITION). Nothing of the batch is visible. What to do: {advice}.",
            code=Code.UNKNOWN_TOPIC_OR_PARTITION,
            topic=topic,
            partition=partition,
        )

    def forget_leaders(self, partitions: Iterable[TopicPartition]) -> None:
        """Look the leaders of these partitions up again the next time."""
        for each in partitions:
            self._leaders.pop(each, None)

    def epoch_of(self, tp: TopicPartition) -> int:
        """Return the leader epoch for requests: a deposed leader that does not know it refuses them (KIP-320)."""
        return self._epochs.get(tp, -1)

    def _version_of(self, tp: TopicPartition) -> LogVersion:
        return self._topic_ids.get(tp.topic), self.epoch_of(tp)

    def topic_id(self, topic: str) -> bytes | None:
        """Return the last known id of a topic; a topic that is created again has another one. None if no broker was asked."""
        return self._topic_ids.get(topic)

    def learn_from_coordinator(self, transactional_id: str, topics: Sequence[str], deadline: float) -> bool:
        """Ask the coordinator that has just answered for the leaders of `topics`. Return whether it has answered."""
        node = self._coordinators.get(transactional_id)
        if node is None:
            return False
        try:
            self._learn(topics, deadline, node)
        except (ConnectionFailed, KafkaTimeout):
            self.forget_coordinators([transactional_id])
            return False
        return True

    def leaderless(self, partitions: Iterable[TopicPartition], deadline: float) -> list[TopicPartition]:
        """Return those of `partitions` that have no live leader now."""
        wanted = list(partitions)
        self.forget_leaders(wanted)
        known = self._learn(sorted({topic for topic, _ in wanted}), deadline)
        return [each for each in wanted if each not in self._leaders and each[1] in known.get(each[0], (each[1],))]

    def _learn(self, topics: Sequence[str], deadline: float, node: int | None = None) -> dict[str, Collection[int]]:
        """Update the leaders of topics from a broker (`node`, or any), and return the partitions of each topic.

        A topic that does not exist has none; one that the broker cannot describe now is left out.
        """
        response = self.early.metadata(topics, deadline, node)
        live = {row.node_id for row in response.brokers}
        known: dict[str, Collection[int]] = {}
        for topic in response.topics:
            name = topic.name or ""
            if topic.error_code == Code.TOPIC_AUTHORIZATION_FAILED:
                raise missing_right(Right.WRITE_TOPIC, self.sink, self.client.user, name)
            if topic.error_code in (Code.UNKNOWN_TOPIC_OR_PARTITION, Code.INVALID_TOPIC_EXCEPTION):
                known[name] = ()
                continue
            if not topic.error_code and topic.partitions:
                known[name] = {row.partition_index for row in topic.partitions}
            if self._topic_ids.get(name) != topic.topic_id:
                self._topic_ids[name] = topic.topic_id
                self._epochs = {tp: epoch for tp, epoch in self._epochs.items() if tp[0] != name}
            for row in topic.partitions:
                tp = TopicPartition(name, row.partition_index)
                if row.leader_epoch < self._epochs.get(tp, -1):
                    continue  # this broker does not know the newest election yet
                self._epochs[tp] = row.leader_epoch
                if row.leader_id in live:
                    self._leaders[tp] = row.leader_id
                else:
                    self._leaders.pop(tp, None)
        self._known_partitions |= known
        return known

    def ask_leaders(
        self,
        partitions: Iterable[TopicPartition],
        build_request: Callable[[Sequence[TopicPartition]], tuple[AnyApi, Any]],
    ) -> list[EarlyRequest]:
        """Send the requests of `request_leaders` early, as far as leaders are known, and return them."""
        known = {each: self._leaders[each] for each in partitions if each in self._leaders}
        return self.early.send(NodeRequest(node, *build_request(some)) for node, some in by_node(known).items())

    def request_leaders(
        self,
        partitions: Iterable[TopicPartition],
        build_request: Callable[[Sequence[TopicPartition]], tuple[AnyApi, Any]],
        read_rows: Callable[[Any], Iterable[tuple[TopicPartition, Any]]],
        deadline: float,
    ) -> dict[TopicPartition, Any]:
        """Send requests that change nothing to the leaders of partitions, and return the row of each partition that exists.

        A row has an `error_code`; after a retriable one the request is sent again.
        """
        found: dict[TopicPartition, Any] = {}
        left = list(dict.fromkeys(partitions))
        attempts = self.attempts(deadline, "leaders")
        for _ in attempts:
            cause = "no answer"
            by_leader = by_node(self.leaders(left, deadline))
            calls = [NodeRequest(node, *build_request(requested)) for node, requested in by_leader.items()]
            left = []
            for requested, response in zip(by_leader.values(), self.early.request_all(calls, deadline), strict=True):
                if isinstance(response, PyProducerError):
                    rows: dict[TopicPartition, Any] = {}
                    cause = str(response)
                else:
                    rows = dict(read_rows(response))
                for each in requested:
                    row = rows.get(each)
                    if row is None or Action.RETRY in Code(row.error_code).action:
                        cause = cause if row is None else Code(row.error_code).name
                        left.append(each)
                    else:
                        found[each] = row
            if not left:
                return found
            self.forget_leaders(left)
            attempts.waiting_for = f"an answer about {format_partitions(left)} ({cause})"
        raise AssertionError


def worst_error(response: Any) -> int:
    """Return the error code of a response about one transaction. If partitions have different codes, it is the cause of the
    others."""
    if isinstance(response, AddPartitionsToTxnResponse):
        rows = (row for topic in response.results_by_topic_v3_and_below for row in topic.results_by_partition)
        codes = {row.partition_error_code for row in rows} - {Code.NONE}
        return min(codes - {Code.OPERATION_NOT_ATTEMPTED} or codes, default=int(Code.NONE))
    code: int = response.error_code
    return code


def format_partitions(partitions: Iterable[TopicPartition]) -> str:
    """Return the names of up to ten partitions, and the number of others, for messages."""
    names = [f"{for_log(topic)}-{partition}" for topic, partition in sorted(set(partitions))]
    return ", ".join(names[:10]) + (f" and {len(names) - 10} more" if len(names) > 10 else "")


def by_node(nodes: Mapping[K, int]) -> dict[int, list[K]]:
    """Return partitions or ids by the node of each."""
    found: dict[int, list[K]] = {}
    for each, node in nodes.items():
        found.setdefault(node, []).append(each)
    return found


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Return the numbers of partitions by topic."""
    found: dict[str, list[int]] = {}
    for topic, partition in partitions:
        found.setdefault(topic, []).append(partition)
    return found


def refused(code: int, what: str, sink: str, user: str) -> PyProducerError:
    """Return the error for a broker's `code` about the sink's transactions."""
    if code == Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
        return missing_right(Right.TRANSACTIONS, sink, user)
    return broker_error(code, f"exactlyOnceId {sink!r}: {what}", user=user)
