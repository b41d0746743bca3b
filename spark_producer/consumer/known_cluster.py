"""What a reader knows of a cluster: its brokers and leaders, from Metadata responses, and the size of records."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from spark_producer.common.cluster import TopicPartition
from spark_producer.common.error_codes import Code
from spark_producer.errors import PyProducerError, broker_error
from spark_producer.protocol import ClusterIdentity
from spark_producer.protocol.messages import MetadataResponse, MetadataResponseTopic

MAX_UNUSED_S = 600.0
"""Maximum seconds from the start of the last read of a topic for which it stays known; then the next read forgets it."""


class Leader(NamedTuple):
    """The broker that leads a partition, and its leader epoch (-1: unknown), which shows former leaders (KIP-320)."""

    node: int
    epoch: int


class KnownCluster:
    """The brokers and leaders of the newest Metadata responses. It outlives a read, since errors correct it."""

    def __init__(self, *, checks: bool = True) -> None:
        """With `checks` responses of another cluster than that of the first one are not used (KIP-1242)."""
        self.identity = ClusterIdentity(checks=checks)
        self.brokers: dict[int, tuple[str, int]] = {}
        self.topic_ids: dict[str, bytes] = {}
        """The ids of the topics (KIP-516) whose leaders are known."""
        self.bytes_per_offset: dict[TopicPartition, float] = {}
        """The size of an offset in the last response for each partition."""
        self._leaders: dict[TopicPartition, Leader] = {}
        self._used: dict[str, float] = {}
        """The time of the last read of each topic."""

    def use(self, topics: Iterable[str], now: float) -> None:
        """Record that a read of `topics` begins, and forget the topics that no read has used for `MAX_UNUSED_S`.

        Otherwise a worker that reads ever new topics would keep all of them.
        """
        self._used |= dict.fromkeys(topics, now)
        for topic in [topic for topic, used in self._used.items() if now - used > MAX_UNUSED_S]:
            del self._used[topic]
            self.topic_ids.pop(topic, None)
            for known in (self._leaders, self.bytes_per_offset):
                for topic_partition in [each for each in known if each.topic == topic]:
                    del known[topic_partition]

    def leader_of(self, topic_partition: TopicPartition) -> Leader | None:
        """Return the leader of a partition; None if it is unknown."""
        return self._leaders.get(topic_partition)

    def forget(self, topic_partition: TopicPartition) -> None:
        """Drop the leader of a partition, so that it is looked up again."""
        self._leaders.pop(topic_partition, None)

    def clear(self) -> None:
        """Drop all brokers and leaders, so that the bootstrap servers are asked."""
        self.brokers = {}
        self._leaders.clear()
        self.identity.forget()

    def learn(self, response: MetadataResponse, broker: str) -> PyProducerError | None:
        """Take over the brokers of a response, and the leaders of its topics that are among these brokers; return None.

        Otherwise return the error for which the response is not used. If the bootstrap servers must be asked again, what is known
        is dropped. `broker` is the name of the sender (`broker_name`).
        """
        problem = self.identity.accept(response, broker)
        if problem is not None:
            self.clear()
            return problem
        if response.error_code:
            return broker_error(response.error_code, f"Metadata of {broker}")
        self.brokers = {row.node_id: (row.host, row.port) for row in response.brokers} or self.brokers
        for topic in response.topics:
            self.topic_ids[topic.name or ""] = topic.topic_id
            for row in topic.partitions:
                topic_partition = TopicPartition(topic.name or "", row.partition_index)
                self.forget(topic_partition)
                if not topic.error_code and row.leader_id in self.brokers:
                    self._leaders[topic_partition] = Leader(row.leader_id, row.leader_epoch)
        return None


def errors_of(topics: Mapping[str, MetadataResponseTopic | None]) -> Callable[[TopicPartition], int]:
    """Return a function that gives the error code of a partition in a Metadata response.

    `topics` has the row of each requested topic, or None if the response lacks it. The code is that of the topic, or
    UNKNOWN_TOPIC_OR_PARTITION if the row or the partition is missing, or 0.
    """
    codes = {name: row.error_code if row is not None else Code.NONE for name, row in topics.items()}
    known = {(name, each.partition_index) for name, row in topics.items() if row is not None for each in row.partitions}

    def error_of(topic_partition: TopicPartition) -> int:
        missing = topic_partition not in known
        return codes[topic_partition.topic] or (Code.UNKNOWN_TOPIC_OR_PARTITION if missing else Code.NONE)

    return error_of
