"""The handler of ListOffsets. With the isolation level read_committed, a log ends at its last stable offset."""

from __future__ import annotations

from collections import Counter
from typing import Final

from spark_producer.broker.context import Context, HandlerResult
from spark_producer.broker.log.partition import Partition
from spark_producer.broker.log.record_times import first_record
from spark_producer.broker.requests.fetch import READ_COMMITTED, find_partition
from spark_producer.broker.storage.base import LEADER_EPOCH, TimestampOffset
from spark_producer.common.error_codes import Code
from spark_producer.common.offsets import EARLIEST, LATEST
from spark_producer.errors import BrokerError
from spark_producer.protocol import messages

MAX_TIMESTAMP: Final = -3
"""The record with the highest timestamp (Kafka's `ListOffsetsRequest.MAX_TIMESTAMP`, KIP-734)."""


def list_offsets(
    context: Context, _version: int, request: messages.ListOffsetsRequest
) -> HandlerResult[messages.ListOffsetsResponse]:
    """Return the start of each log, its end, or its first record at or after a timestamp.

    A repeated partition is refused (INVALID_REQUEST), as in Kafka.
    """
    times = Counter((topic.name, wanted.partition_index) for topic in request.topics for wanted in topic.partitions)
    topics = [
        messages.ListOffsetsTopicResponse(
            topic.name,
            tuple(
                _list_offset(context, topic.name, wanted, request.isolation_level)
                if times[topic.name, wanted.partition_index] == 1
                else messages.ListOffsetsPartitionResponse(wanted.partition_index, Code.INVALID_REQUEST)
                for wanted in topic.partitions
            ),
        )
        for topic in request.topics
    ]
    return HandlerResult(messages.ListOffsetsResponse(topics=tuple(topics)))


def _list_offset(
    context: Context, topic: str, wanted: messages.ListOffsetsPartition, isolation_level: int
) -> messages.ListOffsetsPartitionResponse:
    try:
        partition = find_partition(context, topic, wanted.partition_index, wanted.current_leader_epoch)
        found = _lookup(partition, wanted.timestamp, _end_of_reading(partition, isolation_level))
    except BrokerError as error:
        return messages.ListOffsetsPartitionResponse(wanted.partition_index, error.code)
    if found is None:
        return messages.ListOffsetsPartitionResponse(wanted.partition_index)
    return messages.ListOffsetsPartitionResponse(
        wanted.partition_index, Code.NONE, found.timestamp, found.offset, LEADER_EPOCH
    )


def _lookup(partition: Partition, timestamp: int, end: int) -> TimestampOffset | None:
    """Return the result below the offset `end`, at which reading ends (Kafka's Partition.fetchOffsetForTimestamp)."""
    log = partition.log
    if timestamp == LATEST:
        return TimestampOffset(-1, end)
    if timestamp == EARLIEST:
        return TimestampOffset(-1, log.start_offset)
    if timestamp < 0 and timestamp != MAX_TIMESTAMP:
        raise BrokerError(f"unknown timestamp {timestamp}", code=Code.UNSUPPORTED_VERSION)
    batch = log.latest_timestamp() if timestamp == MAX_TIMESTAMP else log.offset_for_timestamp(timestamp)
    if batch is None or batch.offset >= end:
        return None
    found = first_record(log, batch, batch.timestamp if timestamp == MAX_TIMESTAMP else timestamp)
    return found if found is not None and found.offset < end else None


def _end_of_reading(partition: Partition, isolation_level: int) -> int:
    return partition.last_stable_offset if isolation_level == READ_COMMITTED else partition.log.high_watermark
