"""Distinguishes a recreated topic from a stale broker, when responses have older leader epochs than the known ones.

A recreated topic begins at leader epoch 0. Brokers with Metadata version 10 or later return its new id (KIP-516). With older
brokers the only sign is that all responses keep the older epochs, while a stale broker catches up.
"""

from __future__ import annotations

from collections.abc import Mapping

from spark_producer.common.cluster import TopicInfo
from spark_producer.protocol.messages import NO_UUID, MetadataResponse, MetadataResponseTopic

MAX_BROKER_LAG_S = 5.0
"""Maximum seconds for which the metadata of a broker is older than that of the controller: some milliseconds, or some seconds
after its start. If all responses have older epochs for longer, they are accepted. A wrong guess costs a request that a former
leader rejects."""


class StaleLeaderEpochs:
    """Keeps, for each topic, the time of the first response with older leader epochs than the known ones. Only the I/O thread
    uses it."""

    def __init__(self) -> None:
        self._since: dict[str, float] = {}

    def recreated(self, response: MetadataResponse, known: Mapping[str, TopicInfo], now: float) -> set[str]:
        """Return the topics of a response that were recreated, so that their known state must be dropped."""
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
    """Return whether a response without topic ids has an older leader epoch than the known one, for any partition."""
    if known is None or topic.topic_id != NO_UUID:
        return False
    newest = dict(enumerate(known.leader_epochs))
    return any(
        0 <= partition.leader_epoch < newest.get(partition.partition_index, -1) for partition in topic.partitions
    )
