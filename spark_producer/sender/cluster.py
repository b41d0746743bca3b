"""The snapshot of a cluster: nodes, topics, leaders, and how an answer of the brokers changes it.

Owns: values, which are immutable, so that any thread may read them. (Spec: kafka_producer.md §2.15.)
Must not know: when brokers are asked.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import NamedTuple

from spark_producer.accumulator import NO_LEADER, TopicPartition
from spark_producer.codes import Code
from spark_producer.protocol.messages import MetadataResponse, MetadataResponseTopic


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

    nodes: Mapping[int, tuple[str, int]]
    topics: Mapping[str, TopicInfo]
    racks: Mapping[int, str | None] = MappingProxyType({})
    number: int = 0

    def leader_of(self, place: TopicPartition) -> tuple[int, int]:
        """The node that leads a partition (-1 if unknown, or if its address is) and the leader's epoch."""
        topic, partition = place
        info = self.topics.get(topic)
        if info is None or partition >= len(info.leaders):
            return NO_LEADER, -1
        leader = info.leaders[partition]
        return leader if leader in self.nodes else NO_LEADER, info.leader_epochs[partition]

    def replace(
        self,
        nodes: Mapping[int, tuple[str, int]] | None = None,
        topics: Mapping[str, TopicInfo] | None = None,
        racks: Mapping[int, str | None] | None = None,
    ) -> Cluster:
        """The next snapshot; this one if nothing differs. What did not change stays the same object."""
        new_nodes = self.nodes if nodes is None or nodes == self.nodes else nodes
        new_topics = self.topics if topics is None or topics == self.topics else topics
        new_racks = self.racks if racks is None or racks == self.racks else racks
        if new_nodes is self.nodes and new_topics is self.topics and new_racks is self.racks:
            return self
        return Cluster(new_nodes, new_topics, new_racks, self.number + 1)

    def without(self, topics: Collection[str]) -> Cluster:
        """The next snapshot, with these topics forgotten."""
        return self.replace(topics={name: info for name, info in self.topics.items() if name not in topics})


def describe(response: MetadataResponse, cluster: Cluster) -> dict[str, TopicInfo]:
    """The topics of an answer, also those with an error, in the light of what is known."""
    return {topic.name: _topic(topic, cluster.topics.get(topic.name)) for topic in response.topics if topic.name}


def merge(
    cluster: Cluster, response: MetadataResponse, asked: Collection[str], told: Mapping[str, TopicInfo]
) -> Cluster:
    """The snapshot after an answer to a question for the topics `asked`: what it does not name, or with an error, is gone."""
    topics = dict(cluster.topics)
    for name in asked:
        info = told.get(name)
        if info is None or info.error_code:
            topics.pop(name, None)
        else:
            topics[name] = info
    nodes = {broker.node_id: (broker.host, broker.port) for broker in response.brokers}
    return cluster.replace(nodes, topics, {broker.node_id: broker.rack for broker in response.brokers})


def apply_hints(
    cluster: Cluster, hints: Mapping[TopicPartition, tuple[int, int]], endpoints: Mapping[int, tuple[str, int]]
) -> Cluster:
    """The snapshot after leaders and epochs that refused Produce requests name (KIP-951): those count that are newer than
    what is known, and whose address is known."""
    nodes = {**cluster.nodes, **endpoints}
    topics = dict(cluster.topics)
    for (topic, partition), (leader, epoch) in hints.items():
        info = topics.get(topic)
        if info is None or partition >= len(info.leaders) or leader not in nodes:
            continue
        if epoch > info.leader_epochs[partition]:
            topics[topic] = info._replace(
                leaders=_with(info.leaders, partition, leader),
                leader_epochs=_with(info.leader_epochs, partition, epoch),
            )
    return cluster if topics == cluster.topics else cluster.replace(nodes, topics)


def _topic(topic: MetadataResponseTopic, known: TopicInfo | None) -> TopicInfo:
    """A partition whose answer is older than what is known keeps the newer leader; a topic made anew starts anew.

    An answer that leaves partitions out, or counts one twice, is not used: rows would go to others than their keys say. It is as
    if the topic were still being made. The same object as before if nothing differs.
    """
    if known and known.topic_id != topic.topic_id:
        known = None
    rows = sorted(topic.partitions, key=lambda partition: partition.partition_index)
    if [row.partition_index for row in rows] != list(range(len(rows))):
        return TopicInfo(topic.error_code or Code.LEADER_NOT_AVAILABLE, (), (), topic.topic_id)
    leaders, epochs = [], []
    for partition in rows:
        leader, epoch = partition.leader_id, partition.leader_epoch
        if known and len(known.leaders) > partition.partition_index:
            newest = known.leader_epochs[partition.partition_index]
            if 0 <= epoch < newest:
                leader, epoch = known.leaders[partition.partition_index], newest
        leaders.append(leader)
        epochs.append(epoch)
    found = TopicInfo(topic.error_code, tuple(leaders), tuple(epochs), topic.topic_id)
    return known if found == known and known is not None else found


def _with(values: tuple[int, ...], index: int, value: int) -> tuple[int, ...]:
    return (*values[:index], value, *values[index + 1 :])
