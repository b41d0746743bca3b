"""A range of offsets of one topic-partition, which is what a task reads."""

from __future__ import annotations

from typing import NamedTuple

from spark_producer.common.cluster import TopicPartition


class OffsetRange(NamedTuple):
    """The offsets from `start` (inclusive) to `end` (exclusive) of a topic-partition. Not each of them needs to have a record."""

    topic_partition: TopicPartition
    start: int
    end: int
