"""The reading of a partition's log by its leader, from an offset on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from spark_producer.common.cluster import TopicPartition
from spark_producer.exactly_once.cluster.broker_requests import TransactionAdmin
from spark_producer.exactly_once.cluster.partition_state import UNCOMMITTED
from spark_producer.protocol import FETCH
from spark_producer.protocol.messages import FetchPartition, FetchRequest, FetchTopic

SOME_BYTES = 1 << 20


def read_at(
    brokers: TransactionAdmin, tp: TopicPartition, position: int, deadline: float, size: int = SOME_BYTES
) -> Any:
    """Return the answer about what lies from `position` on, of up to `size` bytes; None if the partition does not exist."""

    def ask(_: object) -> tuple[Any, FetchRequest]:
        return FETCH, fetch_request(brokers, tp, position, UNCOMMITTED, size)

    return brokers.ask_leaders([tp], ask, rows_of, deadline).get(tp)


def fetch_request(
    brokers: TransactionAdmin, tp: TopicPartition, position: int, isolation: int, size: int
) -> FetchRequest:
    """Return the request. A leader that was deposed, and does not know it, refuses it by its leader epoch."""
    topic, partition = tp
    wanted = FetchPartition(partition, brokers.epoch_of(tp), position, partition_max_bytes=size)
    return FetchRequest(max_bytes=size, isolation_level=isolation, topics=(FetchTopic(topic, (wanted,)),))


def rows_of(answer: Any) -> Iterator[tuple[TopicPartition, Any]]:
    """Return what an answer says of each partition."""
    return (
        (TopicPartition(topic.topic, row.partition_index), row)
        for topic in answer.responses
        for row in topic.partitions
    )
