"""What is known of a cluster: its nodes, its topics, who leads which partition, and how it speaks transactions. Plain values."""

from __future__ import annotations

import enum
from collections.abc import Collection, Mapping
from typing import NamedTuple

NO_LEADER = -1
"""This stands in place of a node if a partition has no leader now, or its leader is not known."""


class TopicPartition(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"topic {self.topic!r}, partition {self.partition}"


class ProducerIdAndEpoch(NamedTuple):
    """A producer id and its epoch, under which sequence numbers count (KIP-98, KIP-360); a newer epoch fences all older ones."""

    producer_id: int
    epoch: int


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
    """The contents of all answers together. For a topic the last answer counts, except where a leader epoch was newer before.

    `topics` has those that exist. `number` differs in each snapshot that is not the same as the one before.
    """

    nodes: Mapping[int, Node]
    topics: Mapping[str, TopicInfo]
    number: int = 0

    @property
    def addresses(self) -> dict[int, tuple[str, int]]:
        """Return host and port of each node."""
        return {number: (node.host, node.port) for number, node in self.nodes.items()}

    def leader_of(self, tp: TopicPartition) -> tuple[int, int]:
        """Return the node that leads a partition (-1 if it, or its address, is unknown) and the leader's epoch."""
        topic, partition = tp
        info = self.topics.get(topic)
        if info is None or partition >= len(info.leaders):
            return NO_LEADER, -1
        leader = info.leaders[partition]
        return leader if leader in self.nodes else NO_LEADER, info.leader_epochs[partition]

    def replace(
        self, nodes: Mapping[int, Node] | None = None, topics: Mapping[str, TopicInfo] | None = None
    ) -> Cluster:
        """Return the next snapshot, or this one if nothing differs. Unchanged parts stay the same objects."""
        new_nodes = self.nodes if nodes is None or nodes == self.nodes else nodes
        new_topics = self.topics if topics is None or topics == self.topics else topics
        if new_nodes is self.nodes and new_topics is self.topics:
            return self
        return Cluster(new_nodes, new_topics, self.number + 1)

    def without(self, topics: Collection[str]) -> Cluster:
        """Return the next snapshot, without these topics."""
        return self.replace(topics={name: info for name, info in self.topics.items() if name not in topics})


TRANSACTIONS = "transaction.version"
"""The feature on which a cluster agrees before it speaks transactions implicitly."""


class Style(enum.IntEnum):
    """How a transaction is spoken. One transaction has one style throughout."""

    EXPLICIT = 1
    """AddPartitionsToTxn up to 3, Produce up to 11, EndTxn up to 4"""
    IMPLICIT = 2
    """transaction.version 2 (KIP-890): Produce from 12 on adds its partitions by itself, EndTxn from 5 on raises the epoch"""


def style_at(level: int) -> Style:
    """Return how a cluster speaks transactions that has agreed on this level of `TRANSACTIONS` (0: it does not know it).

    What its brokers offer in their versions says nothing: Kafka 4.3 offers the new ones also where they are not agreed on, and
    wedges the transactional id of whoever uses them.
    """
    return Style.IMPLICIT if level >= Style.IMPLICIT else Style.EXPLICIT


class Span(NamedTuple):
    """What a transaction has written to one partition: its first and last offset, and the number of its records."""

    topic: str
    partition: int
    first_offset: int
    last_offset: int
    records: int
