"""Fetch requests for a partition's log, from an offset on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from spark_producer.common.cluster import TopicPartition
from spark_producer.common.isolation_level import IsolationLevel
from spark_producer.exactly_once.cluster.broker_requests import TransactionAdmin
from spark_producer.protocol import FETCH
from spark_producer.protocol.messages import FetchPartition, FetchRequest, FetchTopic

SOME_BYTES = 1 << 20


def read_at(
    brokers: TransactionAdmin, tp: TopicPartition, position: int, deadline: float, size: int = SOME_BYTES
) -> Any:
    """Return the leader's response for up to `size` bytes from offset `position` on; None if the partition does not exist."""

    def build_request(_: object) -> tuple[Any, FetchRequest]:
        return FETCH, fetch_request(brokers, tp, position, IsolationLevel.READ_UNCOMMITTED, size)

    return brokers.request_leaders([tp], build_request, rows_of, deadline).get(tp)


def fetch_request(
    brokers: TransactionAdmin, tp: TopicPartition, position: int, isolation: int, size: int
) -> FetchRequest:
    """Return the request. A deposed leader that does not know it refuses the request by its leader epoch."""
    topic, partition = tp
    wanted = FetchPartition(partition, brokers.epoch_of(tp), position, partition_max_bytes=size)
    return FetchRequest(max_bytes=size, isolation_level=isolation, topics=(FetchTopic(topic, partitions=(wanted,)),))


def rows_of(response: Any) -> Iterator[tuple[TopicPartition, Any]]:
    """Return the rows of a response by partition."""
    return (
        (TopicPartition(topic.topic, row.partition_index), row)
        for topic in response.responses
        for row in topic.partitions
    )
