"""Metadata that a reader keeps between two reads, and metadata that it drops."""

from __future__ import annotations

from spark_producer.common.cluster import TopicPartition
from spark_producer.consumer.known_cluster import MAX_UNUSED_S, KnownCluster
from spark_producer.protocol.messages import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

BROKERS = (MetadataResponseBroker(1, "broker1", 9092),)


def test_topics_that_no_read_uses_are_forgotten() -> None:
    cluster = KnownCluster()
    for hour in range(50):
        topic = f"t{hour}"
        cluster.use([topic, "always"], 3600.0 * hour)
        partitions = (MetadataResponsePartition(0, 0, 1, 7),)
        topics = tuple(MetadataResponseTopic(0, name, b"i" * 16, partitions=partitions) for name in (topic, "always"))
        cluster.learn(MetadataResponse(brokers=BROKERS, topics=topics))
        for name in (topic, "always"):
            cluster.bytes_per_offset[TopicPartition(name, 0)] = 10.0
    assert MAX_UNUSED_S < 3600
    assert set(cluster.topic_ids) == {"t49", "always"}
    assert set(cluster.bytes_per_offset) == {TopicPartition("t49", 0), TopicPartition("always", 0)}
    assert cluster.leader_of(TopicPartition("t48", 0)) is None
    assert cluster.leader_of(TopicPartition("t49", 0)) is not None
    cluster.use(["t49"], 3600.0 * 49 + MAX_UNUSED_S)
    assert cluster.leader_of(TopicPartition("always", 0)) is not None, "it was used not long ago"
