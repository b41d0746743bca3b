"""The rules for dead letters: which options need `deadLetterTopic`, and which ones contradict it."""

from __future__ import annotations

import difflib

from spark_producer.config.options import SINK_FIELDS, ProducerConfig, SinkOptions
from spark_producer.errors import ConfigError

CLASSES = ("row", "size", "broker", "schema", "topic")
"""The classes of bad rows, as users write them."""

_FOUND_BY_TASKS = {"row", "schema"}
"""The classes of rows that no broker need be asked for."""

_NEED_A_TOPIC = ("deadLetterClasses", "maxBadRecords", "maxBadRecordsRatio", "deadLetterHeaders")


def check_dead_letters(config: ProducerConfig, sink: SinkOptions) -> None:
    """Check the options of a sink for dead letters, whether or not it asks for them.

    With `acks=0` no broker says which rows it refuses: they, and their neighbours, would be neither here nor there.

    Raises:
        ConfigError: they contradict each other, or a class is unknown.
    """
    if sink.dead_letter_topic is None:
        for name in _NEED_A_TOPIC:
            field = SINK_FIELDS[name]
            if getattr(sink, field.name) != field.default:
                raise ConfigError(f"{name} needs deadLetterTopic, the topic for bad rows: set both, or neither")
        return
    if not sink.dead_letter_topic:
        raise ConfigError("deadLetterTopic is empty: name a topic, or leave the option out")
    for name, other in (("topic", sink.topic), ("exactlyOnceControlTopic", sink.exactly_once_control_topic)):
        if sink.dead_letter_topic == other:
            raise ConfigError(f"{name} and deadLetterTopic are both {other!r}: bad rows need a topic of their own")
    classes = dead_letter_classes(sink.dead_letter_classes)
    if "topic" in classes and sink.topic is not None:
        raise ConfigError(
            f"deadLetterClasses has 'topic', which is for topics of the column, and all rows have the topic {sink.topic!r} of "
            "the option: drop one of them"
        )
    if config.acks == "0" and not _FOUND_BY_TASKS.issuperset(classes):
        raise ConfigError(
            "kafka.acks is 0, so brokers cannot say which rows they refuse, and deadLetterTopic would not get them: set "
            "kafka.acks to all or 1, or deadLetterClasses to row,schema"
        )


def brokers_find_bad_rows(sink: SinkOptions) -> bool:
    """Whether a row may turn out to be bad only when a broker has seen it."""
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
            raise ConfigError(f"deadLetterClasses takes {', '.join(CLASSES)}, separated by commas, not {name!r}.{hint}")
    if not found:
        raise ConfigError(f"deadLetterClasses is empty: name some of {', '.join(CLASSES)}, or leave the option out")
    return found
