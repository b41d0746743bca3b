"""The offsets of a stream in Spark's offset log: `{"topic": {"0": 123}}`, the form of Spark's Kafka source, and ids of topics.

An id (KIP-516) is written as a topic without partitions, `"topic@id": {}`. No topic has such a name, and Spark's own source
ignores it, so a query can change from one source to the other.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

from spark_producer.common.cluster import TopicPartition
from spark_producer.config.partition_json import ID_SEPARATOR
from spark_producer.errors import ConfigError
from spark_producer.protocol.messages.cluster import NO_UUID

OffsetJson: TypeAlias = dict[str, dict[str, int]]
"""The next offset to read by topic and partition; Spark writes it as JSON."""

Offsets: TypeAlias = dict[TopicPartition, int]
"""The next offset to read of each topic-partition."""


class LoggedOffsets(NamedTuple):
    """The start or the end of a micro-batch: offsets, and the ids of their topics as far as they are known."""

    offsets: Offsets
    topic_ids: Mapping[str, bytes]

    def created_again(self, later: LoggedOffsets) -> list[TopicPartition]:
        """Return the topic-partitions here whose topic has another id in `later`: it was deleted and created again."""
        topics = {name for name, topic_id in later.topic_ids.items() if self.topic_ids.get(name, topic_id) != topic_id}
        return [each for each in self.offsets if each.topic in topics and later.topic_ids[each.topic] != NO_UUID]


def to_json(logged: LoggedOffsets) -> OffsetJson:
    """Return offsets as Spark gets them, in order: Spark takes equal texts for the same offsets."""
    found: OffsetJson = {}
    for (topic, partition), offset in sorted(logged.offsets.items()):
        found.setdefault(topic, {})[str(partition)] = offset
    ids = {topic: logged.topic_ids.get(topic, NO_UUID) for topic in found}
    for topic, topic_id in ids.items():
        if topic_id != NO_UUID:
            found[f"{topic}{ID_SEPARATOR}{_text(topic_id)}"] = {}
    return found


def from_json(value: Any) -> LoggedOffsets:
    """Return the offsets that Spark hands back from its offset log.

    Raises:
        ConfigError: they are not of this form, as those of another source.
    """
    try:
        offsets = {
            TopicPartition(topic, int(partition)): _offset(offset)
            for topic, partitions in value.items()
            for partition, offset in partitions.items()
        }
        pairs = (topic.split(ID_SEPARATOR) for topic in value if ID_SEPARATOR in topic)
        return LoggedOffsets(offsets, {topic: _topic_id(text) for topic, text in pairs})
    except (AttributeError, TypeError, ValueError, binascii.Error):
        raise ConfigError(
            f"the checkpoint has offsets of another source: {str(value)[:200]}. Give the query a new checkpointLocation"
        ) from None


def _offset(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError
    return value


def _text(topic_id: bytes) -> str:
    """Return an id as Kafka's tools write it."""
    return base64.urlsafe_b64encode(topic_id).decode().rstrip("=")


def _topic_id(text: str) -> bytes:
    found = base64.urlsafe_b64decode(text + "==")
    if len(found) != len(NO_UUID):
        raise ValueError
    return found
