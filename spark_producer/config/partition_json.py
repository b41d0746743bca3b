"""JSON of options that name topic-partitions: `{"orders":[0,1]}`, or `{"orders":{"0":23}}` with a number for each, as in Spark.

It is stricter than Spark's JsonUtils, which takes the last of two values for one partition, and cuts the fraction of a number.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from spark_producer.common.cluster import TopicPartition
from spark_producer.config.option import INT32_MAX, INT64_MAX
from spark_producer.config.topic_names import check_topic
from spark_producer.errors import ConfigError

ID_SEPARATOR = "@"
"""What stands between a topic and its id in the offsets of a stream, which may be copied into an option."""

_MAX_SHOWN = 80
"""Maximum characters of a value that a message shows."""


class _Bad(ValueError):
    """A JSON text does not have the expected form; the text of the exception says why."""


def partitions_of(option: str, text: str) -> tuple[TopicPartition, ...]:
    """Return the topic-partitions of `{"orders":[0,1]}`, in order.

    Raises:
        ConfigError: the text has another form, names nothing, or names a topic-partition twice.
    """
    found: dict[TopicPartition, None] = {}
    try:
        for topic, numbers in _topics(text).items():
            check_topic(option, topic)
            if not isinstance(numbers, list):
                raise _Bad(f"topic {topic!r} has no list of partitions, but {_shown(numbers)}")
            if not numbers:
                raise _Bad(f"it names no partition of topic {topic!r}")
            for number in numbers:
                tp = TopicPartition(topic, _whole(number, 0, INT32_MAX, f"a partition of topic {topic!r}"))
                if tp in found:
                    raise _Bad(f"{tp} is there twice")
                found[tp] = None
    except _Bad as error:
        raise _wrong(option, str(error), '{"orders":[0,1]}') from None
    return tuple(found)


def numbers_of(option: str, text: str, low: int, example: str) -> dict[TopicPartition, int]:
    """Return the number of each topic-partition of `{"orders":{"0":23}}`, which is `low` at least; `example` is for messages.

    Raises:
        ConfigError: the text has another form, names nothing, or names a topic-partition twice.
    """
    found: dict[TopicPartition, int] = {}
    try:
        for topic, numbers in _topics(text).items():
            if ID_SEPARATOR in topic and numbers == {}:
                continue
            check_topic(option, topic)
            if not isinstance(numbers, dict):
                raise _Bad(f"topic {topic!r} has no object with its partitions, but {_shown(numbers)}")
            if not numbers:
                raise _Bad(f"it names no partition of topic {topic!r}")
            for partition, number in numbers.items():
                tp = TopicPartition(topic, _partition(topic, partition))
                if tp in found:
                    raise _Bad(f"{tp} is there twice")
                found[tp] = _whole(number, low, INT64_MAX, f"the number of {tp}")
        if not found:
            raise _Bad("it names no topic")
    except _Bad as error:
        raise _wrong(option, str(error), example) from None
    return found


def _topics(text: str) -> Mapping[str, Any]:
    try:
        found = json.loads(text, object_pairs_hook=_without_repeats)
    except _Bad:
        raise
    except (ValueError, RecursionError) as error:
        why = error.msg if isinstance(error, json.JSONDecodeError) else type(error).__name__
        raise _Bad(f"it is not JSON ({why})") from None
    if not isinstance(found, dict):
        raise _Bad(f"it is not an object, but {_shown(found)}")
    if not found:
        raise _Bad("it names no topic")
    return found


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise _Bad(f"{name!r} is there twice")
        found[name] = value
    return found


def _partition(topic: str, text: str) -> int:
    if not (text.isascii() and text.isdecimal()):
        raise _Bad(f"topic {topic!r} has {text!r} where the number of a partition must be")
    return _whole(int(text), 0, INT32_MAX, f"a partition of topic {topic!r}")


def _whole(value: object, low: int, high: int, subject: str) -> int:
    if type(value) is not int:
        raise _Bad(f"{subject} is not a whole number, but {_shown(value)}")
    if not low <= value <= high:
        raise _Bad(f"{subject} is {_shown(value)}, not between {low} and {high}")
    return value


def _shown(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _MAX_SHOWN else text[:_MAX_SHOWN] + "…"


def _wrong(option: str, why: str, example: str) -> ConfigError:
    return ConfigError(f"{option} is wrong: {why}. Write it as {example}")
