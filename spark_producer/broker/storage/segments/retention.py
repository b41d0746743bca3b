"""The rules by which old segments are deleted: Kafka's `cleanup.policy=delete` (UnifiedLog.deleteOldSegments)."""

from __future__ import annotations

from collections.abc import Sequence

from spark_producer.broker.settings import UNLIMITED, TopicSettings
from spark_producer.broker.storage.segments.segment import Segment
from spark_producer.record.batch_v2 import NO_TIMESTAMP


def count_expired(segments: Sequence[Segment], settings: TopicSettings, now_ms: int) -> int:
    """Return the number of segments to delete, from the oldest on. An empty segment is never deleted."""
    return max(_past_their_time(segments, settings, now_ms), _beyond_the_size(segments, settings))


def _past_their_time(segments: Sequence[Segment], settings: TopicSettings, now_ms: int) -> int:
    if settings.retention_ms == UNLIMITED:
        return 0
    for count, segment in enumerate(segments):
        newest = segment.modified_ms() if segment.max_timestamp == NO_TIMESTAMP else segment.max_timestamp
        if segment.size == 0 or now_ms - newest <= settings.retention_ms:
            return count
    return len(segments)


def _beyond_the_size(segments: Sequence[Segment], settings: TopicSettings) -> int:
    if settings.retention_bytes == UNLIMITED:
        return 0
    too_many = sum(segment.size for segment in segments) - settings.retention_bytes
    for count, segment in enumerate(segments):
        too_many -= segment.size
        if segment.size == 0 or too_many < 0:
            return count
    return len(segments)
