"""The requests about partitions: CreatePartitions, DeleteRecords and DescribeLogDirs."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Hashable
from typing import Final

from spark_producer.broker.context import Context, HandlerResult, partition_key
from spark_producer.broker.log.partition import Partition
from spark_producer.broker.requests.admin import MAX_NEW_PARTITIONS
from spark_producer.common.error_codes import Code
from spark_producer.common.escape import escaping_logger
from spark_producer.errors import BrokerError
from spark_producer.protocol import messages

HIGH_WATERMARK: Final = -1
"""The offset that stands for the high watermark in DeleteRecords."""

_WHOLE_LOG: Final = 2**62

logger = escaping_logger(__name__)


def create_partitions(
    context: Context, _version: int, request: messages.CreatePartitionsRequest
) -> HandlerResult[messages.CreatePartitionsResponse]:
    """Give topics more partitions, or only check whether they could have them. Each topic has its own result; a name that is
    repeated is refused with one result (ControllerApis)."""
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
            more = topic.count - context.topics.check_more(topic.name, topic.count)
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
            f"each new partition must be on broker {node} alone, which is the only one",
            code=Code.INVALID_REPLICA_ASSIGNMENT,
        )


def delete_records(
    context: Context, _version: int, request: messages.DeleteRecordsRequest
) -> HandlerResult[messages.DeleteRecordsResponse]:
    """Delete the records of partitions before given offsets. If a partition is named twice, the last naming counts."""
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
            except BrokerError as error:  # the answer has no place for the reason
                logger.warning("records of topic %s, partition %d, are not deleted: %s", topic, index, error)
                results.append(messages.DeleteRecordsPartitionResult(index, error_code=error.code))
        topics.append(messages.DeleteRecordsTopicResult(topic, tuple(results)))
    return HandlerResult(messages.DeleteRecordsResponse(topics=tuple(topics)), tuple(changed))


def _delete_before(partition: Partition, offset: int) -> int:
    """Delete the records of a partition before `offset`; return where it begins then."""
    log = partition.log
    if not partition.settings.deletes:
        raise BrokerError(
            f"cleanup.policy is {partition.settings.cleanup_policy}, without delete", code=Code.POLICY_VIOLATION
        )
    end = log.high_watermark
    if offset != HIGH_WATERMARK and not 0 <= offset <= end:
        raise BrokerError(f"offset {offset} is not within 0 to {end}", code=Code.OFFSET_OUT_OF_RANGE)
    partition.delete_before(end if offset == HIGH_WATERMARK else offset)
    return log.start_offset


def describe_log_dirs(
    context: Context, _version: int, request: messages.DescribeLogDirsRequest
) -> HandlerResult[messages.DescribeLogDirsResponse]:
    """Answer with the one directory, its disk, and the bytes of the partitions asked for; those that do not exist are left out,
    as in Kafka."""
    if request.topics is None:
        wanted = {topic.name: [each.index for each in topic.partitions] for topic in context.topics}
    else:
        wanted = {topic.topic: list(dict.fromkeys(topic.partitions)) for topic in request.topics}
    topics = []
    for name, indexes in wanted.items():
        there = [_sized(context, name, index) for index in indexes if context.topics.has_partition(name, index)]
        if there:
            topics.append(messages.DescribeLogDirsTopic(name, tuple(there)))
    directory = context.topics.data_dir
    try:
        disk = shutil.disk_usage(directory)
        result = messages.DescribeLogDirsResult(Code.NONE, str(directory), tuple(topics), disk.total, disk.free)
    except OSError as error:
        logger.error("%s: the disk cannot be asked for its size: %s", directory, error)
        result = messages.DescribeLogDirsResult(Code.KAFKA_STORAGE_ERROR, str(directory))
    return HandlerResult(messages.DescribeLogDirsResponse(results=(result,)))


def _sized(context: Context, name: str, index: int) -> messages.DescribeLogDirsPartition:
    """Return the bytes of a partition; 0 of one that cannot be opened, which the broker has logged."""
    try:
        log = context.topics.partition(name, index).log
        size = log.available(log.start_offset, _WHOLE_LOG)
    except BrokerError:
        size = 0
    return messages.DescribeLogDirsPartition(index, size)
