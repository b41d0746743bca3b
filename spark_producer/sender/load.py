"""What the partitioners may know of queues and brokers, gathered when they ask.

Owns: the `LoadView` of a producer, and what is kept of each topic. Must not know: what a partitioner does with it.
Called by task threads, once per run of rows: what waits is counted then, over the partitions of the topic that have
something waiting, and the sender pays nothing for it.
"""

from __future__ import annotations

from collections.abc import Mapping

from spark_producer.accumulator import RecordAccumulator
from spark_producer.cluster import NO_LEADER, Node, TopicInfo
from spark_producer.partitioner import LoadStatistics, TopicPartitions, describe_topic
from spark_producer.sender.metadata import Metadata
from spark_producer.sender.sender import Sender

MOST_TOPICS_FACTOR = 2
"""So many times the topics in use may be described, before the descriptions of topics that are no longer in use are dropped."""


class ProducerLoad:
    """Queues from the accumulator, stalled nodes as of the sender's last pass."""

    def __init__(self, accumulator: RecordAccumulator, sender: Sender) -> None:
        self._accumulator = accumulator
        self._sender = sender

    def statistics(self, topic: str) -> LoadStatistics:
        """Batches waiting by partition, and the stalled nodes."""
        return LoadStatistics(self._accumulator.queue_lengths(topic), self._sender.stalled)

    def tail_room(self, topic: str, partition: int) -> int:
        """Bytes that the open batch of a partition still takes."""
        return self._accumulator.tail_room(topic, partition)

    def full_size(self, topic: str, batch_size: int) -> int:
        """Bytes, before compression, with which a new batch is full; at least `batch_size`."""
        return max(batch_size, self._accumulator.full_size(topic))


class KnownTopics:
    """The topics as partitioners see them, each described anew only when an answer of the brokers changed it, or the nodes."""

    def __init__(self, metadata: Metadata, rack: str) -> None:
        """`rack`: that of the producer, empty if racks play no part."""
        self._metadata = metadata
        self._rack = rack
        self._described: dict[str, tuple[TopicInfo, Mapping[int, Node], TopicPartitions]] = {}

    def describe(self, name: str, info: TopicInfo) -> TopicPartitions:
        """The partitions of a topic that exists."""
        cluster = self._metadata.cluster
        known = self._described.get(name)
        if known is None or known[0] is not info or known[1] is not cluster.nodes:
            # Nothing can be sent to a leader whose address is unknown, as `Cluster.leader_of` says.
            leaders = tuple(leader if leader in cluster.nodes else NO_LEADER for leader in info.leaders)
            racks = {number: node.rack for number, node in cluster.nodes.items()}
            described = describe_topic(name, leaders, racks, self._rack)
            if known is None and len(self._described) > MOST_TOPICS_FACTOR * max(
                MOST_TOPICS_FACTOR, len(cluster.topics)
            ):
                self._described = {each: self._described[each] for each in cluster.topics if each in self._described}
            known = self._described[name] = info, cluster.nodes, described
        return known[2]
