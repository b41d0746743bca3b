"""Turns the starting and ending points of a read into offsets by topic-partition, as Spark's `KafkaOffsetReaderAdmin` does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from spark_producer.admin import BlockingClient
from spark_producer.admin.partition_offsets import NO_OFFSET, list_offsets
from spark_producer.common.cluster import TopicPartition
from spark_producer.common.offsets import EARLIEST, LATEST
from spark_producer.config import SourceOptions
from spark_producer.config.offset_limits import (
    EarliestOffsets,
    GlobalTimestamp,
    LatestOffsets,
    OffsetRangeLimit,
    PartitionTimestamps,
    SpecificOffsets,
)
from spark_producer.errors import ConfigError

MAX_NAMED = 5
"""Maximum topic-partitions that a message names."""


class OffsetLookup(NamedTuple):
    """Asks the leaders of topic-partitions for offsets at one isolation level."""

    client: BlockingClient
    leaders: Mapping[TopicPartition, int]
    isolation_level: int

    def at(self, timestamps: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return the first offset at or after each timestamp in ms (EARLIEST, LATEST), `NO_OFFSET` without such a record.

        Raises: as `list_offsets`.
        """
        return list_offsets(self.client, timestamps, self.leaders, isolation_level=self.isolation_level)

    def of_all(self, timestamp: int) -> dict[TopicPartition, int]:
        """Return what `at` returns for one timestamp and all topic-partitions."""
        return self.at(dict.fromkeys(self.leaders, timestamp))


def starting_offsets(lookup: OffsetLookup, limit: OffsetRangeLimit, source: SourceOptions) -> dict[TopicPartition, int]:
    """Return the offset at which each topic-partition starts.

    Raises:
        ConfigError: JSON names other topic-partitions than those of the subscription; or no record is as late as a starting time,
            with the strategy `error`. And as `list_offsets`.
    """
    if not isinstance(limit, GlobalTimestamp | PartitionTimestamps):
        return _resolved(lookup, limit, "startingOffsets")
    option = "startingTimestamp" if isinstance(limit, GlobalTimestamp) else "startingOffsetsByTimestamp"
    times = _times(lookup, limit, option)
    may_be_latest = source.starting_offsets_by_timestamp_strategy == "latest"
    ends = lookup.of_all(LATEST) if may_be_latest else {}  # before: what arrives in between is not left out
    found = lookup.at(times)
    late = [each for each, offset in found.items() if offset == NO_OFFSET]
    if late and not may_be_latest:
        raise ConfigError(
            f"{option}: no record in {named(late)} is at or after {times[late[0]]} ms. Choose an earlier time, or set "
            "startingOffsetsByTimestampStrategy to latest"
        )
    return found | {each: ends[each] for each in late}


def ending_offsets(lookup: OffsetLookup, limit: OffsetRangeLimit) -> dict[TopicPartition, int]:
    """Return the offset before which each topic-partition ends. Without a record as late as an ending time it is the latest.

    Raises:
        ConfigError: JSON names other topic-partitions than those of the subscription. And as `list_offsets`.
    """
    if not isinstance(limit, GlobalTimestamp | PartitionTimestamps):
        return _resolved(lookup, limit, "endingOffsets")
    option = "endingTimestamp" if isinstance(limit, GlobalTimestamp) else "endingOffsetsByTimestamp"
    times = _times(lookup, limit, option)
    ends = lookup.of_all(LATEST)
    found = lookup.at(times)
    return {each: ends[each] if offset == NO_OFFSET else offset for each, offset in found.items()}


def named(topic_partitions: list[TopicPartition]) -> str:
    """Return some topic-partitions for a message: the first ones, and how many more there are."""
    by_topic: dict[str, list[str]] = {}
    for each in sorted(topic_partitions)[:MAX_NAMED]:
        by_topic.setdefault(each.topic, []).append(str(each.partition))
    text = ", ".join(
        f"topic {topic!r}, partition{'s' * (len(numbers) > 1)} {', '.join(numbers)}"
        for topic, numbers in by_topic.items()
    )
    more = len(topic_partitions) - MAX_NAMED
    return f"{text} and {more:,} more" if more > 0 else text


def _resolved(lookup: OffsetLookup, limit: OffsetRangeLimit, option: str) -> dict[TopicPartition, int]:
    match limit:
        case EarliestOffsets():
            return lookup.of_all(EARLIEST)
        case LatestOffsets():
            return lookup.of_all(LATEST)
        case SpecificOffsets(offsets):
            _check_names(lookup, offsets, option)
            return dict(offsets) | lookup.at({each: offset for each, offset in offsets.items() if offset < 0})
    raise AssertionError(limit)


def _times(
    lookup: OffsetLookup, limit: GlobalTimestamp | PartitionTimestamps, option: str
) -> Mapping[TopicPartition, int]:
    if isinstance(limit, GlobalTimestamp):
        return dict.fromkeys(lookup.leaders, limit.ms)
    _check_names(lookup, limit.ms, option)
    return limit.ms


def _check_names(lookup: OffsetLookup, given: Mapping[TopicPartition, int], option: str) -> None:
    """Check that JSON names exactly the topic-partitions of the subscription.

    Raises:
        ConfigError: it does not.
    """
    lacking, unknown = lookup.leaders.keys() - given.keys(), given.keys() - lookup.leaders.keys()
    if lacking:
        raise ConfigError(
            f"{option} lacks {named(list(lacking))}. Name each topic-partition of the subscription; -2 is the earliest offset, "
            "-1 the latest"
        )
    if unknown:
        raise ConfigError(f"{option} names {named(list(unknown))}, which the subscription does not have. Leave it out")
