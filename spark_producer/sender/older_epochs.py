"""Answers that name older leader epochs than are known: a broker that lags, or a topic made anew?

Owns: since when each topic is told so. Must not know: who asks, or what is done about it.

A topic made anew begins at leader epoch 0. Brokers with Metadata version 10 or later name its other id (KIP-516); of older
ones it shows only in that every answer keeps naming older epochs, where a broker that lags catches up.
"""

from __future__ import annotations

from collections.abc import Mapping

from spark_producer.cluster import TopicInfo
from spark_producer.protocol.messages import MetadataResponse, MetadataResponseTopic

NO_TOPIC_ID = bytes(16)

LONGEST_BROKER_LAG = 5.0
"""Seconds after which older epochs are believed, if nothing else was told meanwhile: a broker is some milliseconds behind the
controller, some seconds when it has just started. To be wrong costs a refused request: a former leader says that it is none."""


class OlderEpochs:
    """Of the I/O thread's alone."""

    def __init__(self) -> None:
        self._since: dict[str, float] = {}

    def believed(self, response: MetadataResponse, known: Mapping[str, TopicInfo], now: float) -> set[str]:
        """The topics of an answer that were made anew, so that nothing which is known of them counts any more."""
        found = set()
        for topic in response.topics:
            name = topic.name or ""
            if not _older(topic, known.get(name)):
                self._since.pop(name, None)
            elif now - self._since.setdefault(name, now) >= LONGEST_BROKER_LAG:
                del self._since[name]
                found.add(name)
        return found


def _older(topic: MetadataResponseTopic, known: TopicInfo | None) -> bool:
    """Whether an answer without topic ids names an older leader epoch of any partition than is known."""
    if known is None or topic.topic_id != NO_TOPIC_ID:
        return False
    newest = dict(enumerate(known.leader_epochs))
    return any(0 <= told.leader_epoch < newest.get(told.partition_index, -1) for told in topic.partitions)
