"""What one Spark task reads: the offset ranges that travel from the driver to a worker."""

from __future__ import annotations

from pyspark.sql.datasource import InputPartition

from spark_producer.consumer.offset_range import OffsetRange


class TopicRangesPartition(InputPartition):
    """The offset ranges of one task, each of another topic-partition."""

    def __init__(self, ranges: tuple[OffsetRange, ...]) -> None:
        self.ranges = ranges
