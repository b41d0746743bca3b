"""The offsets of a stream in Spark's offset log: `{"topic": {"0": 123}}`, the form of Spark's Kafka source."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from spark_producer.common.cluster import TopicPartition
from spark_producer.errors import ConfigError

OffsetJson: TypeAlias = dict[str, dict[str, int]]
"""The next offset to read by topic and partition; Spark writes it as JSON."""


def to_json(offsets: Mapping[TopicPartition, int]) -> OffsetJson:
    """Return offsets as Spark gets them, in order: Spark takes equal texts for the same offsets."""
    found: OffsetJson = {}
    for (topic, partition), offset in sorted(offsets.items()):
        found.setdefault(topic, {})[str(partition)] = offset
    return found


def from_json(value: Any) -> dict[TopicPartition, int]:
    """Return the offsets that Spark hands back from its offset log.

    Raises:
        ConfigError: they are not of this form, as those of another source.
    """
    try:
        return {
            TopicPartition(topic, int(partition)): _offset(offset)
            for topic, partitions in value.items()
            for partition, offset in partitions.items()
        }
    except (AttributeError, TypeError, ValueError):
        raise ConfigError(
            f"the checkpoint has offsets of another source: {str(value)[:200]}. Give the query a new checkpointLocation"
        ) from None


def _offset(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError
    return value
