"""The state of fetching one offset range: the position, the broker to ask, and the failures since the last progress."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass

from spark_producer.common.cluster import NO_LEADER, TopicPartition
from spark_producer.common.offsets import EARLIEST, LATEST
from spark_producer.errors import PyProducerError

PARTITION_SLACK = 1 << 16
"""Bytes by which a request exceeds the estimate of what is left of a range, since batches differ in size."""

_NEVER = float("inf")


class LookUp(enum.IntEnum):
    """The offset of a log that must be known before fetching goes on, by its value in ListOffsets."""

    END = LATEST
    START = EARLIEST


@dataclass(slots=True)
class PartitionFetch:
    """What is left of a range: the offsets from `position` to `end`."""

    topic_partition: TopicPartition
    position: int
    end: int
    in_flight: bool = False
    """Whether a Fetch or ListOffsets request of it is in flight."""
    replica: int = NO_LEADER
    """The follower to fetch from, which the leader has named for the reader's rack (KIP-392)."""
    look_up: LookUp | None = None
    log_start: int = -1
    """The start of the log, while both ends are looked up."""
    retry_at: float = 0.0
    failing_since: float = _NEVER
    """The time of the first failure since the last progress."""
    unknown_since: float = _NEVER
    """The time since which brokers have not known the partition."""
    error: PyProducerError | None = None
    """The last failure since the last progress."""
    bytes_per_offset: float = 0.0
    """The estimate for what is left, from earlier responses; 0 if there is none."""
    _failures: int = 0

    @property
    def done(self) -> bool:
        """Whether the whole range is fetched."""
        return self.position >= self.end

    def wanted_bytes(self, maximum: int) -> int:
        """Return how many bytes to request: `maximum`, or less if the rest of the range is smaller by earlier responses."""
        if not self.bytes_per_offset:
            return maximum
        return min(maximum, int((self.end - self.position) * self.bytes_per_offset) + PARTITION_SLACK)

    def advance(self, position: int, size: int = 0) -> None:
        """Record progress up to `position`, with `size` fetched bytes."""
        if size:
            self.bytes_per_offset = size / (position - self.position)
        self.position = position
        self.retry_at, self.failing_since, self.unknown_since = 0.0, _NEVER, _NEVER
        self.error, self._failures = None, 0

    def waits(self, now: float, error: PyProducerError | None = None) -> None:
        """Record that nothing can be fetched now, because of `error` if there is one."""
        self.failing_since = min(self.failing_since, now)
        self.error = error or self.error

    def failed(self, now: float, delay: Callable[[int], float], error: PyProducerError | None = None) -> None:
        """Record a failure, and wait for `delay(failures)` seconds before the next request."""
        self.waits(now, error)
        self.retry_at = now + delay(self._failures)
        self._failures += 1
