"""The check before a write, on the driver: the brokers respond, and the topic exists.

A batch write checks each time. A stream's writer is made for each micro-batch, so a stream remembers for a while that its brokers
responded.
"""

from __future__ import annotations

import time
from typing import NamedTuple

from spark_producer.admin import BlockingClient
from spark_producer.admin.missing_topics import suggest_topic, suggest_topic_on_not_found
from spark_producer.common.wait_warning import WaitWarning
from spark_producer.config import ProducerConfig, SinkOptions
from spark_producer.errors import TopicNotFound, broker_error
from spark_producer.network import ConnectionSettings
from spark_producer.network.metadata_wait import UNKNOWN_TOPIC_GRACE

CHECK_SECONDS = 60.0
"""Seconds for which the check of a stream is valid: few micro-batches pay for it, and a deleted topic is noticed soon."""

DEAD_LETTER_TOPIC = "dead-letter topic"
"""The name of the topic of the option `deadLetterTopic` in messages."""


class _Checked(NamedTuple):
    """A successful check of a stream: the connection and topics that it writes to, and the time of the check."""

    settings: ConnectionSettings
    topics: tuple[str | None, str | None]
    """the topic of the option `topic`, and the dead-letter topic"""
    answered: float


_checked: list[_Checked] = []
"""The recent checks of this process. They apply only to streams with the same connection settings, since brokers may accept one
user and refuse another."""


def _still_holds(settings: ConnectionSettings, topics: tuple[str | None, str | None]) -> bool:
    """Return whether a recent check covers this connection and these topics. Drop old checks."""
    now = time.monotonic()
    _checked[:] = [check for check in _checked if now - check.answered < CHECK_SECONDS]
    return any(check.topics == topics and check.settings == settings for check in _checked)


def check_stream(config: ProducerConfig, sink: SinkOptions, *, max_block_set: bool) -> None:
    """Check the cluster for a micro-batch, unless a check with the same settings and topics succeeded recently.

    Raises: as `check_cluster`.
    """
    settings = ConnectionSettings.from_config(config)
    topics = sink.topic, sink.dead_letter_topic
    if not _still_holds(settings, topics):
        check_cluster(config, sink.topic, dead_letters=sink.dead_letter_topic, max_block_set=max_block_set)
        _checked.append(_Checked(settings, topics, time.monotonic()))


def check_cluster(
    config: ProducerConfig,
    topic: str | None,
    *,
    dead_letters: str | None = None,
    max_block_set: bool = False,
) -> None:
    """Check that the brokers respond and have `topic` (None: only that they respond), for at most `max.block.ms`.

    If the user has set that option (`max_block_set`), it also limits the wait for a topic that no broker knows; otherwise
    `UNKNOWN_TOPIC_GRACE` does.

    The topic for `dead_letters` must exist: it is not created, since no reader would know of it.

    A long wait is a warning in the log.

    Raises:
        BrokersUnreachable: none of the bootstrap servers answered; the message names all of them.
        TopicNotFound, BrokerError: the topic does not exist and is not created automatically, or may not be used.
        MetadataTimeout: the topic has no leaders yet.
    """
    limit, option = config.max_block_ms / 1000, "kafka.max.block.ms"
    settings = ConnectionSettings.from_config(config)
    with BlockingClient(settings, timeout=limit, timeout_option=option, on_wait=WaitWarning(limit, option)) as client:
        if topic is None:
            client.metadata([])
        else:
            with suggest_topic_on_not_found(client, topic):
                client.wait_for_topic(
                    topic, create=True, unknown_timeout=float("inf") if max_block_set else UNKNOWN_TOPIC_GRACE
                )
        if dead_letters is not None:
            _find_dead_letter_topic(client, dead_letters)


def _find_dead_letter_topic(client: BlockingClient, topic: str) -> None:
    try:
        client.wait_for_topic(topic, called=DEAD_LETTER_TOPIC)
    except TopicNotFound as error:
        near = suggest_topic(client, topic)
        hint = f" (did you mean {near!r}?)" if near else ""
        subject = f"{DEAD_LETTER_TOPIC} {topic!r} (option deadLetterTopic)"
        advice = f"correct its name{hint}, or create it: writes do not create dead-letter topics"
        raise broker_error(error.code, subject, advice=advice, topic=topic) from None
