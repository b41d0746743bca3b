"""What is known of the cluster: nodes, topics, leaders; when to ask again, and what to forget (spec: kafka_producer.md §2.15).

Owns: the snapshot, which is immutable and replaced whole, so that any thread may read it.
Must not know: how the question travels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from spark_producer.accumulator import NO_LEADER, TopicPartition
from spark_producer.protocol.messages import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)

UNKNOWN_TOPIC = 3
REBOOTSTRAP_REQUIRED = 129


class TopicInfo(NamedTuple):
    """A topic as the brokers describe it: its error code, and the leader of each partition (-1: none now)."""

    error_code: int
    leaders: tuple[int, ...]
    leader_epochs: tuple[int, ...]
    topic_id: bytes


class Cluster(NamedTuple):
    """One answer of the brokers, with what older answers said where it is newer (leader epochs)."""

    nodes: Mapping[int, tuple[str, int]]
    topics: Mapping[str, TopicInfo]
    racks: Mapping[int, str | None] = MappingProxyType({})

    def leader_of(self, place: TopicPartition) -> tuple[int, int]:
        """The node that leads a partition (-1 if unknown, or if its address is) and the leader's epoch."""
        topic, partition = place
        info = self.topics.get(topic)
        if info is None or partition >= len(info.leaders):
            return NO_LEADER, -1
        leader = info.leaders[partition]
        return leader if leader in self.nodes else NO_LEADER, info.leader_epochs[partition]


class Metadata:
    """Asks when it must: a topic is new, somebody saw a stale leader, or the answer is older than `max_age` seconds.

    A topic that was not written to for `max_idle` seconds is forgotten when the next question is due.
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
        self._max_age = max_age
        self._max_idle = max_idle
        self._backoff = backoff
        self._wanted: dict[str, None] = {}
        """topics to ask for, in the order of the wishes; threads change single entries, and read a copy of all"""
        self._used: dict[str, float] = {}
        """when a topic was last written to; of one that somebody waits for nothing is known"""
        self._wishes = 0
        """counted by task threads; those beyond `_requested_wishes` are in no question yet"""
        self._requested_wishes = 0
        self._requested: tuple[str, ...] = ()
        self._found: set[str] = set()
        """topics that existed since somebody last waited for them: a later question must not bring a deleted one back"""
        self._due_at = 0.0
        self._not_before = 0.0
        self._attempts = 0
        self._asked = False
        self._rebootstrap_after = rebootstrap_after
        """seconds without an answer after which the bootstrap servers are asked again (KIP-1102); None: never"""
        self._asking_since: float | None = None
        self._answered_at: float | None = None

    def want(self, topic: str, *, again: bool = False) -> None:
        """Ask for this topic from now on, and `again` if what is known of it is too old.

        Task threads call it, one at a time, while the I/O thread does all the rest: what is wanted during a question is
        seen by the count of wishes.
        """
        self._found.discard(topic)
        self._used.pop(topic, None)
        if again or topic not in self._wanted:
            self._wanted[topic] = None
            self._wishes += 1

    def use(self, topic: str, now: float) -> None:
        """Rows for this topic are about to be queued. Called by task threads, also by several at a time."""
        self._used[topic] = now

    def forget(self, topic: str) -> None:
        """Nobody waits for this topic any more: do not ask for it again. Called by task threads, as `want` is."""
        self._wanted.pop(topic, None)

    def seek(self, topics: Iterable[str], now: float) -> None:
        """Batches wait for leaders of these topics: ask, even if a topic was forgotten meanwhile."""
        for topic in topics:
            if topic not in self._wanted:
                self._found.add(topic)  # it was there, and is not to be created anew
                self._wanted[topic] = None
            self._used[topic] = now
        self.request_update()

    def request_update(self) -> None:
        """What is known is stale: ask again as soon as the backoff allows."""
        self._due_at = 0.0

    def age(self, now: float) -> float:
        """Seconds since the last answer; 0 before the first."""
        return 0.0 if self._answered_at is None else now - self._answered_at

    def due_at(self) -> float | None:
        """When to ask next; None while an answer is awaited or nothing is wanted."""
        if self._asked or not self._wanted:
            return None
        if self._wishes != self._requested_wishes:
            return 0.0  # a new topic waits for no pause: it is asked for once so, then as all others
        return max(self._due_at, self._not_before)

    def request(self, now: float) -> MetadataRequest | None:
        """The question, if it is time to ask it, and a topic is left to ask for."""
        due = self.due_at()
        if due is None or due > now:
            return None
        self._requested_wishes = self._wishes  # before the topics, or a wish in between would be overlooked
        self._forget_idle(now)
        self._requested = tuple(self._wanted.copy())
        if not self._requested:
            return None
        self._asked = True
        if self._asking_since is None:
            self._asking_since = now
        create = any(topic not in self._found for topic in self._requested)
        return MetadataRequest(tuple(MetadataRequestTopic(name=topic) for topic in self._requested), create)

    def on_failure(self, now: float) -> None:
        """Nobody answered: ask again after a pause."""
        self._asked = False
        self._pause(now)

    def on_response(self, response: MetadataResponse, now: float) -> None:
        """Replace the snapshot. A topic with an error, or without a leader, is asked for again after a pause.

        But not one that was there and has vanished: whoever still writes to it asks by `want` or `request_update`, and
        asking for its sake would make the question for the next topic wait for the pause.
        """
        self._asked = False
        nodes = {broker.node_id: (broker.host, broker.port) for broker in response.brokers}
        if response.error_code or not nodes:
            if response.error_code == REBOOTSTRAP_REQUIRED:
                self.rebootstrap(now)
            return self._pause(now)
        self._asking_since = None
        self._answered_at = now
        topics = {topic.name: self._topic(topic) for topic in response.topics if topic.name is not None}
        unsettled = any(
            info.error_code or not info.leaders or NO_LEADER in info.leaders
            for topic, info in topics.items()
            if not (info.error_code == UNKNOWN_TOPIC and topic in self._found)
        )
        unsettled |= any(topic not in topics for topic in self._requested)
        racks = {broker.node_id: broker.rack for broker in response.brokers}
        cluster = Cluster(nodes, topics, racks)
        moved = cluster != self.cluster
        self.cluster = cluster
        self._found |= {topic for topic, info in topics.items() if not info.error_code}
        self._due_at = 0.0 if unsettled else now + self._max_age
        if unsettled or not moved:
            return self._pause(now)
        self._attempts = 0
        self._not_before = now
        return None

    def take_hints(
        self, hints: Mapping[TopicPartition, tuple[int, int]], endpoints: Mapping[int, tuple[str, int]]
    ) -> None:
        """Leaders and epochs that refused Produce requests name (KIP-951): those count that are newer than what is known,
        and whose address is known."""
        nodes = {**self.cluster.nodes, **endpoints}
        topics = dict(self.cluster.topics)
        for (topic, partition), (leader, epoch) in hints.items():
            info = topics.get(topic)
            if info is None or partition >= len(info.leaders) or leader not in nodes:
                continue
            if epoch > info.leader_epochs[partition]:
                topics[topic] = info._replace(
                    leaders=_with(info.leaders, partition, leader),
                    leader_epochs=_with(info.leader_epochs, partition, epoch),
                )
        if topics != self.cluster.topics:
            self.cluster = self.cluster._replace(nodes=nodes, topics=topics)

    def overdue(self, now: float) -> bool:
        """Whether the nodes have been asked for too long without an answer (KIP-1102)."""
        after, since = self._rebootstrap_after, self._asking_since
        return after is not None and since is not None and now - since >= after and bool(self.cluster.nodes)

    def rebootstrap(self, now: float) -> None:
        """Forget all nodes, so that the bootstrap servers are asked again (KIP-899); what topics there are is kept."""
        if self._rebootstrap_after is not None and self.cluster.nodes:
            self.cluster = self.cluster._replace(nodes={})
            self._asking_since = now
            self._due_at = self._not_before = 0.0

    def _forget_idle(self, now: float) -> None:
        """Topics that nobody writes to any more (`metadata.max.idle.ms`); those that are waited for stay."""
        idle = {topic for topic, used in self._used.copy().items() if now - used >= self._max_idle}
        if not idle:
            return
        for topic in idle:
            self._wanted.pop(topic, None)
            self._used.pop(topic, None)
        self._found -= idle
        topics = {topic: info for topic, info in self.cluster.topics.items() if topic not in idle}
        self.cluster = self.cluster._replace(topics=topics)

    def _topic(self, topic: MetadataResponseTopic) -> TopicInfo:
        """A partition whose answer is older than what is known keeps the newer leader; a topic made anew starts anew."""
        known = self.cluster.topics.get(topic.name or "")
        if known and known.topic_id != topic.topic_id:
            known = None
        leaders, epochs = [], []
        partitions = sorted(topic.partitions, key=lambda partition: partition.partition_index)
        for partition in partitions:
            leader, epoch = partition.leader_id, partition.leader_epoch
            if known and len(known.leaders) > partition.partition_index:
                newest = known.leader_epochs[partition.partition_index]
                if 0 <= epoch < newest:
                    leader, epoch = known.leaders[partition.partition_index], newest
            leaders.append(leader)
            epochs.append(epoch)
        return TopicInfo(topic.error_code, tuple(leaders), tuple(epochs), topic.topic_id)

    def _pause(self, now: float) -> None:
        self._not_before = now + self._backoff(self._attempts)
        self._attempts += 1


def _with(values: tuple[int, ...], index: int, value: int) -> tuple[int, ...]:
    return (*values[:index], value, *values[index + 1 :])
