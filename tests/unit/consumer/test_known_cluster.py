"""Metadata that a reader keeps between two reads, and metadata that it drops."""

from __future__ import annotations

import pytest

from spark_producer.common.cluster import TopicPartition
from spark_producer.common.error_codes import Code
from spark_producer.consumer.known_cluster import MAX_UNUSED_S, KnownCluster
from spark_producer.errors import BrokerError
from spark_producer.protocol import is_misrouted
from spark_producer.protocol.messages import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

BROKER = "broker 1 at broker1:9092"
BROKERS = (MetadataResponseBroker(1, "broker1", 9092),)


def test_topics_that_no_read_uses_are_forgotten() -> None:
    cluster = KnownCluster()
    for hour in range(50):
        topic = f"t{hour}"
        cluster.use([topic, "always"], 3600.0 * hour)
        partitions = (MetadataResponsePartition(0, 0, 1, 7),)
        topics = tuple(MetadataResponseTopic(0, name, b"i" * 16, partitions=partitions) for name in (topic, "always"))
        cluster.learn(MetadataResponse(brokers=BROKERS, topics=topics), BROKER)
        for name in (topic, "always"):
            cluster.bytes_per_offset[TopicPartition(name, 0)] = 10.0
    assert MAX_UNUSED_S < 3600
    assert set(cluster.topic_ids) == {"t49", "always"}
    assert set(cluster.bytes_per_offset) == {TopicPartition("t49", 0), TopicPartition("always", 0)}
    assert cluster.leader_of(TopicPartition("t48", 0)) is None
    assert cluster.leader_of(TopicPartition("t49", 0)) is not None
    cluster.use(["t49"], 3600.0 * 49 + MAX_UNUSED_S)
    assert cluster.leader_of(TopicPartition("always", 0)) is not None, "it was used not long ago"


def response(leader: int = 1, cluster_id: str | None = "ours", error_code: int = 0) -> MetadataResponse:
    topics = (MetadataResponseTopic(0, "t", b"i" * 16, partitions=(MetadataResponsePartition(0, 0, leader, 7),)),)
    brokers = (*BROKERS, MetadataResponseBroker(2, "broker2", 9092))
    return MetadataResponse(brokers=brokers, topics=topics, cluster_id=cluster_id, error_code=error_code)


@pytest.mark.covers("NW9")
@pytest.mark.parametrize(
    ("cluster_id", "code", "text"),
    [
        ("theirs", 0, "broker 1 at broker1:9092 is of cluster 'theirs', not of 'ours'. What to do: see where"),
        ("ours", Code.REBOOTSTRAP_REQUIRED, "REBOOTSTRAP_REQUIRED (129) for Metadata of broker 1 at broker1:9092."),
    ],
)
def test_a_response_of_another_cluster_drops_what_is_known(cluster_id: str, code: int, text: str) -> None:
    """So does one that demands it (KIP-1102). The bootstrap servers then decide."""
    cluster = KnownCluster()
    assert cluster.learn(response(), BROKER) is None
    problem = cluster.learn(response(2, cluster_id, code), BROKER)
    assert str(problem).startswith(text)
    assert is_misrouted(problem)
    assert (cluster.brokers, cluster.leader_of(TopicPartition("t", 0))) == ({}, None)
    assert cluster.learn(response(2, "theirs"), BROKER) is None
    assert cluster.identity.cluster_id == "theirs"


@pytest.mark.covers("NW9")
@pytest.mark.parametrize(("cluster_id", "checks"), [("ours", True), (None, True), ("theirs", False)])
def test_a_response_is_used_if_there_is_nothing_to_check(cluster_id: str | None, checks: bool) -> None:
    cluster = KnownCluster(checks=checks)
    cluster.learn(response(), BROKER)
    assert cluster.learn(response(2, cluster_id), BROKER) is None
    leader = cluster.leader_of(TopicPartition("t", 0))
    assert leader is not None
    assert leader.node == 2


def test_a_response_with_another_error_changes_nothing() -> None:
    cluster = KnownCluster()
    cluster.learn(response(), BROKER)
    problem = cluster.learn(response(2, "ours", Code.UNKNOWN_SERVER_ERROR), BROKER)
    assert isinstance(problem, BrokerError)
    assert problem.code is Code.UNKNOWN_SERVER_ERROR
    leader = cluster.leader_of(TopicPartition("t", 0))
    assert leader is not None
    assert leader.node == 1
