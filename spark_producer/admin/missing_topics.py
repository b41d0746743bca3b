"""Errors about missing topics, which suggest the existing topic with the most similar name."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from spark_producer.admin.client import BlockingClient
from spark_producer.common.error_codes import Code
from spark_producer.errors import PyProducerError, TopicNotFound, broker_error


def suggest_topic(client: BlockingClient, topic: str) -> str | None:
    """Return the topic of the cluster with the most similar name, or None if there is none or the brokers refuse."""
    try:
        existing = [row.name for row in client.metadata(None).topics if row.name]
    except PyProducerError:  # the error about the topic matters more
        return None
    return next(iter(difflib.get_close_matches(topic, existing, n=1, cutoff=0.7)), None)


@contextmanager
def suggest_topic_on_not_found(client: BlockingClient, topic: str) -> Iterator[None]:
    """Add a similar name to the error if the body raises TopicNotFound for `topic`."""
    try:
        yield
    except TopicNotFound as error:
        similar = suggest_topic(client, topic)
        if similar is None or similar == topic:  # the topic exists, but the partition does not
            raise
        advice = f"correct the name (did you mean {similar!r}?), or create the topic"
        raise broker_error(error.code, f"topic {topic!r}", advice=advice, topic=topic) from None


def require_topics(client: BlockingClient, topics: Sequence[str]) -> None:
    """Check that topics exist.

    Raises:
        TopicNotFound: a topic does not exist; the message names the first one. And as `BlockingClient.metadata`.
    """
    code = Code.UNKNOWN_TOPIC_OR_PARTITION
    missing = {row.name for row in client.metadata(topics).topics if row.error_code == code}
    for topic in topics:
        if topic in missing:
            similar = suggest_topic(client, topic)
            hint = f" (did you mean {similar!r}?)" if similar else ""
            advice = f"correct the name{hint}; nothing was changed"
            raise broker_error(code, f"topic {topic!r}", advice=advice, topic=topic)
