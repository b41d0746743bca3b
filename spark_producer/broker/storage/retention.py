"""Deleting what is old: which segments have had their time, and when to look for them.

Owns: Kafka's rules of `cleanup.policy=delete` (UnifiedLog.deleteOldSegments), and the clock's side of them.
Must not know: files, requests.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from spark_producer.broker.settings import UNLIMITED, TopicSettings
from spark_producer.broker.storage.segment import NO_TIMESTAMP, Segment


def count_expired(segments: Sequence[Segment], settings: TopicSettings, now_ms: int) -> int:
    """How many segments, from the oldest on, are to be deleted. An empty one never is."""
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


class RetentionTimer:
    """Calls `delete_old_segments` with the time of day (milliseconds since 1970), once in `interval` seconds.

    `now`, here and below: seconds of the caller's clock, which never goes back. The time of day may.
    """

    def __init__(
        self,
        delete_old_segments: Callable[[int], None],
        interval: float,
        now: float,
        time_of_day: Callable[[], float] = time.time,
    ) -> None:
        self._delete_old_segments = delete_old_segments
        self._interval = interval
        self._time_of_day = time_of_day
        self.due = now + interval
        """When `run_if_due` has something to do next."""

    def run_if_due(self, now: float) -> None:
        """Look for segments to delete, if it is time."""
        if now >= self.due:
            self.due = now + self._interval
            self._delete_old_segments(int(self._time_of_day() * 1000))
