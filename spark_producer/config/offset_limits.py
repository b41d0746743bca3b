"""Where a read starts and ends, as Spark's KafkaOffsetRangeLimit says it: offsets, or times for which brokers find the
offsets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from spark_producer.common.cluster import TopicPartition
from spark_producer.common.offsets import EARLIEST, LATEST
from spark_producer.config.partition_json import numbers_of
from spark_producer.errors import ConfigError

if TYPE_CHECKING:
    from spark_producer.config.source_options import SourceOptions

_OFFSETS = '{"orders":{"0":23,"1":-1}}'
_TIMES = '{"orders":{"0":1700000000000}}'


@dataclass(frozen=True)
class EarliestOffsets:
    """The first offset of each partition."""


@dataclass(frozen=True)
class LatestOffsets:
    """The offset after the last record of each partition."""


@dataclass(frozen=True)
class SpecificOffsets:
    """The offset of each partition; `EARLIEST` and `LATEST` stand for those of the partition."""

    offsets: Mapping[TopicPartition, int]


@dataclass(frozen=True)
class GlobalTimestamp:
    """The first record of each partition at or after a time, in milliseconds since 1970; or `EARLIEST`, `LATEST`."""

    ms: int


@dataclass(frozen=True)
class PartitionTimestamps:
    """The first record of each partition at or after its time, in milliseconds since 1970; or `EARLIEST`, `LATEST`."""

    ms: Mapping[TopicPartition, int]


OffsetRangeLimit = EarliestOffsets | LatestOffsets | SpecificOffsets | GlobalTimestamp | PartitionTimestamps


def starting_limit(source: SourceOptions, *, streaming: bool) -> OffsetRangeLimit:
    """Return where a read starts, with Spark's precedence: a time for all partitions, a time for each, offsets, the default.

    Raises:
        ConfigError: the value is bad, or a batch would start at the latest offset.
    """
    if source.starting_timestamp is not None:
        return GlobalTimestamp(source.starting_timestamp)
    if (by_timestamp := source.starting_offsets_by_timestamp) is not None:
        return _timestamps("startingOffsetsByTimestamp", by_timestamp)
    if source.starting_offsets is None:
        return LatestOffsets() if streaming else EarliestOffsets()
    found = _offsets("startingOffsets", source.starting_offsets)
    if not streaming:
        _refuse(found, LatestOffsets(), LATEST, "startingOffsets", "start")
    return found


def ending_limit(source: SourceOptions) -> OffsetRangeLimit:
    """Return where a batch ends, with Spark's precedence, as for its start.

    Raises:
        ConfigError: the value is bad, or the batch would end at the earliest offset.
    """
    if source.ending_timestamp is not None:
        return GlobalTimestamp(source.ending_timestamp)
    if (by_timestamp := source.ending_offsets_by_timestamp) is not None:
        return _timestamps("endingOffsetsByTimestamp", by_timestamp)
    if source.ending_offsets is None:
        return LatestOffsets()
    found = _offsets("endingOffsets", source.ending_offsets)
    _refuse(found, EarliestOffsets(), EARLIEST, "endingOffsets", "end")
    return found


def check_texts(source: SourceOptions) -> None:
    """Check the form of all offsets and times, of overridden ones too.

    Raises:
        ConfigError: one is bad.
    """
    for option, text in (("startingOffsets", source.starting_offsets), ("endingOffsets", source.ending_offsets)):
        if text is not None:
            _offsets(option, text)
    for option, text in (
        ("startingOffsetsByTimestamp", source.starting_offsets_by_timestamp),
        ("endingOffsetsByTimestamp", source.ending_offsets_by_timestamp),
    ):
        if text is not None:
            _timestamps(option, text)


def _offsets(option: str, text: str) -> OffsetRangeLimit:
    if text.lower() == "earliest":
        return EarliestOffsets()
    if text.lower() == "latest":
        return LatestOffsets()
    return SpecificOffsets(numbers_of(option, text, EARLIEST, f"earliest, latest or {_OFFSETS}"))


def _timestamps(option: str, text: str) -> PartitionTimestamps:
    return PartitionTimestamps(numbers_of(option, text, EARLIEST, _TIMES))


def _refuse(found: OffsetRangeLimit, whole: OffsetRangeLimit, offset: int, option: str, side: str) -> None:
    """Refuse a limit that is `whole`, or has `offset` for a partition: a batch with this start or end has no records."""
    name = "latest" if offset == LATEST else "earliest"
    if found == whole:
        raise ConfigError(
            f"{option} cannot be {name}: a batch that {side}s there has no records. Leave it out, or give offsets"
        )
    if isinstance(found, SpecificOffsets):
        for tp, number in found.offsets.items():
            if number == offset:
                raise ConfigError(
                    f"{option} cannot be {offset} ({name}) for {tp}: a batch that {side}s there has no records. Give an offset"
                )
