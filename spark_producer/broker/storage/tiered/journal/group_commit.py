"""The rules of group commit, as in BookKeeper's Journal thread, without threads and without a clock."""

from __future__ import annotations

from enum import Enum

from spark_producer.broker.storage.tiered.journal.settings import JournalSettings


class Trigger(Enum):
    """Why a group was written. All names but the last are those of BookKeeper's counters (JOURNAL_NUM_FLUSH_…)."""

    MAX_WAIT = "max_wait"
    MAX_OUTSTANDING_BYTES = "max_outstanding_bytes"
    EMPTY_QUEUE = "empty_queue"
    REQUESTED = "asked"


class GroupCommit:
    """The rules. All times are in seconds of one monotonic clock."""

    def __init__(self, settings: JournalSettings) -> None:
        self._wait = settings.max_group_wait_ms / 1000
        self._max_bytes = settings.buffered_writes_threshold
        self._max_entries = settings.buffered_entries_threshold
        self._when_empty = settings.flush_when_queue_empty or self._wait <= 0

    def trigger(self, entries: int, size: int, oldest: float, following: float | None, now: float) -> Trigger | None:
        """Return why the group must be written now, None if it may still grow.

        When the oldest record has waited for the maximum time, the following records that have waited as long still join the
        group: after a slow write there may be many of them, and they should not wait for another one.

        Args:
            entries: number of records in the group, at least one.
            size: their size in bytes.
            oldest: time at which the first of them was appended.
            following: time at which the first record after the group was appended, None if there is none.
            now: the time.
        """
        late = self._wait > 0 and now - oldest >= self._wait
        if late and (following is None or now - following < self._wait):
            return Trigger.MAX_WAIT
        if following is None:
            return Trigger.EMPTY_QUEUE if self._when_empty else None
        if self.is_large(entries, size):
            return Trigger.MAX_OUTSTANDING_BYTES
        return None

    def is_large(self, entries: int, size: int) -> bool:
        """Return whether `entries` records of `size` bytes together are enough for a group."""
        return size > self._max_bytes or 0 < self._max_entries < entries

    def seconds_left(self, oldest: float, now: float) -> float:
        """Return the time in seconds for which a group may still wait for records."""
        return max(0.0, oldest + self._wait - now)
