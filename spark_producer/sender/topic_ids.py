"""Finds topics that were deleted and created again: the logs of their partitions are new, and know no producer."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from spark_producer.common.cluster import TopicInfo
from spark_producer.common.error_codes import Code
from spark_producer.protocol.messages import NO_UUID


class TopicIds:
    """The ids of the topics in use (KIP-516). Only the I/O thread uses it, except for `knows`.

    Brokers before Metadata version 10 name no ids. There a topic counts as created again if it did not exist in between, or if
    older leader epochs are believed (`older_epochs`).
    """

    def __init__(self) -> None:
        self._ids: dict[str, bytes] = {}
        self._absent: set[str] = set()
        self._created_again: set[str] = set()

    def answered(self, topics: Mapping[str, TopicInfo], older_epochs: Collection[str]) -> None:
        """Take the topics of a Metadata response. `older_epochs` are those whose older leader epochs are believed from now on."""
        for topic, info in topics.items():
            known = self._ids.get(topic)
            if info.error_code == Code.UNKNOWN_TOPIC_OR_PARTITION and known is not None:
                self._absent.add(topic)
            if info.error_code:
                continue
            without_ids = NO_UUID in (known, info.topic_id)
            if known is not None and (topic in self._absent if without_ids else known != info.topic_id):
                self._created_again.add(topic)
            self._ids[topic] = info.topic_id
            self._absent.discard(topic)
        self._created_again |= self._ids.keys() & set(older_epochs)

    def knows(self, topic: str) -> bool:
        """Return whether the topic exists, or did before; any thread may call it."""
        return topic in self._ids

    def forget(self, topics: Collection[str]) -> None:
        """Forget topics that are no longer written to."""
        for topic in topics:
            self._ids.pop(topic, None)
        self._absent.difference_update(topics)
        self._created_again.difference_update(topics)

    def take_recreated(self) -> set[str]:
        """Return the topics that were created again since the last call."""
        taken, self._created_again = self._created_again, set()
        return taken
