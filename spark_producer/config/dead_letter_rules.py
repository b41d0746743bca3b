"""The rules for dead letters: the options that need `deadLetterTopic`, and those that contradict it."""

from __future__ import annotations

import difflib

from spark_producer.config.options import ProducerConfig, SinkOptions, refuse_any_set
from spark_producer.errors import ConfigError

CLASSES = ("row", "size", "broker", "schema", "topic")
"""The classes of bad rows, as users write them."""

_FOUND_BY_TASKS = {"row", "schema"}
"""The classes of bad rows that tasks find without a broker."""

_NEED_A_TOPIC = ("deadLetterClasses", "maxBadRecords", "maxBadRecordsRatio", "deadLetterHeaders")


def check_dead_letters(config: ProducerConfig, sink: SinkOptions) -> None:
    """Check the options for dead letters, whether or not `deadLetterTopic` is set.

    With `acks=0` brokers report no rejected rows, so these and the other rows of their batches would be lost.

    Raises:
        ConfigError: they contradict each other, or a class is unknown.
    """
    if sink.dead_letter_topic is None:
        refuse_any_set(sink, _NEED_A_TOPIC, "deadLetterTopic, the topic for bad rows")
        return
    if not sink.dead_letter_topic:
        raise ConfigError("deadLetterTopic is empty. Name a topic, or leave the option out")
    for name, other in (("topic", sink.topic), ("exactlyOnceControlTopic", sink.exactly_once_control_topic)):
        if sink.dead_letter_topic == other:
            raise ConfigError(f"{name} and deadLetterTopic are both {other!r}. Name a topic that is for bad rows alone")
    classes = dead_letter_classes(sink.dead_letter_classes)
    if "topic" in classes and sink.topic is not None:
        raise ConfigError(
            "deadLetterClasses contains 'topic', the class of rows with bad names in the column topic, but the option topic is "
            f"set to {sink.topic!r}. Drop one of them"
        )
    if config.acks == "0" and not _FOUND_BY_TASKS.issuperset(classes):
        raise ConfigError(
            "deadLetterTopic cannot get the rows that brokers reject: kafka.acks is 0, so brokers do not report them. Set "
            "kafka.acks to all or 1, or deadLetterClasses to row,schema"
        )


def brokers_find_bad_rows(sink: SinkOptions) -> bool:
    """Return whether brokers may find rows bad that a task has sent."""
    return sink.dead_letter_topic is not None and not _FOUND_BY_TASKS.issuperset(
        dead_letter_classes(sink.dead_letter_classes)
    )


def dead_letter_classes(text: str) -> tuple[str, ...]:
    """Return the classes that `deadLetterClasses` names.

    Raises:
        ConfigError: one is unknown, or there is none.
    """
    found = tuple(name.strip().lower() for name in text.split(",") if name.strip())
    for name in found:
        if name not in CLASSES:
            near = difflib.get_close_matches(name, CLASSES, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise ConfigError(f"deadLetterClasses contains {name!r}; the classes are {', '.join(CLASSES)}.{hint}")
    if not found:
        raise ConfigError(f"deadLetterClasses is empty. Name some of {', '.join(CLASSES)}, or leave the option out")
    return found
