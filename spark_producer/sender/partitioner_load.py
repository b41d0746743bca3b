"""The state of queues, brokers and topics for partitioners, computed on demand.

Task threads call it once per run of rows. Waiting batches are counted only then, over the partitions that have some, so that the
sender has no cost.
"""

from __future__ import annotations

from collections.abc import Mapping

from spark_producer.accumulator import RecordAccumulator
from spark_producer.common.cluster import NO_LEADER, Node, TopicInfo
from spark_producer.partitioner import LoadStatistics, TopicPartitions, describe_topic
from spark_producer.sender.metadata import Metadata
from spark_producer.sender.sender import Sender

MAX_TOPICS_FACTOR = 2
"""Maximum ratio of described topics to topics in use, above which descriptions of other topics are dropped."""


class ProducerLoad:
    """The `LoadView` of a producer: queues from the accumulator, and the nodes that were stalled in the sender's last step."""

    def __init__(self, accumulator: RecordAccumulator, sender: Sender) -> None:
        self._accumulator = accumulator
        self._sender = sender

    def statistics(self, topic: str) -> LoadStatistics:
        """Return the number of waiting batches by partition, and the stalled nodes."""
        return LoadStatistics(self._accumulator.queue_lengths(topic), self._sender.stalled)

    def free_bytes(self, topic: str, partition: int) -> int:
        """Return the bytes that still fit into the open batch of a partition."""
        return self._accumulator.free_bytes(topic, partition)

    def full_size(self, topic: str, batch_size: int) -> int:
        """Return the bytes, before compression, with which a new batch is full; at least `batch_size`."""
        return max(batch_size, self._accumulator.full_size(topic))


class KnownTopics:
    """The topics for partitioners. A topic is described again only if a response has changed it, or the nodes."""

    def __init__(self, metadata: Metadata, rack: str) -> None:
        """`rack` is the producer's rack; empty if racks are ignored."""
        self._metadata = metadata
        self._rack = rack
        self._described: dict[str, tuple[TopicInfo, Mapping[int, Node], TopicPartitions]] = {}

    def describe(self, name: str, info: TopicInfo) -> TopicPartitions:
        """Return the description of an existing topic, with its partitions, for a partitioner."""
        cluster = self._metadata.cluster
        known = self._described.get(name)
        if known is None or known[0] is not info or known[1] is not cluster.nodes:
            # A leader whose address is unknown counts as none, as in `Cluster.leader_of`: nothing can be sent to it.
            leaders = tuple(leader if leader in cluster.nodes else NO_LEADER for leader in info.leaders)
            racks = {number: node.rack for number, node in cluster.nodes.items()}
            described = describe_topic(name, leaders, racks, self._rack)
            if known is None and len(self._described) > MAX_TOPICS_FACTOR * max(MAX_TOPICS_FACTOR, len(cluster.topics)):
                self._described = {each: self._described[each] for each in cluster.topics if each in self._described}
            known = self._described[name] = info, cluster.nodes, described
        return known[2]
