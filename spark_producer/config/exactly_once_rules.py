"""The rules for an exactly-once write: which options it needs, and which ones contradict it."""

from __future__ import annotations

import re

from spark_producer.config.control_topics import DEFAULT_CONTROL_TOPIC, refusal
from spark_producer.config.options import SINK_FIELDS, ProducerConfig, SinkOptions, transaction_blockers
from spark_producer.errors import ConfigError

MAX_ID_LENGTH = 100
MAX_TOPIC_LENGTH = 249
_NAME = re.compile(r"[A-Za-z0-9._-]+")
TRANSACTION_TIMEOUT = "transaction.timeout.ms"
MAX_TRANSACTION_TIMEOUT_MS = 900_000
"""Milliseconds: the default of `kafka.transaction.timeout.ms` in an exactly-once write, and the most that brokers allow by theirs
(`transaction.max.timeout.ms`). Long is harmless, since each write ends first what an earlier one has left open."""

_NEED_AN_ID = (
    "txnVersion",
    "exactlyOnceMaxInlineBytes",
    "exactlyOnceSpoolToDisk",
    "exactlyOnceCompare",
    "exactlyOnceControlTopic",
)


def check_exactly_once(config: ProducerConfig, sink: SinkOptions, *, streaming: bool, own_time: bool = True) -> None:
    """Check the options of a sink for exactly-once writes, whether or not it asks for them.

    `own_time` is false if the user has set the time that a transaction has.

    Raises:
        ConfigError: they contradict each other, or the id or the topic has a bad name.
    """
    for option, topic in (("topic", sink.topic), ("deadLetterTopic", sink.dead_letter_topic)):
        if topic == DEFAULT_CONTROL_TOPIC != sink.exactly_once_control_topic or (
            topic == DEFAULT_CONTROL_TOPIC and option == "topic" and sink.exactly_once_id is None
        ):
            raise ConfigError(f"option {option}: {refusal(topic)}")
    if sink.exactly_once_id is None:
        for name in _NEED_AN_ID:
            field = SINK_FIELDS[name]
            if getattr(sink, field.name) != field.default:
                raise ConfigError(f"{name} needs exactlyOnceId, the name of this query or job: set both, or neither")
        if not own_time:
            raise ConfigError(
                f"kafka.{TRANSACTION_TIMEOUT} needs exactlyOnceId, since without it there are no transactions"
            )
        return
    _check_names(sink.exactly_once_id, sink.exactly_once_control_topic)
    if sink.topic == sink.exactly_once_control_topic:
        raise ConfigError(
            f"topic and exactlyOnceControlTopic are both {sink.topic!r}: rows cannot go where commits are noted"
        )
    if streaming and sink.txn_version is not None:
        raise ConfigError(
            "txnVersion is for batch writes: a streaming query has the numbers of its micro-batches; leave txnVersion out"
        )
    if blockers := transaction_blockers(config):
        raise ConfigError(f"exactlyOnceId needs {blockers}, since transactions do: change that, or drop exactlyOnceId")


def _check_names(sink_id: str, topic: str) -> None:
    if not _NAME.fullmatch(sink_id) or len(sink_id) > MAX_ID_LENGTH:
        raise ConfigError(
            f"exactlyOnceId takes only letters (a to z), digits, '.', '_' and '-', from 1 to {MAX_ID_LENGTH} of them, "
            f"not {sink_id!r}"
        )
    if not _NAME.fullmatch(topic) or len(topic) > MAX_TOPIC_LENGTH or topic in (".", ".."):
        raise ConfigError(
            f"exactlyOnceControlTopic takes only letters (a to z), digits, '.', '_' and '-', up to {MAX_TOPIC_LENGTH}, "
            f"not {topic!r}"
        )
