"""The rules for exactly-once writes: the options that they need, and those that contradict them."""

from __future__ import annotations

import re

from spark_producer.config.control_topics import DEFAULT_CONTROL_TOPIC, refusal
from spark_producer.config.options import ProducerConfig, SinkOptions, refuse_any_set, transaction_blockers
from spark_producer.errors import ConfigError

MAX_ID_LENGTH = 100
MAX_TOPIC_LENGTH = 249
_NAME = re.compile(r"[A-Za-z0-9._-]+")
TRANSACTION_TIMEOUT = "transaction.timeout.ms"
MAX_TRANSACTION_TIMEOUT_MS = 900_000
"""Default `kafka.transaction.timeout.ms` of an exactly-once write in milliseconds, and the default maximum of brokers
(`transaction.max.timeout.ms`). A long timeout is harmless, since each write first ends what an earlier one has left open."""

_NEED_AN_ID = (
    "txnVersion",
    "exactlyOnceMaxInlineBytes",
    "exactlyOnceSpoolToDisk",
    "exactlyOnceCompare",
    "exactlyOnceControlTopic",
)


def check_exactly_once(
    config: ProducerConfig, sink: SinkOptions, *, streaming: bool, transaction_timeout_unset: bool = True
) -> None:
    """Check the options for exactly-once writes, whether or not `exactlyOnceId` is set.

    `transaction_timeout_unset` is false if the user has set `kafka.transaction.timeout.ms`.

    Raises:
        ConfigError: they contradict each other, or the id or the topic has a bad name.
    """
    for option, topic in (("topic", sink.topic), ("deadLetterTopic", sink.dead_letter_topic)):
        if topic == DEFAULT_CONTROL_TOPIC != sink.exactly_once_control_topic or (
            topic == DEFAULT_CONTROL_TOPIC and option == "topic" and sink.exactly_once_id is None
        ):
            raise ConfigError(f"option {option}: {refusal(topic)}")
    if sink.exactly_once_id is None:
        refuse_any_set(sink, _NEED_AN_ID, "exactlyOnceId, the name of this query or job")
        if not transaction_timeout_unset:
            raise ConfigError(
                f"kafka.{TRANSACTION_TIMEOUT} needs exactlyOnceId, without which there are no transactions. Set both, or neither"
            )
        return
    _check_names(sink.exactly_once_id, sink.exactly_once_control_topic)
    if sink.topic == sink.exactly_once_control_topic:
        raise ConfigError(
            f"topic and exactlyOnceControlTopic are both {sink.topic!r}: rows cannot go to the control topic. Name another one"
        )
    if streaming and sink.txn_version is not None:
        raise ConfigError(
            "txnVersion is for batch writes, and a streaming query has the numbers of its micro-batches. Leave txnVersion out"
        )
    if blockers := transaction_blockers(config):
        raise ConfigError(f"exactlyOnceId needs {blockers}, as all transactions do. Change that, or drop exactlyOnceId")


def _check_names(sink_id: str, topic: str) -> None:
    if not _NAME.fullmatch(sink_id) or len(sink_id) > MAX_ID_LENGTH:
        raise ConfigError(
            f"exactlyOnceId cannot be {sink_id!r}: it must have 1 to {MAX_ID_LENGTH} characters of a-z, A-Z, 0-9, '.', '_' and "
            "'-'"
        )
    if not _NAME.fullmatch(topic) or len(topic) > MAX_TOPIC_LENGTH or topic in (".", ".."):
        raise ConfigError(
            f"exactlyOnceControlTopic cannot be {topic!r}: it must have 1 to {MAX_TOPIC_LENGTH} characters of a-z, A-Z, 0-9, "
            "'.', '_' and '-'"
        )
