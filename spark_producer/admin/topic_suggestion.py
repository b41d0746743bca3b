"""The topic that was meant: the one of the cluster with the most similar name."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from contextlib import contextmanager

from spark_producer.admin.client import BlockingClient
from spark_producer.errors import PyProducerError, TopicNotFound, broker_error


def nearest_topic(client: BlockingClient, topic: str) -> str | None:
    """Return the topic of the cluster with the most similar name, if one is similar and the brokers tell. It raises nothing."""
    try:
        there = [row.name for row in client.metadata(None).topics if row.name]
    except PyProducerError:  # the error about the topic matters more
        return None
    return next(iter(difflib.get_close_matches(topic, there, n=1, cutoff=0.7)), None)


@contextmanager
def nearest_named(client: BlockingClient, topic: str) -> Iterator[None]:
    """Name a topic with a similar name where one is not there.

    Raises: what is raised within it.
    """
    try:
        yield
    except TopicNotFound as error:
        near = nearest_topic(client, topic)
        if near is None or near == topic:  # it is there, and its partition is not
            raise
        advice = f"correct the name (did you mean {near!r}?), or create the topic"
        raise broker_error(error.code, f"topic {topic!r}", advice=advice, topic=topic) from None
