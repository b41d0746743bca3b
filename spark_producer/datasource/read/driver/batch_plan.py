"""The plan of a batch: the offset ranges of its tasks."""

from __future__ import annotations

from collections.abc import Mapping

from spark_producer.admin.partition_offsets import NO_OFFSET
from spark_producer.common.cluster import TopicPartition
from spark_producer.common.error_codes import Code
from spark_producer.common.escape import escaping_logger
from spark_producer.common.isolation_level import IsolationLevel
from spark_producer.config import SourceOptions
from spark_producer.config.offset_limits import EarliestOffsets, SpecificOffsets, ending_limit, starting_limit
from spark_producer.config.subscription import subscription
from spark_producer.consumer.offset_range import OffsetRange
from spark_producer.datasource.read.driver.assignment import assigned, warn_if_empty
from spark_producer.datasource.read.driver.data_loss import within_the_log
from spark_producer.datasource.read.driver.lookup_client import connect
from spark_producer.datasource.read.driver.offset_resolution import (
    OffsetLookup,
    ending_offsets,
    named,
    starting_offsets,
)
from spark_producer.datasource.read.driver.range_splitting import tasks_of
from spark_producer.datasource.read.pushed_filters import PushedFilters
from spark_producer.datasource.read.source_settings import SourceSettings
from spark_producer.datasource.read.task_ranges import TopicRangesPartition
from spark_producer.errors import BrokerError, ConfigError

logger = escaping_logger("pyproducer")


def plan_batch(settings: SourceSettings, filters: PushedFilters) -> list[TopicRangesPartition]:
    """Return the tasks of a batch, none if there is nothing to read.

    Raises:
        TopicNotFound: a topic or partition does not exist. ConfigError: the starting or ending point does not fit.
        DataLoss: with `failOnDataLoss`, an offset is not in the log. BrokerError, KafkaTimeout, ConnectionFailed,
        AuthenticationFailed, TlsFailed: the brokers refuse, or cannot be reached.
    """
    with connect(settings) as client:
        found = assigned(client, wanted := subscription(settings.source))
        warn_if_empty(wanted, found)
        lookup = OffsetLookup(client, found.leaders, IsolationLevel.of(settings.config.isolation_level))
        ranges = _ranges(lookup, settings.source, filters)
    tasks = tasks_of(ranges, settings.source)
    offsets = sum(each.end - each.start for each in ranges)
    logger.info("a batch reads %d offsets of %d topic-partitions in %d tasks", offsets, len(ranges), len(tasks))
    return [TopicRangesPartition(task, found.topic_ids) for task in tasks]


def _ranges(lookup: OffsetLookup, source: SourceOptions, filters: PushedFilters) -> list[OffsetRange]:
    first, last = starting_limit(source, streaming=False), ending_limit(source)
    starts, ends = starting_offsets(lookup, first, source), ending_offsets(lookup, last)
    if isinstance(first, SpecificOffsets):
        starts = within_the_log(lookup, starts, "startingOffsets", fail=source.fail_on_data_loss)
    if isinstance(last, SpecificOffsets):
        ends = within_the_log(lookup, ends, "endingOffsets", fail=source.fail_on_data_loss)
    if not isinstance(first, EarliestOffsets):
        _check_order(starts, ends)
    return _filtered(lookup, starts, ends, filters)


def _check_order(starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> None:
    wrong = sorted(each for each in starts if starts[each] > ends[each])
    if wrong:
        raise ConfigError(
            f"the read ends before it starts in {named(wrong)}: {wrong[0]} starts at offset {starts[wrong[0]]} and ends at "
            f"{ends[wrong[0]]}. Correct the start or the end"
        )


def _filtered(
    lookup: OffsetLookup,
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    filters: PushedFilters,
) -> list[OffsetRange]:
    """Return the ranges that can have records which pass the filters."""
    kept = {}
    for each, end in ends.items():
        first = max(starts[each], filters.first_offset)
        last = end if filters.end_offset is None else min(end, filters.end_offset)
        if first < last and filters.keeps(each):
            kept[each] = OffsetRange(each, first, last)
    if not filters.first_timestamp or not kept:
        return list(kept.values())
    passing = _first_at(lookup, dict.fromkeys(kept, filters.first_timestamp))
    late = (each._replace(start=max(each.start, passing.get(each.topic_partition, 0))) for each in kept.values())
    return [each for each in late if each.start < each.end and passing.get(each.topic_partition) != NO_OFFSET]


def _first_at(lookup: OffsetLookup, timestamps: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Return the first offset at or after each timestamp; nothing if a log has a format without timestamps."""
    try:
        return lookup.at(timestamps)
    except BrokerError as error:
        if error.code != Code.UNSUPPORTED_FOR_MESSAGE_FORMAT:
            raise
        return {}
