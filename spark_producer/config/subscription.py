"""What a read subscribes to (Spark's ConsumerStrategy): topics, a pattern of their names, or topic-partitions."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from spark_producer.common.cluster import TopicPartition
from spark_producer.config.partition_json import partitions_of
from spark_producer.config.topic_names import check_topic
from spark_producer.config.topic_pattern import check_pattern
from spark_producer.errors import ConfigError

if TYPE_CHECKING:
    from spark_producer.config.source_options import SourceOptions

_CHOICES = "one of subscribe, subscribePattern and assign"


@dataclass(frozen=True)
class Subscribe:
    """Topics by name, in the order of the option, each once."""

    topics: tuple[str, ...]


@dataclass(frozen=True)
class SubscribePattern:
    """All topics whose names contain a match of a regular expression, as in Spark since 3.4.

    Spark 4 looks for the pattern anywhere in the name (SubscribePatternStrategy.assignedTopicPartitions); Kafka's own consumer
    compares the whole name.
    """

    regex: str

    def matches(self, topic: str) -> bool:
        """Return whether the name of a topic contains a match."""
        return re.search(self.regex, topic) is not None


@dataclass(frozen=True)
class Assign:
    """Topic-partitions, in the order of the option, each once."""

    topic_partitions: tuple[TopicPartition, ...]


Subscription = Subscribe | SubscribePattern | Assign


def subscription(source: SourceOptions) -> Subscription:
    """Return what the options subscribe to.

    Raises:
        ConfigError: not exactly one of the three options is set, or its value is bad.
    """
    options = {
        "subscribe": source.subscribe, "subscribePattern": source.subscribe_pattern, "assign": source.assign
    }  # fmt: skip
    given = [name for name, value in options.items() if value is not None]
    if not given:
        raise ConfigError(f'the read has no topics: {_CHOICES} must be set. Add .option("subscribe", "my-topic")')
    if len(given) > 1:
        raise ConfigError(f"{' and '.join(given)} contradict each other: a read takes {_CHOICES}. Drop the others")
    if source.subscribe is not None:
        return _subscribe(source.subscribe)
    if source.subscribe_pattern is not None:
        return _pattern(source.subscribe_pattern)
    assert source.assign is not None
    return Assign(partitions_of("assign", source.assign))


def _subscribe(text: str) -> Subscribe:
    topics = tuple(dict.fromkeys(filter(None, map(str.strip, text.split(",")))))
    if not topics:
        raise ConfigError("subscribe names no topic. Name topics, separated by commas")
    for topic in topics:
        check_topic("subscribe", topic)
    return Subscribe(topics)


def _pattern(text: str) -> SubscribePattern:
    check_pattern("subscribePattern", text.strip())
    return SubscribePattern(text.strip())
