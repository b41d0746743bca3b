"""What is known of a cluster: its nodes, its topics, and who leads which partition. Values, so any thread may read them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

NO_LEADER = -1
"""In place of a node: nobody leads the partition now, or who does is not known."""


class TopicPartition(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"topic {self.topic!r}, partition {self.partition}"


class Node(NamedTuple):
    """A broker: where it listens, and its rack if it says so (`broker.rack`)."""

    host: str
    port: int
    rack: str | None = None


class TopicInfo(NamedTuple):
    """A topic as the brokers describe it: its error code, and the leader of each partition (-1: none now)."""

    error_code: int
    leaders: tuple[int, ...]
    leader_epochs: tuple[int, ...]
    topic_id: bytes


class Cluster(NamedTuple):
    """What all answers together have said; of a topic the last one counts, but for leader epochs that were newer.

    `topics` has those that exist. `number` is another one in each snapshot that differs from the one before.
    """

    nodes: Mapping[int, Node]
    topics: Mapping[str, TopicInfo]
    number: int = 0

    @property
    def addresses(self) -> dict[int, tuple[str, int]]:
        """Host and port of each node."""
        return {number: (node.host, node.port) for number, node in self.nodes.items()}

    def leader_of(self, place: TopicPartition) -> tuple[int, int]:
        """The node that leads a partition (-1 if unknown, or if its address is) and the leader's epoch."""
        topic, partition = place
        info = self.topics.get(topic)
        if info is None or partition >= len(info.leaders):
            return NO_LEADER, -1
        leader = info.leaders[partition]
        return leader if leader in self.nodes else NO_LEADER, info.leader_epochs[partition]

    def replace(
        self, nodes: Mapping[int, Node] | None = None, topics: Mapping[str, TopicInfo] | None = None
    ) -> Cluster:
        """The next snapshot; this one if nothing differs. What did not change stays the same object."""
        new_nodes = self.nodes if nodes is None or nodes == self.nodes else nodes
        new_topics = self.topics if topics is None or topics == self.topics else topics
        if new_nodes is self.nodes and new_topics is self.topics:
            return self
        return Cluster(new_nodes, new_topics, self.number + 1)

    def without(self, topics: Collection[str]) -> Cluster:
        """The next snapshot, with these topics forgotten."""
        return self.replace(topics={name: info for name, info in self.topics.items() if name not in topics})
