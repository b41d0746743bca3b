"""What one Spark task reads: the offset ranges that travel from the driver to a worker."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql.datasource import InputPartition

from spark_producer.consumer.offset_range import OffsetRange


class TopicRangesPartition(InputPartition):
    """The offset ranges of one task, each of another topic-partition. Of `topic_ids` it keeps those of its topics."""

    def __init__(self, ranges: tuple[OffsetRange, ...], topic_ids: Mapping[str, bytes]) -> None:
        self.ranges = ranges
        topics = {each.topic_partition.topic for each in ranges}
        self.topic_ids = {name: topic_ids[name] for name in topics if name in topic_ids}
