"""The rule that tells a topic made anew from a broker that lags, when answers name older leader epochs than are known.

A topic made anew begins at leader epoch 0. Brokers with Metadata version 10 or later give its new id (KIP-516). With older
brokers the only sign is that all answers keep naming older epochs, while a broker that lags catches up.
"""

from __future__ import annotations

from collections.abc import Mapping

from spark_producer.common.cluster import TopicInfo
from spark_producer.protocol.messages import NO_UUID, MetadataResponse, MetadataResponseTopic

MAX_BROKER_LAG_S = 5.0
"""Seconds after which older epochs are believed, if all answers named older epochs meanwhile. A broker is some milliseconds
behind the controller, or some seconds when it has just started. A wrong guess costs a request that a former leader refuses."""


class StaleLeaderEpochs:
    """Remembers since when answers have named older epochs of each topic. Only the I/O thread uses it."""

    def __init__(self) -> None:
        self._since: dict[str, float] = {}

    def believed(self, response: MetadataResponse, known: Mapping[str, TopicInfo], now: float) -> set[str]:
        """Return the topics of an answer that were made anew, so that all earlier knowledge of them must be dropped."""
        found = set()
        for topic in response.topics:
            name = topic.name or ""
            if not _older(topic, known.get(name)):
                self._since.pop(name, None)
            elif now - self._since.setdefault(name, now) >= MAX_BROKER_LAG_S:
                del self._since[name]
                found.add(name)
        return found


def _older(topic: MetadataResponseTopic, known: TopicInfo | None) -> bool:
    """Return whether an answer without topic ids names an older leader epoch than is known, for any partition."""
    if known is None or topic.topic_id != NO_UUID:
        return False
    newest = dict(enumerate(known.leader_epochs))
    return any(0 <= told.leader_epoch < newest.get(told.partition_index, -1) for told in topic.partitions)
