"""The handlers of CreatePartitions, DeleteRecords and DescribeLogDirs."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Hashable
from typing import Final

from spark_producer.broker.context import Context, HandlerResult, partition_key
from spark_producer.broker.log.partition import Partition
from spark_producer.broker.requests.topics import MAX_NEW_PARTITIONS
from spark_producer.common.error_codes import Code
from spark_producer.common.escape import escaping_logger
from spark_producer.errors import BrokerError
from spark_producer.protocol import messages

HIGH_WATERMARK: Final = -1
"""The offset of DeleteRecords for the high watermark."""

_WHOLE_LOG: Final = 2**62

logger = escaping_logger(__name__)


def create_partitions(
    context: Context, _version: int, request: messages.CreatePartitionsRequest
) -> HandlerResult[messages.CreatePartitionsResponse]:
    """Increase the partitions of topics, or only check whether that is possible. Each topic has its own result; a repeated name
    is refused with one result (ControllerApis)."""
    times = Counter(topic.name for topic in request.topics)
    results = {
        name: messages.CreatePartitionsTopicResult(name, Code.INVALID_REQUEST, "Duplicate topic name.")
        for name, count in times.items()
        if count > 1
    }
    left = MAX_NEW_PARTITIONS
    for topic in request.topics:
        if times[topic.name] > 1:
            continue
        results[topic.name] = messages.CreatePartitionsTopicResult(topic.name)
        try:
            more = topic.count - context.topics.check_partition_increase(topic.name, topic.count)
            _check_assignments(context, topic.assignments, more)
            left -= more
            if left < 0:
                raise BrokerError("Excessively large number of partitions per request.", code=Code.POLICY_VIOLATION)
            if not request.validate_only:
                context.topics.add_partitions(topic.name, topic.count)
        except BrokerError as error:
            results[topic.name] = messages.CreatePartitionsTopicResult(topic.name, error.code, str(error))
    return HandlerResult(messages.CreatePartitionsResponse(results=tuple(results.values())))


def _check_assignments(
    context: Context, assignments: tuple[messages.CreatePartitionsAssignment, ...] | None, more: int
) -> None:
    if assignments is None:
        return
    if len(assignments) != more:
        raise BrokerError(
            f"Attempted to add {more} additional partition(s), but only {len(assignments)} assignment(s) were specified.",
            code=Code.INVALID_REPLICA_ASSIGNMENT,
        )
    node = context.settings.node_id
    if any(assignment.broker_ids != (node,) for assignment in assignments):
        raise BrokerError(
            f"each new partition must be assigned to broker {node} alone: it is the only one",
            code=Code.INVALID_REPLICA_ASSIGNMENT,
        )


def delete_records(
    context: Context, _version: int, request: messages.DeleteRecordsRequest
) -> HandlerResult[messages.DeleteRecordsResponse]:
    """Delete the records of partitions before given offsets. The last mention of a repeated partition counts."""
    wanted = {topic.name: {each.partition_index: each.offset for each in topic.partitions} for topic in request.topics}
    changed: list[Hashable] = []
    topics = []
    for topic, offsets in wanted.items():
        results = []
        for index, offset in offsets.items():
            try:
                start = _delete_before(context.topics.partition(topic, index), offset)
                results.append(messages.DeleteRecordsPartitionResult(index, start))
                changed.append(partition_key(topic, index))
            except BrokerError as error:  # the response has no field for the reason
                logger.warning("topic %s, partition %d: records were not deleted: %s", topic, index, error)
                results.append(messages.DeleteRecordsPartitionResult(index, error_code=error.code))
        topics.append(messages.DeleteRecordsTopicResult(topic, tuple(results)))
    return HandlerResult(messages.DeleteRecordsResponse(topics=tuple(topics)), tuple(changed))


def _delete_before(partition: Partition, offset: int) -> int:
    """Delete the records of a partition before `offset`; return its new start offset."""
    log = partition.log
    if not partition.settings.deletes:
        raise BrokerError(
            f"records cannot be deleted with cleanup.policy={partition.settings.cleanup_policy}",
            code=Code.POLICY_VIOLATION,
        )
    end = log.high_watermark
    if offset != HIGH_WATERMARK and not 0 <= offset <= end:
        raise BrokerError(f"offset {offset} is out of range. Use 0 to {end}", code=Code.OFFSET_OUT_OF_RANGE)
    partition.delete_before(end if offset == HIGH_WATERMARK else offset)
    return log.start_offset


def describe_log_dirs(
    context: Context, _version: int, request: messages.DescribeLogDirsRequest
) -> HandlerResult[messages.DescribeLogDirsResponse]:
    """Return the data directory, its disk, and the sizes of the requested partitions; missing ones are left out, as in Kafka."""
    if request.topics is None:
        wanted = {topic.name: [each.index for each in topic.partitions] for topic in context.topics}
    else:
        wanted = {topic.topic: list(dict.fromkeys(topic.partitions)) for topic in request.topics}
    topics = []
    for name, indexes in wanted.items():
        there = [_sized(context, name, index) for index in indexes if context.topics.has_partition(name, index)]
        if there:
            topics.append(messages.DescribeLogDirsTopic(name, tuple(there)))
    directory = context.topics.directory.path
    try:
        disk = shutil.disk_usage(directory)
        result = messages.DescribeLogDirsResult(Code.NONE, str(directory), tuple(topics), disk.total, disk.free)
    except OSError as error:
        logger.error("%s: the size of the disk cannot be read: %s", directory, error)
        result = messages.DescribeLogDirsResult(Code.KAFKA_STORAGE_ERROR, str(directory))
    return HandlerResult(messages.DescribeLogDirsResponse(results=(result,)))


def _sized(context: Context, name: str, index: int) -> messages.DescribeLogDirsPartition:
    """Return the size of a partition; 0 if it cannot be opened, which was logged already."""
    try:
        log = context.topics.partition(name, index).log
        size = log.available(log.start_offset, _WHOLE_LOG)
    except BrokerError:
        size = 0
    return messages.DescribeLogDirsPartition(index, size)
