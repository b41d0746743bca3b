"""Plain values that describe a cluster: nodes, topics, partition leaders, and the version of its transactions."""

from __future__ import annotations

import enum
from collections.abc import Collection, Mapping
from typing import NamedTuple

NO_LEADER = -1
"""Node id of a partition that has no leader now, or whose leader is unknown."""


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
    """A broker: host and port of its listener, and its rack if it has one (`broker.rack`)."""

    host: str
    port: int
    rack: str | None = None


class TopicInfo(NamedTuple):
    """A topic in a Metadata response: its error code, and the leader of each partition (-1 for none now)."""

    error_code: int
    leaders: tuple[int, ...]
    leader_epochs: tuple[int, ...]
    topic_id: bytes


class Cluster(NamedTuple):
    """A snapshot of the cluster: all Metadata responses merged. The newest response counts, or the one with a newer leader epoch.

    `topics` has the topics that exist. `number` differs between snapshots with different contents.
    """

    nodes: Mapping[int, Node]
    topics: Mapping[str, TopicInfo]
    number: int = 0

    @property
    def addresses(self) -> dict[int, tuple[str, int]]:
        """Return host and port of each node."""
        return {number: (node.host, node.port) for number, node in self.nodes.items()}

    def leader_of(self, tp: TopicPartition) -> tuple[int, int]:
        """Return the leader of a partition and its leader epoch. The leader is -1 if it, or its address, is unknown."""
        topic, partition = tp
        info = self.topics.get(topic)
        if info is None or partition >= len(info.leaders):
            return NO_LEADER, -1
        leader = info.leaders[partition]
        return leader if leader in self.nodes else NO_LEADER, info.leader_epochs[partition]

    def replace(
        self, nodes: Mapping[int, Node] | None = None, topics: Mapping[str, TopicInfo] | None = None
    ) -> Cluster:
        """Return a new snapshot, or this one if nothing differs. Unchanged parts stay the same objects."""
        new_nodes = self.nodes if nodes is None or nodes == self.nodes else nodes
        new_topics = self.topics if topics is None or topics == self.topics else topics
        if new_nodes is self.nodes and new_topics is self.topics:
            return self
        return Cluster(new_nodes, new_topics, self.number + 1)

    def without(self, topics: Collection[str]) -> Cluster:
        """Return a snapshot without these topics."""
        return self.replace(topics={name: info for name, info in self.topics.items() if name not in topics})


TRANSACTIONS = "transaction.version"
"""Name of the cluster feature whose finalized level decides the `TransactionVersion` (KIP-890)."""


class TransactionVersion(enum.IntEnum):
    """The version of the protocol of a transaction (Kafka's TransactionVersion), which does not change within one."""

    EXPLICIT = 1
    """The producer adds partitions itself: AddPartitionsToTxn up to 3, Produce up to 11, EndTxn up to 4."""
    IMPLICIT = 2
    """transaction.version 2 (KIP-890): Produce from 12 on adds its partitions, and EndTxn from 5 on raises the epoch."""


def transaction_version_at(level: int) -> TransactionVersion:
    """Return the transaction version of a cluster whose finalized level of `TRANSACTIONS` is `level` (0: no such feature).

    The API versions of the brokers do not decide: Kafka 4.3 offers the new ones even where the feature is not finalized, and
    then wedges the transactional id of a producer that uses them.
    """
    return TransactionVersion.IMPLICIT if level >= TransactionVersion.IMPLICIT else TransactionVersion.EXPLICIT


class Span(NamedTuple):
    """The records that a transaction has written to one partition: the first and last offset, and their number."""

    topic: str
    partition: int
    first_offset: int
    last_offset: int
    records: int
