"""The subscriptions and assignments of consumers: a topic list, and the assigned partitions.

The formats are Kafka's ConsumerProtocolSubscription and ConsumerProtocolAssignment: a version, then topics; newer versions append
fields.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

from spark_producer.common.cluster import TopicPartition

PROTOCOL_TYPE: Final = "consumer"
"""The protocol type of groups whose members are consumers."""

MAX_TOPICS: Final = 10_000
"""Maximum number of topics of a subscription that is parsed: names may be empty, and millions of them take the broker's time."""

MAX_PARSED_BYTES: Final = 1024 * 1024
"""Maximum bytes of subscriptions or assignments of one group that are parsed: they may name millions of topics without a
partition."""

_VERSION, _COUNT, _LENGTH = struct.Struct(">h"), struct.Struct(">i"), struct.Struct(">h")


def subscribed_topics(metadata: bytes) -> set[str] | None:
    """Return the subscribed topics; None if the bytes are not a subscription."""
    try:
        (count,) = _COUNT.unpack_from(metadata, _VERSION.size)
        if count > MAX_TOPICS:
            return None
        topics, position = set(), _VERSION.size + _COUNT.size
        for _ in range(count):
            topic, position = _text(metadata, position)
            topics.add(topic)
    except (struct.error, ValueError):
        return None
    return topics


def assigned_partitions(assignment: bytes) -> Iterator[TopicPartition]:
    """Yield the assigned partitions, up to the first malformed byte."""
    try:
        (count,) = _COUNT.unpack_from(assignment, _VERSION.size)
        position = _VERSION.size + _COUNT.size
        for _ in range(count):
            topic, position = _text(assignment, position)
            (partitions,) = _COUNT.unpack_from(assignment, position)
            position += _COUNT.size
            for _ in range(partitions):
                (index,) = _COUNT.unpack_from(assignment, position)
                position += _COUNT.size
                yield TopicPartition(topic, index)
    except (struct.error, ValueError):
        return


def _text(data: bytes, position: int) -> tuple[str, int]:
    (length,) = _LENGTH.unpack_from(data, position)
    begin, end = position + _LENGTH.size, position + _LENGTH.size + length
    if length < 0 or end > len(data):
        raise ValueError("a name is longer than the remaining bytes")
    return data[begin:end].decode(), end
