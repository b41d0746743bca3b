"""Offsets of a range that are not in the log any more: the error or the warning about them."""

from __future__ import annotations

from spark_producer.common.cluster import TopicPartition
from spark_producer.common.escape import escaping_logger
from spark_producer.errors import DataLoss

_LOGGER = escaping_logger(__name__)

ADVICE = "or set failOnDataLoss to false to read what is left"


def report_loss(topic_partition: TopicPartition, lost: tuple[int, int], cause: str, advice: str, *, fail: bool) -> None:
    """Log a warning that the offsets `lost` (first, end) are lost; or raise it.

    Raises:
        DataLoss: `fail` is true. It has `topic_partition`, `first` and `end`.
    """
    first, end = lost
    lost_offsets = f"offsets {first} to {end - 1} are lost, because {cause}"
    if fail:
        text = f"reading {topic_partition} failed: {lost_offsets}. What to do: {advice}, {ADVICE}."
        raise DataLoss(text, topic_partition=topic_partition, first=first, end=end)
    _LOGGER.warning("%s: %s. Reading goes on without them (failOnDataLoss is false).", topic_partition, lost_offsets)
