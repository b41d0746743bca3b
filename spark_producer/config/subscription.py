"""What a read subscribes to (Spark's ConsumerStrategy): topics, a pattern of their names, or topic-partitions."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from spark_producer.common.cluster import TopicPartition
from spark_producer.config.partition_json import partitions_of
from spark_producer.config.topic_pattern import check_pattern
from spark_producer.errors import ConfigError

if TYPE_CHECKING:
    from spark_producer.config.source_options import SourceOptions

_CHOICES = "one of subscribe, subscribePattern and assign"
_TOPIC_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")
"""The names that topics can have (Kafka's Topic.validate), without `.` and `..`."""


@dataclass(frozen=True)
class Subscribe:
    """Topics by name, in the order of the option, each once."""

    topics: tuple[str, ...]


@dataclass(frozen=True)
class SubscribePattern:
    """All topics in whose names a regular expression is found, as Spark's source means it (`findFirstIn`)."""

    regex: str

    def matches(self, topic: str) -> bool:
        """Return whether a part of a topic's name matches."""
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


def check_topic(option: str, topic: str) -> None:
    """Refuse what cannot be the name of a topic.

    Raises:
        ConfigError: it cannot.
    """
    if _TOPIC_NAME.fullmatch(topic) and topic not in (".", ".."):
        return
    pattern = " For a pattern of names set subscribePattern." if option == "subscribe" and "*" in topic else ""
    raise ConfigError(
        f"{option} names {topic!r}, which is not a topic name: a name has 1 to 249 letters, digits, '.', '_' and '-'.{pattern} "
        "Correct it"
    )
