"""Creates a new snapshot of the cluster from the previous one and a response.

The metadata of a broker may be stale, so the leader with the newest epoch counts (KIP-320). Leaders in the response to a failed
Produce request count too (KIP-951).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from spark_producer.common.cluster import Cluster, Node, TopicInfo, TopicPartition
from spark_producer.common.error_codes import Code
from spark_producer.protocol.messages import MetadataResponse, MetadataResponseTopic


def describe(response: MetadataResponse, cluster: Cluster) -> dict[str, TopicInfo]:
    """Return the topics of a response, including those with an error. Known leaders with a newer epoch are kept."""
    return {topic.name: _topic(topic, cluster.topics.get(topic.name)) for topic in response.topics if topic.name}


def merge(
    cluster: Cluster, response: MetadataResponse, requested: Collection[str], described: Mapping[str, TopicInfo]
) -> Cluster:
    """Return the snapshot after a response for the topics `requested`, without those that it lacks or that have an error."""
    topics = dict(cluster.topics)
    for name in requested:
        info = described.get(name)
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
    """Return the snapshot with the leaders and epochs of failed Produce responses (KIP-951).

    A leader counts if its epoch is newer than the known one, and its address is known.
    """
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
    """Return the topic after a response; the known object if nothing differs.

    A partition keeps its known leader if the response has an older epoch. A recreated topic keeps nothing. A response without
    some partitions, or with one twice, is not used, because rows would go to other partitions than those of their keys: the topic
    is treated as if it were still being created.
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
