"""Active cursors: only batches of partitions with an active cursor are put into the tail cache.

A cursor of Pulsar is a durable subscription. Here it is a consumer group that has committed an offset of the partition, or has a
member that reads it. It is active while it lags less than 1,000 entries, and an entry is a batch (Pulsar's
managedLedgerCursorBackloggedThreshold). Pulsar checks every 60 s; here each fetch and each new batch is a check.

A Fetch does not name its group. So only the number of groups of each partition is known, and the offsets from which readers
fetch. A fetch from the offset at which the previous one ended is considered the next one of the same reader.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable
from typing import Final

from spark_producer.broker.storage.tiered.counters import CursorCounters

MAX_ACTIVE_LAG: Final = 1000
"""Lag in entries from which on a cursor is inactive."""

IDLE_S: Final = 60.0
"""Seconds after which a reader that does not fetch is forgotten (the interval at which Pulsar checks its cursors)."""

MAX_READERS: Final = 100
"""Maximum number of readers that are tracked per partition; then the one without a fetch for the longest time is forgotten."""


class _Partition:
    """The readers of one log, and the end offsets of its last entries.

    readers: times of the last fetch by position; several readers may be at the same one.
    known_from: from this offset on all entries are in `ends`. A reader before it is considered to lag by the maximum. None until
        the first entry was admitted.
    """

    def __init__(self) -> None:
        self.durable = 0
        self.is_active = False
        self.known_from: int | None = None
        self.ends = array("q")
        self.readers: dict[int, list[float]] = {}

    def admitted(self, end_offset: int, threshold: int) -> None:
        self.ends.append(end_offset)
        if len(self.ends) > 2 * threshold:
            gone = len(self.ends) - threshold
            self.known_from = self.ends[gone - 1]
            del self.ends[:gone]

    def lag(self, position: int, threshold: int) -> int:
        """Return the number of entries that a reader at `position` has not read yet, at most `threshold`."""
        if self.known_from is None or position < self.known_from:
            return threshold
        return min(len(self.ends) - bisect_right(self.ends, position), threshold)

    def reader_moved(self, offset: int, next_offset: int, now: float) -> None:
        """Record that a reader has moved from `offset` to `next_offset`; it is a new one if none was at `offset`."""
        there = self.readers.get(offset)
        if there:
            there.pop(0)
            if not there:
                del self.readers[offset]
        self.readers.setdefault(next_offset, []).append(now)
        if self.count > 1:
            self._forget_idle_readers(now - IDLE_S)

    @property
    def count(self) -> int:
        """The number of readers."""
        return sum(map(len, self.readers.values()))

    def _forget_idle_readers(self, before: float) -> None:
        for position, moments in list(self.readers.items()):
            self.readers[position] = [moment for moment in moments if moment >= before]
            if not self.readers[position]:
                del self.readers[position]
        while self.count > MAX_READERS:
            silent = min(self.readers, key=lambda position: self.readers[position][0])
            self.readers[silent].pop(0)
            if not self.readers[silent]:
                del self.readers[silent]


class Cursors:
    """Tracks for each log whether it has an active cursor, and the positions of its readers. Only the broker's thread uses it.

    If `require_durable` is false, readers without a group count as cursors too. `clock` returns seconds.
    """

    def __init__(
        self,
        counters: CursorCounters,
        clock: Callable[[], float],
        *,
        threshold: int = MAX_ACTIVE_LAG,
        require_durable: bool = True,
    ) -> None:
        self._counters = counters
        self._clock = clock
        self._threshold = threshold
        self._require_durable = require_durable
        self._logs: dict[int, _Partition] = {}

    def set_durable(self, log_id: int, groups: int) -> None:
        """Set the number of groups with a cursor in a log; if it is 0, the readers of the log are forgotten."""
        if groups == 0 and self._require_durable:
            self.forget(log_id)
        elif groups or log_id in self._logs:
            self._known(log_id).durable = groups

    def forget(self, log_id: int) -> None:
        """Remove a log, which was deleted or has no cursor any more."""
        partition = self._logs.pop(log_id, None)
        if partition is not None:
            self._count(partition, -1)

    def admitted(self, log_id: int, base_offset: int, end_offset: int) -> bool:
        """Record an admitted entry of a log; return whether the log had an active cursor, which will read the entry soon."""
        partition = self._logs.get(log_id)
        if partition is None:
            return False
        if partition.known_from is None:
            partition.known_from = base_offset
            self._update_active(partition)
        was_active = partition.is_active
        partition.admitted(end_offset, self._threshold)
        if was_active:
            self._update_active(partition)
        return was_active

    def has_active(self, log_id: int) -> bool:
        """Return whether any cursor of the log lags less than the threshold."""
        partition = self._logs.get(log_id)
        return partition is not None and partition.is_active

    def reader_waits(self, log_id: int, offset: int) -> None:
        """Record that a reader waits for entries from `offset` on."""
        self.reader_moved(log_id, offset, offset)

    def reader_moved(self, log_id: int, offset: int, next_offset: int) -> None:
        """Record that a reader has read from `offset` to `next_offset`."""
        if self._require_durable and log_id not in self._logs:
            return
        partition = self._known(log_id)
        partition.reader_moved(offset, next_offset, self._clock())
        self._update_active(partition)

    def slowest(self, log_id: int) -> int | None:
        """Return the position of the slowest active cursor; None if it is unknown.

        It is known if there are at least as many readers as groups.
        """
        partition = self._logs.get(log_id)
        if partition is None or partition.count < max(partition.durable, 1):
            return None
        active = [each for each in partition.readers if partition.lag(each, self._threshold) < self._threshold]
        return min(active, default=None)

    def _known(self, log_id: int) -> _Partition:
        partition = self._logs.get(log_id)
        if partition is None:
            partition = self._logs[log_id] = _Partition()
            self._count(partition, 1)
        return partition

    def _update_active(self, partition: _Partition) -> None:
        nearest = max(partition.readers, default=-1)
        is_active = partition.lag(nearest, self._threshold) < self._threshold
        if is_active != partition.is_active:
            self._count(partition, -1)
            partition.is_active = is_active
            self._count(partition, 1)

    def _count(self, partition: _Partition, change: int) -> None:
        if partition.is_active:
            self._counters.active += change
        else:
            self._counters.inactive += change
