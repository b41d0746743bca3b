"""The queue of records to write: the broker's thread adds them, the journal thread takes them in groups."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from spark_producer.broker.storage.tiered.journal.group_commit import GroupCommit, Trigger
from spark_producer.broker.storage.tiered.journal.records import JournalRecord
from spark_producer.broker.storage.tiered.journal.settings import JournalSettings


class RecordGroup(NamedTuple):
    """Records that are written together, and why they are written now."""

    records: list[JournalRecord]
    trigger: Trigger


class PendingBytes:
    """A number of bytes that one thread increases, and another one decreases."""

    def __init__(self) -> None:
        self._added = self._taken = 0

    @property
    def total(self) -> int:
        """The number of bytes now."""
        return self._added - self._taken

    def add(self, size: int) -> None:
        """Increase the number. Only one thread may call this."""
        self._added += size

    def take(self, size: int) -> None:
        """Decrease the number. Only one thread may call this."""
        self._taken += size


class RecordQueue:
    """An unbounded queue; its user bounds it (`Journal.has_memory`).

    One thread takes groups, any thread may call the other methods. The lock is held briefly, and no other lock is taken under it.
    """

    def __init__(self, settings: JournalSettings, clock: Callable[[], float]) -> None:
        self._rules = GroupCommit(settings)
        self._clock = clock
        self._records: deque[tuple[float, JournalRecord]] = deque()
        self._entries = self._bytes = 0  # with those of the group that is still growing
        self._changed = threading.Condition(threading.Lock())
        self._idle = False
        self._requested = self._closed = self._cancelled = False

    def put(self, record: JournalRecord) -> None:
        """Add a record. The taking thread is woken if it is idle, or if the group is now large enough.

        After a MemoryError the queue is unchanged.
        """
        with self._changed:
            entries, size = self._entries + 1, self._bytes + len(record.batch)
            if self._idle or self._rules.is_large(entries, size):
                self._changed.notify()  # it continues when the lock is free
            self._records.append((self._clock(), record))  # last, since it may raise MemoryError
            self._entries, self._bytes = entries, size
            self._idle = False

    def request_group(self) -> None:
        """Request that all records in the queue are taken now."""
        with self._changed:
            self._requested = True
            self._changed.notify()

    def close(self) -> None:
        """Request that the records in the queue are taken, and then `take` returns None."""
        with self._changed:
            self._closed = True
            self._changed.notify()

    def cancel(self) -> None:
        """Drop the records in the queue; `take` returns None from now on."""
        with self._changed:
            self._cancelled = True
            self._records.clear()
            self._changed.notify()

    def take(self) -> RecordGroup | None:
        """Wait for a group of records by the rules of group commit; return it, or None after `close` or `cancel`."""
        records: list[JournalRecord] = []
        size, oldest = 0, 0.0
        with self._changed:
            while not self._cancelled:
                following = self._records[0][0] if self._records else None
                if records and (trigger := self._trigger(len(records), size, oldest, following)) is not None:
                    self._entries -= len(records)
                    self._bytes -= size
                    return RecordGroup(records, trigger)
                if self._records:
                    since, record = self._records.popleft()
                    oldest = oldest if records else since
                    records.append(record)
                    size += len(record.batch)
                elif records:
                    self._changed.wait(self._rules.seconds_left(oldest, self._clock()))
                elif self._closed:
                    return None
                else:
                    self._requested = False
                    self._idle = True
                    self._changed.wait()
        return None

    def _trigger(self, entries: int, size: int, oldest: float, following: float | None) -> Trigger | None:
        trigger = self._rules.trigger(entries, size, oldest, following, self._clock())
        if trigger is None and following is None and (self._requested or self._closed):
            self._requested = False
            return Trigger.REQUESTED
        return trigger
