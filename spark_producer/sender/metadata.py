"""The metadata of the cluster: the Metadata requests, and the snapshot of their responses (Kafka's ProducerMetadata).

There are two types of requests, and one is in flight at a time. The first has the topics of waiting threads (`TopicWaiter`). A
waiter is completed by the response to a request that was sent after it was created, and only these requests may create topics.
The second is a *refresh* of all topics in use; it is due when a leader was stale, or when the last response is older than
`max_age`.

The snapshot of the cluster is replaced as a whole, so that any thread may read it. `network.metadata_wait` evaluates a response
for a waiting thread.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Set
from typing import NamedTuple

from spark_producer.common.addresses import broker_name
from spark_producer.common.cluster import NO_LEADER, Cluster, Node, TopicInfo, TopicPartition
from spark_producer.common.error_codes import Action, Code
from spark_producer.protocol import ClusterIdentity
from spark_producer.protocol.messages import MetadataRequest, MetadataRequestTopic, MetadataResponse
from spark_producer.sender.cluster_updates import apply_hints, describe, merge
from spark_producer.sender.missing_partitions import Absence, MissingPartitions
from spark_producer.sender.stale_leader_epochs import StaleLeaderEpochs
from spark_producer.sender.topic_ids import TopicIds


class TopicWaiter:
    """The topics that a thread waits for. That thread creates the waiter, and the I/O thread sets `response` once."""

    __slots__ = ("done", "not_before", "response", "sent", "topics")

    def __init__(self, topics: frozenset[str], not_before: float) -> None:
        self.topics = topics
        self.not_before = not_before
        """the earliest time of the request; 0 for the first request of a thread, which does not wait"""
        self.response: Mapping[str, TopicInfo] | None = None
        """the topics in the response, with their error codes"""
        self.done = False
        """set when the thread no longer waits"""
        self.sent = False
        """set by the I/O thread when the request is sent"""


class InFlightMetadataRequest(NamedTuple):
    """The request in flight. Its response completes the `waiters`. With `refresh` it has all topics in use."""

    topics: Set[str]
    waiters: tuple[TopicWaiter, ...]
    refresh: bool


class Metadata:
    """Requests metadata when a thread waits for topics, when a leader was stale, or when the last response is `max_age` seconds
    old.

    A topic that was not written to for `max_idle` seconds is forgotten at the next refresh. Only the I/O thread calls
    the methods, except for `request_topics` and `use`.
    """

    def __init__(
        self,
        *,
        max_age: float,
        backoff: Callable[[int], float],
        rebootstrap_after: float | None = None,
        check_cluster: bool = False,
        max_idle: float = float("inf"),
    ) -> None:
        self.cluster = Cluster({}, {})
        self.response_count = 0
        """the number of responses"""
        self._max_age = max_age
        self._max_idle = max_idle
        self._backoff = backoff
        self._posted: deque[TopicWaiter] = deque()
        """the waiters that the I/O thread has not seen yet"""
        self._waiters: list[TopicWaiter] = []
        self._nodes_wanted = False
        self._abandoned_topics: set[str] = set()
        """topics whose thread stopped waiting before the request was sent; they are requested once, for its next call"""
        self._used: dict[str, float] = {}
        """the topics in use, which a refresh requests, and the time when rows for them were last queued"""
        self._forgotten: set[str] = set()
        self._in_flight: InFlightMetadataRequest | None = None
        self._waiters_last = False
        """whether the last request was for waiters, since a refresh that is due takes turns with them"""
        self._due_at = float("inf")
        self._not_before = 0.0
        self._attempts = 0
        self._in_flight_node = NO_LEADER
        """the node of the request in flight"""
        self._stale_epochs = StaleLeaderEpochs()
        self._missing = MissingPartitions()
        self._topic_ids = TopicIds()
        self._rebootstrap_after = rebootstrap_after
        """seconds without a response before the bootstrap servers are used again (KIP-1102); None for never"""
        self._identity = ClusterIdentity(checks=check_cluster)
        self._unanswered_since: float | None = None
        self._last_response_at: float | None = None

    @property
    def cluster_id(self) -> str | None:
        """The id of the cluster whose nodes are known, if it is to be checked (KIP-1242)."""
        return self._identity.cluster_id

    # --- any thread -------------------------------------------------------------------------------------------------

    def request_topics(self, *topics: str, not_before: float = 0.0) -> TopicWaiter:
        """Request these topics, and return the waiter for the response. The caller must wake the I/O thread."""
        waiter = TopicWaiter(frozenset(topics), not_before)
        self._posted.append(waiter)
        return waiter

    def use(self, topic: str, now: float) -> None:
        """Keep this topic in use: rows for it are about to be queued."""
        self._used[topic] = now

    def existed(self, topic: str) -> bool:
        """Return whether this topic exists, or has existed since the producer used it."""
        return self._topic_ids.existed(topic)

    # --- the I/O thread ---------------------------------------------------------------------------------------------

    def request_leaders(self, topics: Set[str], now: float) -> None:
        """Request topics whose batches wait for leaders, even if a topic was forgotten meanwhile.

        The sender repeats this call while batches wait, so a request for them that is in flight already is enough.
        """
        for topic in topics:
            self._used[topic] = now
        self._missing.watch(topics)
        if self._in_flight is None or not topics <= self._in_flight.topics:
            self.request_update()

    def absence(self, tp: TopicPartition, now: float) -> Absence | None:
        """Return the absence of a partition, once enough brokers have confirmed it for long enough; else None.

        It is only found for topics of `request_leaders`.
        """
        return self._missing.absence(tp, self.cluster.nodes, now)

    def other_nodes(self) -> list[int]:
        """Return the preferred nodes of the next request: those without a response yet about topics that may be missing."""
        return self._missing.other_nodes(self.cluster.nodes)

    def request_nodes(self) -> None:
        """Request the nodes of the cluster, even if there is no topic to request."""
        self._nodes_wanted = self._in_flight is None

    def request_update(self) -> None:
        """Schedule a refresh as soon as the backoff allows, because the snapshot is stale."""
        if self._used:
            self._due_at = 0.0

    def age(self, now: float) -> float:
        """Return the seconds since the last response; 0 before the first one."""
        return 0.0 if self._last_response_at is None else now - self._last_response_at

    def due_at(self) -> float | None:
        """Return the time of the next request; None while one is in flight, or if there is nothing to request."""
        self._take_posted()
        if self._in_flight is not None:
            return None
        if self._abandoned_topics:
            return 0.0
        times = [waiter.not_before for waiter in self._waiters]
        if self._nodes_wanted:
            times.append(self._not_before)
        if self._used:
            times.append(max(self._due_at, self._not_before))
        return min(times, default=None)

    def request(self, now: float, node: int = NO_LEADER) -> MetadataRequest | None:
        """Return the request to `node`, if one is due and has topics; else None."""
        if self._in_flight is not None:
            return None
        self._in_flight_node = node
        self._take_posted()
        waiters = tuple(waiter for waiter in self._waiters if waiter.not_before <= now)
        due = max(self._due_at, self._not_before) <= now
        if due:
            self._forget_idle(now)  # first, since a refresh without topics must not take the turn of a waiter
        refresh = due and bool(self._used)
        self._waiters_last = bool(waiters or self._abandoned_topics) and not (refresh and self._waiters_last)
        if self._waiters_last:
            topics = dict.fromkeys(topic for waiter in waiters for topic in waiter.topics) | dict.fromkeys(
                self._abandoned_topics
            )
            self._abandoned_topics.clear()
            return self._send_request(topics, waiters, now, may_create=True)
        if refresh:
            return self._send_request(self._used.copy(), (), now, may_create=False)
        return (
            self._send_request({}, (), now, may_create=False)
            if self._nodes_wanted and self._not_before <= now
            else None
        )

    def _take_posted(self) -> None:
        """Take the posted waiters, and drop those that no thread waits for, even while no broker is available."""
        while self._posted:
            self._waiters.append(self._posted.popleft())
        for waiter in self._waiters:
            if waiter.done and not (waiter.sent or waiter.not_before):
                self._abandoned_topics |= waiter.topics
        self._waiters = [waiter for waiter in self._waiters if not waiter.done]

    def _send_request(
        self, topics: Mapping[str, object], waiters: tuple[TopicWaiter, ...], now: float, *, may_create: bool
    ) -> MetadataRequest | None:
        if not topics and not self._nodes_wanted:
            return None
        self._nodes_wanted = False
        for waiter in waiters:
            waiter.sent = True
        refresh = not may_create or self._used.copy().keys() <= topics.keys()
        self._in_flight = InFlightMetadataRequest(topics.keys(), waiters, refresh)
        if refresh:
            self._due_at = float("inf")  # the next refresh is for leaders found to be stale from now on
        if self._unanswered_since is None:
            self._unanswered_since = now
        return MetadataRequest(tuple(MetadataRequestTopic(name=topic) for topic in topics), may_create)

    def on_failure(self, now: float) -> None:
        """Schedule the request again after the backoff, because no broker answered."""
        request, self._in_flight = self._in_flight, None
        self._pause(now)
        if request is not None:
            for waiter in request.waiters:
                waiter.not_before = self._not_before
            if request.refresh:
                self._due_at = 0.0

    def on_response(self, response: MetadataResponse, now: float) -> None:
        """Apply a response. Topics with an error, or without a leader, are requested again after a pause.

        Topics that no longer exist are not: a thread that still writes to one calls `request_topics`, and the sender calls
        `request_leaders` for its batches.
        """
        request = self._in_flight
        node = self.cluster.nodes.get(self._in_flight_node)
        sender = broker_name(self._in_flight_node, *(node[:2] if node is not None else (None, 0)))
        if self._identity.accept(response, sender) is not None:
            self.rebootstrap(now)
            return self.on_failure(now)
        if request is None or response.error_code or not response.brokers:
            return self.on_failure(now)
        self._in_flight = None
        self._unanswered_since = None
        self._last_response_at = now
        self.response_count += 1
        recreated = self._stale_epochs.recreated(response, self.cluster.topics, now)
        described = describe(response, self.cluster.without(recreated) if recreated else self.cluster)
        self._missing.on_response(request.topics, described, self._in_flight_node, now)
        self._topic_ids.update(described, recreated)
        cluster = merge(self.cluster, response, request.topics, described)
        self._missing.watch(
            [name for name, info in described.items() if info.error_code and self._topic_ids.existed(name)]
        )
        changed, self.cluster = cluster is not self.cluster, cluster
        self._complete_waiters(request, described, now)
        return self._schedule(request, described, changed, now)

    def apply_leader_hints(
        self, hints: Mapping[TopicPartition, tuple[int, int]], endpoints: Mapping[int, Node]
    ) -> None:
        """Apply the leaders and epochs of failed Produce responses (KIP-951)."""
        self.cluster = apply_hints(self.cluster, hints, endpoints)

    def take_forgotten(self) -> set[str]:
        """Return the topics that were forgotten since the last call."""
        taken, self._forgotten = self._forgotten, set()
        return taken

    def take_recreated(self) -> set[str]:
        """Return the topics that were recreated since the last call."""
        return self._topic_ids.take_recreated()

    def rebootstrap_due(self, now: float) -> bool:
        """Return whether requests have had no response for `rebootstrap_after` seconds (KIP-1102)."""
        after, since = self._rebootstrap_after, self._unanswered_since
        return after is not None and since is not None and now - since >= after and bool(self.cluster.nodes)

    def rebootstrap(self, now: float) -> None:
        """Forget all nodes, so that the bootstrap servers are used again (KIP-899). The topics are kept."""
        if self._rebootstrap_after is not None and self.cluster.nodes:
            self.cluster = self.cluster.replace(nodes={})
            self._identity.forget()
            self._unanswered_since = now
            self._due_at = self._not_before = 0.0

    def reject_nodes(self, now: float) -> None:
        """Use the bootstrap servers again after a pause, because the address of a node leads to another broker (KIP-1242)."""
        self.rebootstrap(now)
        self._pause(now)

    def _complete_waiters(
        self, request: InFlightMetadataRequest, described: Mapping[str, TopicInfo], now: float
    ) -> None:
        """Complete the waiters. Requested topics that exist are in use from now on."""
        for topic in request.topics:
            if topic in self.cluster.topics:
                self._used.setdefault(topic, now)
        for waiter in request.waiters:
            waiter.response = {topic: described[topic] for topic in waiter.topics if topic in described}
            waiter.done = True

    def _schedule(
        self, request: InFlightMetadataRequest, described: Mapping[str, TopicInfo], changed: bool, now: float
    ) -> None:
        """Set the time of the next refresh. A waiter's topic that does not exist is requested by its thread, not by a refresh."""
        existing = self.cluster.topics
        stable = all(
            _is_stable(described.get(topic)) for topic in request.topics if topic in existing or not request.waiters
        )
        self._due_at = min(self._due_at, now + self._max_age) if stable else 0.0
        if stable and changed:
            self._attempts, self._not_before = 0, now
        elif request.refresh or not stable:
            self._pause(now)

    def _forget_idle(self, now: float) -> None:
        """Forget the topics that are no longer written to (`metadata.max.idle.ms`)."""
        idle = {topic for topic, used in self._used.copy().items() if now - used >= self._max_idle}
        if idle:
            for topic in idle:
                self._used.pop(topic, None)
            self._forgotten |= idle
            self._topic_ids.forget(idle)
            self.cluster = self.cluster.without(idle)

    def _pause(self, now: float) -> None:
        self._not_before = now + self._backoff(self._attempts)
        self._attempts += 1


def _is_stable(info: TopicInfo | None) -> bool:
    """Return whether a topic needs no early refresh.

    A topic that does not exist, or has a permanent error, needs none either: it is refreshed when a waiter requests it.
    """
    if info is None:
        return False
    if info.error_code:
        code = Code(info.error_code)
        return code is Code.UNKNOWN_TOPIC_OR_PARTITION or Action.RETRY not in code.action
    return bool(info.leaders) and NO_LEADER not in info.leaders
