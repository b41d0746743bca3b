"""The metadata of the cluster: when to ask the brokers for which topics, and what they answered (Kafka's ProducerMetadata).

There are two kinds of questions, and one question is in flight at a time. A *wish* names topics that a thread waits for. Only
the answer to a question that was sent after the wish meets it, and only questions for wishes may create topics. A *refresh*
names all topics in use; it is due when a leader was stale, or when the last answer is older than `max_age`.

The snapshot of the cluster is replaced as a whole, so that any thread may read it. `topic_wait` says what an answer means to the
thread that waits.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Set
from typing import NamedTuple

from spark_producer.common.cluster import NO_LEADER, Cluster, Node, TopicInfo, TopicPartition
from spark_producer.common.error_codes import Action, Code
from spark_producer.protocol.messages import MetadataRequest, MetadataRequestTopic, MetadataResponse
from spark_producer.sender.cluster_updates import apply_hints, describe, merge
from spark_producer.sender.missing_partitions import Absence, MissingPartitions
from spark_producer.sender.stale_leader_epochs import StaleLeaderEpochs
from spark_producer.sender.topic_ids import TopicIds


class TopicWaiter:
    """Topics that a thread waits for. That thread creates the wish, and the I/O thread sets `answer` once."""

    __slots__ = ("done", "not_before", "response", "sent", "topics")

    def __init__(self, topics: frozenset[str], not_before: float) -> None:
        self.topics = topics
        self.not_before = not_before
        """the time in seconds before which the question is not sent; 0 for at once, since only a repeated question pauses"""
        self.response: Mapping[str, TopicInfo] | None = None
        """the topics as the answer describes them, with their error codes; those that it leaves out are missing"""
        self.done = False
        """set when the thread no longer waits for an answer, for whatever reason"""
        self.sent = False
        """set by the I/O thread, when the question is sent"""


class InFlightMetadataRequest(NamedTuple):
    """The question in flight. Its answer meets the `waiters`. `refresh` says that it names all topics in use."""

    topics: Set[str]
    waiters: tuple[TopicWaiter, ...]
    refresh: bool


class Metadata:
    """Asks when a thread waits for topics, when a leader was stale, or when the last answer is older than `max_age` seconds.

    A topic that was not written to for `max_idle` seconds is forgotten when the next refresh is due. Only the I/O thread calls
    the methods, except for `request_topics` and `use`.
    """

    def __init__(
        self,
        *,
        max_age: float,
        backoff: Callable[[int], float],
        rebootstrap_after: float | None = None,
        max_idle: float = float("inf"),
    ) -> None:
        self.cluster = Cluster({}, {})
        self.response_count = 0
        """the number of questions that were answered"""
        self._max_age = max_age
        self._max_idle = max_idle
        self._backoff = backoff
        self._posted: deque[TopicWaiter] = deque()
        """wishes that the I/O thread has not seen yet"""
        self._waiters: list[TopicWaiter] = []
        self._nodes_wanted = False
        self._late: set[str] = set()
        """topics whose thread stopped waiting before the question was sent; they are asked for once, for its next call"""
        self._used: dict[str, float] = {}
        """the topics in use, which a refresh asks for, and when rows for them were last queued"""
        self._forgotten: set[str] = set()
        self._in_flight: InFlightMetadataRequest | None = None
        self._waiters_last = False
        """whether the last question was for wishes, since a refresh that is due takes turns with them"""
        self._due_at = float("inf")
        self._not_before = 0.0
        self._attempts = 0
        self._in_flight_node = NO_LEADER
        """the node that the question in flight was sent to"""
        self._stale_epochs = StaleLeaderEpochs()
        self._missing = MissingPartitions()
        self._topic_ids = TopicIds()
        self._rebootstrap_after = rebootstrap_after
        """seconds without an answer after which the bootstrap servers are asked again (KIP-1102); None for never"""
        self._unanswered_since: float | None = None
        self._last_response_at: float | None = None

    # --- any thread -------------------------------------------------------------------------------------------------

    def request_topics(self, *topics: str, not_before: float = 0.0) -> TopicWaiter:
        """Ask for these topics, and return the wish that will hold the answer. The caller must wake the I/O thread."""
        waiter = TopicWaiter(frozenset(topics), not_before)
        self._posted.append(waiter)
        return waiter

    def use(self, topic: str, now: float) -> None:
        """Note that rows for this topic are about to be queued."""
        self._used[topic] = now

    def existed(self, topic: str) -> bool:
        """Return whether this topic, which may be written to, is there or was there before."""
        return self._topic_ids.knows(topic)

    # --- the I/O thread ---------------------------------------------------------------------------------------------

    def request_leaders(self, topics: Set[str], now: float) -> None:
        """Ask for topics whose batches wait for leaders, even if a topic was forgotten meanwhile.

        The sender calls this again as long as they wait, so a question for them that is already in flight is enough.
        """
        for topic in topics:
            self._used[topic] = now
        self._missing.watch(topics)
        if self._in_flight is None or not topics <= self._in_flight.topics:
            self.request_update()

    def absence(self, tp: TopicPartition, now: float) -> Absence | None:
        """Return why a partition does not exist, once enough brokers have said so for long enough; else None.

        Only topics that were sought are judged.
        """
        return self._missing.absence(tp, self.cluster.nodes, now)

    def other_nodes(self) -> list[int]:
        """Return the nodes that should be asked next, because they have not been asked about topics that may be missing."""
        return self._missing.other_nodes(self.cluster.nodes)

    def request_nodes(self) -> None:
        """Ask which nodes there are, even if there is no topic to ask for."""
        self._nodes_wanted = self._in_flight is None

    def request_update(self) -> None:
        """Ask again as soon as the backoff allows, because the snapshot is stale."""
        if self._used:
            self._due_at = 0.0

    def age(self, now: float) -> float:
        """Return the seconds since the last answer; 0 before the first."""
        return 0.0 if self._last_response_at is None else now - self._last_response_at

    def due_at(self) -> float | None:
        """Return when to ask next; None while an answer is awaited, or if there is nothing to ask for."""
        self._take_posted()
        if self._in_flight is not None:
            return None
        if self._late:
            return 0.0
        times = [waiter.not_before for waiter in self._waiters]
        if self._nodes_wanted:
            times.append(self._not_before)
        if self._used:
            times.append(max(self._due_at, self._not_before))
        return min(times, default=None)

    def request(self, now: float, node: int = NO_LEADER) -> MetadataRequest | None:
        """Return the question to `node`, if it is time to ask one and there is a topic to ask for; else None."""
        if self._in_flight is not None:
            return None
        self._in_flight_node = node
        self._take_posted()
        waiters = tuple(waiter for waiter in self._waiters if waiter.not_before <= now)
        due = max(self._due_at, self._not_before) <= now
        if due:
            self._forget_idle(now)  # this comes first, since a refresh without topics must not take the turn of a wish
        refresh = due and bool(self._used)
        self._waiters_last = bool(waiters or self._late) and not (refresh and self._waiters_last)
        if self._waiters_last:
            topics = dict.fromkeys(topic for waiter in waiters for topic in waiter.topics) | dict.fromkeys(self._late)
            self._late.clear()
            return self._send_request(topics, waiters, now, may_create=True)
        if refresh:
            return self._send_request(self._used.copy(), (), now, may_create=False)
        return (
            self._send_request({}, (), now, may_create=False)
            if self._nodes_wanted and self._not_before <= now
            else None
        )

    def _take_posted(self) -> None:
        """Take in the posted wishes, and drop those that no thread waits for, even while no broker can be asked."""
        while self._posted:
            self._waiters.append(self._posted.popleft())
        for waiter in self._waiters:
            if waiter.done and not (waiter.sent or waiter.not_before):
                self._late |= waiter.topics
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
            self._due_at = float("inf")  # the next refresh is for what is found to be stale from now on
        if self._unanswered_since is None:
            self._unanswered_since = now
        return MetadataRequest(tuple(MetadataRequestTopic(name=topic) for topic in topics), may_create)

    def on_failure(self, now: float) -> None:
        """Plan to ask again after a pause, because no broker answered."""
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
        if request is None or response.error_code or not response.brokers:
            if response.error_code == Code.REBOOTSTRAP_REQUIRED:
                self.rebootstrap(now)
            return self.on_failure(now)
        self._in_flight = None
        self._unanswered_since = None
        self._last_response_at = now
        self.response_count += 1
        recreated = self._stale_epochs.believed(response, self.cluster.topics, now)
        described = describe(response, self.cluster.without(recreated) if recreated else self.cluster)
        self._missing.answered(request.topics, described, self._in_flight_node, now)
        self._topic_ids.answered(described, recreated)
        cluster = merge(self.cluster, response, request.topics, described)
        self._missing.watch(
            [name for name, info in described.items() if info.error_code and self._topic_ids.knows(name)]
        )
        moved, self.cluster = cluster is not self.cluster, cluster
        self._complete_waiters(request, described, now)
        return self._schedule(request, described, moved, now)

    def apply_leader_hints(
        self, hints: Mapping[TopicPartition, tuple[int, int]], endpoints: Mapping[int, Node]
    ) -> None:
        """Take in the leaders and epochs that the answers to refused Produce requests name (KIP-951)."""
        self.cluster = apply_hints(self.cluster, hints, endpoints)

    def take_forgotten(self) -> set[str]:
        """Return the topics that were forgotten since the last call."""
        taken, self._forgotten = self._forgotten, set()
        return taken

    def take_recreated(self) -> set[str]:
        """Return the topics that were deleted and created again since the last call."""
        return self._topic_ids.take_recreated()

    def rebootstrap_due(self, now: float) -> bool:
        """Return whether the nodes have been asked for too long without an answer (KIP-1102)."""
        after, since = self._rebootstrap_after, self._unanswered_since
        return after is not None and since is not None and now - since >= after and bool(self.cluster.nodes)

    def rebootstrap(self, now: float) -> None:
        """Forget all nodes, so that the bootstrap servers are asked again (KIP-899). The topics are kept."""
        if self._rebootstrap_after is not None and self.cluster.nodes:
            self.cluster = self.cluster.replace(nodes={})
            self._unanswered_since = now
            self._due_at = self._not_before = 0.0

    def _complete_waiters(
        self, request: InFlightMetadataRequest, described: Mapping[str, TopicInfo], now: float
    ) -> None:
        """Meet the wishes. Topics that were asked for and exist are in use from now on."""
        for topic in request.topics:
            if topic in self.cluster.topics:
                self._used.setdefault(topic, now)
        for waiter in request.waiters:
            waiter.response = {topic: described[topic] for topic in waiter.topics if topic in described}
            waiter.done = True

    def _schedule(
        self, request: InFlightMetadataRequest, described: Mapping[str, TopicInfo], moved: bool, now: float
    ) -> None:
        """Set when the next refresh is due. It does not ask for a wish's topic that does not exist: the waiting thread does."""
        there = self.cluster.topics
        settled = all(
            _settled(described.get(topic)) for topic in request.topics if topic in there or not request.waiters
        )
        self._due_at = min(self._due_at, now + self._max_age) if settled else 0.0
        if settled and moved:
            self._attempts, self._not_before = 0, now
        elif request.refresh or not settled:
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


def _settled(info: TopicInfo | None) -> bool:
    """Return whether no news of a topic is expected soon. One that has vanished, or is refused, is asked for again by a wish."""
    if info is None:
        return False
    if info.error_code:
        code = Code(info.error_code)
        return code is Code.UNKNOWN_TOPIC_OR_PARTITION or Action.RETRY not in code.action
    return bool(info.leaders) and NO_LEADER not in info.leaders
