"""Finds topics that were deleted and created again, whose new logs do not know this producer."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from spark_producer.common.cluster import TopicInfo
from spark_producer.common.error_codes import Code
from spark_producer.protocol.messages import NO_UUID


class TopicIds:
    """The ids of the topics in use (KIP-516). Only the I/O thread uses it, except for `existed`.

    Brokers before Metadata version 10 return no ids. There a topic counts as recreated if it did not exist in between, or if its
    older leader epochs are accepted (`stale_leader_epochs`).
    """

    def __init__(self) -> None:
        self._ids: dict[str, bytes] = {}
        self._absent: set[str] = set()
        self._recreated: set[str] = set()

    def update(self, topics: Mapping[str, TopicInfo], older_epochs: Collection[str]) -> None:
        """Apply the topics of a Metadata response. `older_epochs` are those whose older leader epochs are accepted now."""
        for topic, info in topics.items():
            known = self._ids.get(topic)
            if info.error_code == Code.UNKNOWN_TOPIC_OR_PARTITION and known is not None:
                self._absent.add(topic)
            if info.error_code:
                continue
            without_ids = NO_UUID in (known, info.topic_id)
            if known is not None and (topic in self._absent if without_ids else known != info.topic_id):
                self._recreated.add(topic)
            self._ids[topic] = info.topic_id
            self._absent.discard(topic)
        self._recreated |= self._ids.keys() & set(older_epochs)

    def existed(self, topic: str) -> bool:
        """Return whether the topic exists, or has existed. It is thread-safe."""
        return topic in self._ids

    def forget(self, topics: Collection[str]) -> None:
        """Forget topics that are no longer written to."""
        for topic in topics:
            self._ids.pop(topic, None)
        self._absent.difference_update(topics)
        self._recreated.difference_update(topics)

    def take_recreated(self) -> set[str]:
        """Return the topics that were recreated since the last call."""
        taken, self._recreated = self._recreated, set()
        return taken
