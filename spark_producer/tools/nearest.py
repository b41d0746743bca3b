"""The topic that was meant: the one of the cluster with the most similar name."""

from __future__ import annotations

import difflib

from spark_producer.errors import PyProducerError
from spark_producer.tools.blocking import BlockingClient


def nearest_topic(client: BlockingClient, topic: str) -> str | None:
    """Return the topic of the cluster with the most similar name, if one is similar and the brokers tell. It raises nothing."""
    try:
        there = [row.name for row in client.metadata(None).topics if row.name]
    except PyProducerError:  # the error about the topic matters more
        return None
    return next(iter(difflib.get_close_matches(topic, there, n=1, cutoff=0.7)), None)
