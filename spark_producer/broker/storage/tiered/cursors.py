"""Which partitions have an active cursor: batches go into the tail cache only for these.

A cursor of Pulsar is a durable subscription. Here it is a consumer group that has committed an offset of the partition, or has a
member that reads it. It is active while it lags less than 1,000 entries, and an entry is a batch (Pulsar's
managedLedgerCursorBackloggedThreshold). Pulsar looks every 60 s; here each fetch and each new batch counts at once.

A Fetch names no group. So what is known of the groups is their number for each partition, and what is seen are the offsets from
which somebody reads. A fetch from the offset at which the one before ended is taken for the same reader's next one.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable
from typing import Final

from spark_producer.broker.storage.tiered.counters import CursorCounters

MAX_ACTIVE_LAG: Final = 1000
"""The lag in entries from which on a cursor is inactive."""

IDLE_S: Final = 60.0
"""The seconds after which a reader that does not fetch is forgotten (Pulsar looks at its cursors once in so many seconds)."""

MAX_READERS: Final = 100
"""The most readers that are told apart in one partition; of more, the one that has been silent longest is forgotten."""


class _Partition:
    """The readers of one log, and where its last entries end.

    `readers` has the moments at which they were seen last, by position: several readers may be at the same one.
    `known_from`: from this offset on all entries are in `ends`. A reader before it counts as far behind. It is None until the
    first entry comes.
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
        """Return the entries that a reader at `position` has not read yet, or `threshold` if they are so many at least."""
        if self.known_from is None or position < self.known_from:
            return threshold
        return min(len(self.ends) - bisect_right(self.ends, position), threshold)

    def reader_moved(self, offset: int, next_offset: int, now: float) -> None:
        """Note that a reader has come from `offset` to `next_offset`; it is a new one if none was there."""
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
    """Knows for each log whether it has an active cursor, and how far all of them have read. The broker's thread uses it.

    With `require_durable` false every reader counts as a cursor, also one without a group. The clock gives seconds.
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
        """Note how many groups have a cursor in a log; with 0 of them what is known of its readers is forgotten."""
        if groups == 0 and self._require_durable:
            self.forget(log_id)
        elif groups or log_id in self._logs:
            self._known(log_id).durable = groups

    def forget(self, log_id: int) -> None:
        """Forget a log, which was deleted or has no cursor any more."""
        partition = self._logs.pop(log_id, None)
        if partition is not None:
            self._count(partition, -1)

    def admitted(self, log_id: int, base_offset: int, end_offset: int) -> bool:
        """Note the entry that a log has just admitted; return whether it had an active cursor, who will want the entry soon."""
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
        """Note that somebody waits to read from `offset` on."""
        self.reader_moved(log_id, offset, offset)

    def reader_moved(self, log_id: int, offset: int, next_offset: int) -> None:
        """Note that somebody has read from `offset` to `next_offset`."""
        if self._require_durable and log_id not in self._logs:
            return
        partition = self._known(log_id)
        partition.reader_moved(offset, next_offset, self._clock())
        self._update_active(partition)

    def slowest(self, log_id: int) -> int | None:
        """Return the offset before which every active cursor has read everything; None if that is not known.

        It is known if as many readers are seen as there are groups.
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
