"""The limits of a micro-batch, as in Spark's Kafka source (`KafkaMicroBatchStream.rateLimit`, `delayBatch`)."""

from __future__ import annotations

import math
from collections.abc import Mapping

from spark_producer.common.cluster import TopicPartition


def limited_ends(
    limit: int, starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Return the ends of about `limit` offsets from `starts` on, in proportion to those that each topic-partition has.

    A topic-partition with new records gets one at least.
    """
    sizes = {each: end - starts[each] for each, end in ends.items() if each in starts and end > starts[each]}
    total = sum(sizes.values())
    limited = dict(ends)
    for each, size in sizes.items():
        share = limit * (size / total)
        offsets = math.ceil(share) if share < 1 else math.floor(share)
        limited[each] = min(ends[each], starts[each] + offsets)
    return limited


class TriggerDelay:
    """Decides whether a micro-batch waits for more records: at most `max_delay` seconds since the last one.

    The first batch after the start of a query never waits, as in Spark's source.
    """

    def __init__(self, min_offsets: int, max_delay: float) -> None:
        self._min_offsets = min_offsets
        self._max_delay = max_delay
        self._last: float | None = None

    def waits(self, starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int], now: float) -> bool:
        """Return whether there are too few offsets between `starts` and `ends` for a batch at `now` (seconds)."""
        passed = self._last is None or now - self._last >= self._max_delay
        if not passed and sum(end - starts.get(each, 0) for each, end in ends.items()) < self._min_offsets:
            return True
        self._last = now
        return False
