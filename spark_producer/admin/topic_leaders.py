"""The leaders of a topic's partitions in a Metadata response, with the checks that a broker's response needs."""

from __future__ import annotations

from typing import NamedTuple

from spark_producer.common.cluster import NO_LEADER
from spark_producer.common.error_codes import Code
from spark_producer.errors import TopicNotFound
from spark_producer.protocol.messages import MetadataResponse


class TopicLeaders(NamedTuple):
    """The leader of each partition of a topic (-1: none now), or the error code; in the form that `TopicWait` takes."""

    error_code: int
    leaders: tuple[int, ...]


def topic_leaders(response: MetadataResponse, topic: str) -> TopicLeaders:
    """Return the leaders of `topic` in `response`.

    As in the producer (`Cluster.leader_of`, `cluster_updates`), a leader that is not among the brokers of the response counts as
    none, and a topic whose partitions do not count from 0 as one that is still being created.
    """
    if response.error_code:
        return TopicLeaders(response.error_code, ())
    found = next((row for row in response.topics if row.name == topic), None)
    if found is None:
        return TopicLeaders(Code.UNKNOWN_TOPIC_OR_PARTITION, ())
    rows = sorted(found.partitions, key=lambda row: row.partition_index)
    if [row.partition_index for row in rows] != list(range(len(rows))):
        return TopicLeaders(found.error_code or Code.LEADER_NOT_AVAILABLE, ())
    brokers = {broker.node_id for broker in response.brokers}
    leaders = (row.leader_id if row.leader_id in brokers or not brokers else NO_LEADER for row in rows)
    return TopicLeaders(found.error_code, tuple(leaders))


def missing_partition(called: str, topic: str, partition: int | None, count: int) -> TopicNotFound:
    """Return the error about a partition that a topic of `count` partitions does not have."""
    text = f"{called} {topic!r} has no partition {partition}: it has {count}, and the first is 0. Correct the number"
    return TopicNotFound(text, code=Code.UNKNOWN_TOPIC_OR_PARTITION, topic=topic, partition=partition)
