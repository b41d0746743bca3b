"""The requests of a reader: Fetch, ListOffsets and Metadata."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from spark_producer.consumer.known_cluster import KnownCluster
from spark_producer.consumer.partition_fetch import LookUp, PartitionFetch
from spark_producer.consumer.settings import FetchSettings
from spark_producer.protocol import FETCH, FETCH_BY_ID, LIST_OFFSETS, METADATA, AnyApi
from spark_producer.protocol.messages import (
    NO_UUID,
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
    MetadataRequest,
    MetadataRequestTopic,
)


class Request(NamedTuple):
    """A request to be sent to `node`, for `partitions`.

    The response to a Fetch has at most `max_bytes`, unless its first batch has more.
    """

    node: int
    api: AnyApi
    body: Any
    partitions: tuple[PartitionFetch, ...] = ()
    max_bytes: int = 0


def fetch_request(
    node: int,
    partitions: Sequence[PartitionFetch],
    max_bytes: int,
    settings: FetchSettings,
    cluster: KnownCluster,
    topic_ids: Mapping[str, bytes],
) -> Request:
    """Return the request for the next batches of `partitions`, in this order: `max_bytes`, or less if they need less.

    Brokers that can fetch by topic id then serve no other topic of the same name (KIP-516). Without the id of one topic the
    request is by names.
    """
    by_topic: dict[str, list[FetchPartition]] = {}
    needed = 0
    for each in partitions:
        topic, partition = each.topic_partition
        leader = cluster.leader_of(each.topic_partition)
        wanted = each.wanted_bytes(settings.partition_bytes)
        needed += wanted
        row = FetchPartition(
            partition=partition,
            current_leader_epoch=-1 if leader is None else leader.epoch,
            fetch_offset=each.position,
            partition_max_bytes=wanted,
        )
        by_topic.setdefault(topic, []).append(row)
    max_bytes = min(max_bytes, needed)
    body = FetchRequest(
        max_wait_ms=settings.max_wait_ms,
        min_bytes=min(settings.min_bytes, 1),  # all records of a range exist: more could only delay the last response
        max_bytes=max_bytes,
        isolation_level=settings.isolation,
        topics=tuple(FetchTopic(topic, topic_ids.get(topic, NO_UUID), tuple(rows)) for topic, rows in by_topic.items()),
        rack_id=settings.client_rack,
    )
    has_ids = all(topic.topic_id != NO_UUID for topic in body.topics)
    return Request(node, FETCH_BY_ID if has_ids else FETCH, body, tuple(partitions), max_bytes)


def look_up_request(node: int, state: PartitionFetch, look_up: LookUp, leader_epoch: int) -> Request:
    """Return the request for the start or the end of a log. The end is the high watermark, with every isolation level."""
    topic, partition = state.topic_partition
    wanted = ListOffsetsPartition(partition, leader_epoch, int(look_up))
    return Request(node, LIST_OFFSETS, ListOffsetsRequest(topics=(ListOffsetsTopic(topic, (wanted,)),)), (state,))


def metadata_request(node: int, topics: Iterable[str]) -> Request:
    """Return the request for the leaders of `topics`, which it does not create."""
    wanted = tuple(MetadataRequestTopic(name=topic) for topic in topics)
    return Request(node, METADATA, MetadataRequest(wanted, allow_auto_topic_creation=False))
