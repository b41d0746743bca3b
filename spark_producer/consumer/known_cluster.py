"""What a reader knows of a cluster: its brokers, and the leader of each partition, from Metadata responses."""

from __future__ import annotations

from typing import NamedTuple

from spark_producer.common.cluster import TopicPartition
from spark_producer.common.error_codes import Code
from spark_producer.protocol.messages import MetadataResponse, MetadataResponseTopic


class Leader(NamedTuple):
    """The broker that leads a partition, and its leader epoch (-1: unknown), by which a former leader shows (KIP-320)."""

    node: int
    epoch: int


class KnownCluster:
    """The brokers and leaders of the newest Metadata responses. It outlives a read, since errors correct it."""

    def __init__(self) -> None:
        self.brokers: dict[int, tuple[str, int]] = {}
        self._leaders: dict[TopicPartition, Leader] = {}

    def leader_of(self, topic_partition: TopicPartition) -> Leader | None:
        """Return the leader of a partition; None if it is unknown."""
        return self._leaders.get(topic_partition)

    def forget(self, topic_partition: TopicPartition) -> None:
        """Drop the leader of a partition, so that it is looked up again."""
        self._leaders.pop(topic_partition, None)

    def clear(self) -> None:
        """Drop everything, since no broker can be reached."""
        self.brokers = {}
        self._leaders.clear()

    def learn(self, response: MetadataResponse) -> None:
        """Take over the brokers of a response, and the leaders of its topics that are among these brokers."""
        self.brokers = {row.node_id: (row.host, row.port) for row in response.brokers} or self.brokers
        for topic in response.topics:
            for row in topic.partitions:
                topic_partition = TopicPartition(topic.name or "", row.partition_index)
                self.forget(topic_partition)
                if not topic.error_code and row.leader_id in self.brokers:
                    self._leaders[topic_partition] = Leader(row.leader_id, row.leader_epoch)


def error_of(topic: MetadataResponseTopic | None, topic_partition: TopicPartition) -> int:
    """Return the error code of a partition in a Metadata response: that of its topic, or UNKNOWN_TOPIC_OR_PARTITION, or 0."""
    if topic is not None and topic.error_code:
        return topic.error_code
    rows = () if topic is None else topic.partitions
    known = any(row.partition_index == topic_partition.partition for row in rows)
    return Code.NONE if known else Code.UNKNOWN_TOPIC_OR_PARTITION
