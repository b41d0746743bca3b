"""How an answer of the brokers changes the snapshot of a cluster: from one to the next, without touching the first.

Brokers may lag behind each other, so of leaders the newest epoch counts (KIP-320), and leaders that a refused Produce request
names count too (KIP-951).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from spark_producer.cluster import Cluster, Node, TopicInfo, TopicPartition
from spark_producer.codes import Code
from spark_producer.protocol.messages import MetadataResponse, MetadataResponseTopic


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
    return cluster.replace(
        {broker.node_id: Node(broker.host, broker.port, broker.rack) for broker in response.brokers}, topics
    )


def apply_hints(
    cluster: Cluster, hints: Mapping[TopicPartition, tuple[int, int]], endpoints: Mapping[int, Node]
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
