"""Divides offset ranges among tasks as Spark's Kafka source (`KafkaOffsetRangeCalculator`), but small ranges may share a task."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from spark_producer.config import SourceOptions
from spark_producer.consumer.offset_range import OffsetRange

MIN_SHARED_TASKS = 32
"""Tasks that remain at least when small ranges share tasks, so that no executor lacks work."""

MAX_SHARED_OFFSETS = 1000
"""Maximum offsets of a task that has several ranges."""


def tasks_of(ranges: Sequence[OffsetRange], source: SourceOptions) -> list[tuple[OffsetRange, ...]]:
    """Return the ranges of each task, as the options of a read say."""
    return divide(ranges, source.min_partitions, source.max_records_per_partition, source.min_records_per_partition)


def divide(
    ranges: Sequence[OffsetRange],
    min_partitions: int | None,
    max_records: int | None,
    min_records: int | None = None,
) -> list[tuple[OffsetRange, ...]]:
    """Return the ranges of each task; empty ranges have none.

    Each range is a task, or several of at most `max_records` offsets. If that gives fewer than `min_partitions` tasks, the
    largest are divided in proportion to their offsets, into about that number. With `min_records` neighbouring ranges share a
    task until their offsets reach it. Without these options small ranges share tasks only where there are many.
    """
    parts = [each for each in ranges if each.end > each.start]
    if max_records is not None:
        parts = [part for each in parts for part in _cut(each, -(-_size(each) // max_records))]
    if min_partitions is not None and min_partitions > len(parts):
        parts = _in_proportion(parts, min_partitions)
    if min_records is not None:
        return _gathered(parts, min_records, max_records)
    if min_partitions is None and max_records is None:
        return _shared(parts)
    return [(each,) for each in parts]


def _in_proportion(ranges: Sequence[OffsetRange], min_partitions: int) -> list[OffsetRange]:
    """Divide the large ranges into parts, about `min_partitions` in all; the small ones do not count in the proportion."""
    total = sum(map(_size, ranges))
    small = [each for each in ranges if _parts_of(each, total, min_partitions) == 1]
    rest = total - sum(map(_size, small))
    wanted, whole = max(min_partitions - len(small), 1), {each.topic_partition for each in small}
    parts = [1 if each.topic_partition in whole else _parts_of(each, rest, wanted) for each in ranges]
    return [part for each, count in zip(ranges, parts, strict=True) for part in _cut(each, count)]


def _parts_of(each: OffsetRange, total: int, wanted: int) -> int:
    return max(math.floor(_size(each) / total * wanted + 0.5), 1)


def _cut(each: OffsetRange, parts: int) -> Iterator[OffsetRange]:
    """Yield `parts` ranges of nearly the same size; without the empty ones of a range that has fewer offsets."""
    start = each.start
    for left in range(parts, 0, -1):
        end = start + (each.end - start) // left
        if end > start:
            yield each._replace(start=start, end=end)
        start = end


def _shared(ranges: Sequence[OffsetRange]) -> list[tuple[OffsetRange, ...]]:
    """Return tasks of neighbouring small ranges: of at least `MIN_SHARED_TASKS`, of at most `MAX_SHARED_OFFSETS` each."""
    most = max(1, len(ranges) // MIN_SHARED_TASKS)
    tasks: list[list[OffsetRange]] = []
    offsets = 0
    for each in ranges:
        offsets += _size(each)
        if tasks and len(tasks[-1]) < most and offsets <= MAX_SHARED_OFFSETS:
            tasks[-1].append(each)
        else:
            tasks.append([each])
            offsets = _size(each)
    return [tuple(task) for task in tasks]


def _gathered(
    ranges: Sequence[OffsetRange], min_records: int, max_records: int | None
) -> list[tuple[OffsetRange, ...]]:
    """Return tasks that take further ranges until they have `min_records`, but not beyond `max_records`.

    The parts of a divided range are different tasks.
    """
    tasks: list[list[OffsetRange]] = []
    offsets = 0
    for each in ranges:
        total = offsets + _size(each)
        fits = offsets < min_records and (max_records is None or total <= max_records)
        if tasks and fits and tasks[-1][-1].topic_partition != each.topic_partition:
            tasks[-1].append(each)
            offsets = total
        else:
            tasks.append([each])
            offsets = _size(each)
    return [tuple(task) for task in tasks]


def _size(each: OffsetRange) -> int:
    return each.end - each.start
