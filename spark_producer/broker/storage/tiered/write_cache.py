"""The write cache: an active half that takes batches, and one that is being flushed or is empty. They are swapped.

Its lock is the only one between the broker's thread and the flush. It is held for a copy or a swap, never for a call of the disk.
While it is held, the mark of the journal is read and batches are appended to the journal, which takes the journal's own lock.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from spark_producer.broker.storage.file_ops import Buffer
from spark_producer.broker.storage.tiered.counters import WriteCacheCounters
from spark_producer.broker.storage.tiered.interfaces import ReadLimits, ReadResult
from spark_producer.broker.storage.tiered.write_cache_half import CachedBatch, Slot, WriteCacheHalf

MarkT = TypeVar("MarkT")


class WriteCache(Generic[MarkT]):
    """Two halves of `half_size` bytes each. Any thread may use it.

    `mark` returns the position in the journal up to which all batches are in the cache. It is called right before each swap, so
    all batches before the mark are in the half that is then flushed, or were flushed before. `swapped` is called right after each
    swap, and must not block.
    """

    def __init__(
        self,
        half_size: int,
        mark: Callable[[], MarkT],
        *,
        swapped: Callable[[], None] = lambda: None,
        counters: WriteCacheCounters | None = None,
    ) -> None:
        self.half_size = half_size
        self.counters = counters if counters is not None else WriteCacheCounters()
        self._mark = mark
        self._swapped = swapped
        self._lock = threading.Lock()
        self._active = WriteCacheHalf(half_size)
        self._other = WriteCacheHalf(half_size)
        self._flushing: tuple[WriteCacheHalf, MarkT] | None = None

    @property
    def flushing(self) -> tuple[WriteCacheHalf, MarkT] | None:
        """The half to flush and its mark, None if there is none."""
        return self._flushing

    def contents(self) -> list[tuple[int, list[Slot]]]:
        """Return the batches to flush: the sorted ids of logs, each with its slots by base offset."""
        with self._lock:
            half = self._other
            return [(log_id, list(half.slots(log_id))) for log_id in half.log_ids()] if self._flushing else []

    @property
    def is_empty(self) -> bool:
        """Whether neither half has a batch."""
        return not self._active.used and not self._other.used

    def has_space(self, size: int) -> bool:
        """Return whether batches of `size` bytes together probably fit now."""
        return self._active.has_space(size) or (self._flushing is None and size <= self.half_size)

    def put(
        self, log_id: int, batch: CachedBatch, parts: Iterable[Buffer], hand_over: Callable[[memoryview], int]
    ) -> bool:
        """Put a batch into the active half, and call `hand_over` with its view, which returns the ticket of the journal.

        If the active half is full and the other one is free, they are swapped first. Return False if there is no space. If
        `hand_over` raises, the batch is not in the cache. The batches of a log must come in order.
        """
        with self._lock:
            view = self._active.put(log_id, batch, parts)
            if view is None and self._flushing is None and batch.size <= self.half_size:
                self._swap()
                view = self._active.put(log_id, batch, parts)
            if view is None:
                return False
            try:
                self._active.ticket = hand_over(view)
            except BaseException:
                self._active.take_back(log_id)  # a flush must not store a batch that is not in the journal
                raise
            self._count()
            return True

    def swap(self) -> bool:
        """Swap the halves, so that the active one can be flushed. Return False if it is empty, or the other one is not free."""
        with self._lock:
            if self._flushing is not None or not self._active.used:
                return False
            self._swap()
            return True

    def _swap(self) -> None:
        mark = self._mark()
        self._active, self._other = self._other, self._active
        self._flushing = (self._other, mark)
        self.counters.swaps += 1
        self._swapped()

    def clear(self) -> None:
        """Clear the flushed half. All of its batches must be in the index."""
        with self._lock:
            self._other.clear()
            self._flushing = None
            self._count()

    def read(self, log_id: int, offset: int, limits: ReadLimits) -> ReadResult | None:
        """See `interfaces.WriteCacheReader.read`."""
        with self._lock:
            for half in (self._active, self._other):
                found = half.read(log_id, offset, limits)
                if found is not None:
                    views, end_offset = found
                    return ReadResult(len(views), end_offset, b"".join(views), half is self._other)
        return None

    def cached_batch(self, log_id: int, offset: int) -> CachedBatch | None:
        """Return the metadata of the batch that holds `offset`, None if neither half has it."""
        with self._lock:
            slot = self._active.find(log_id, offset) or self._other.find(log_id, offset)
        return slot.batch if slot is not None else None

    def cached_batches(self, log_id: int) -> list[tuple[CachedBatch, bytes]]:
        """Return all batches of a log in order, each with a copy of its bytes. This may be slow; it is used to open a log."""
        with self._lock:
            halves = (self._other, self._active)
            return [(slot.batch, bytes(half.view(slot))) for half in halves for slot in half.slots(log_id)]

    def first_at_or_after_position(self, log_id: int, position: int) -> CachedBatch | None:
        """Return the first batch of a log at or after `position`."""
        with self._lock:
            slot = self._other.first_at_or_after_position(log_id, position) or self._active.first_at_or_after_position(
                log_id, position
            )
        return slot.batch if slot is not None else None

    def first(self, log_id: int, predicate: Callable[[CachedBatch], bool]) -> CachedBatch | None:
        """Return the first batch of a log for which `predicate` is true."""
        with self._lock:
            found = (slot.batch for half in (self._other, self._active) for slot in half.slots(log_id))
            return next(filter(predicate, found), None)

    def latest_timestamp(self, log_id: int, start: int, end: int) -> int | None:
        """Return the maximum timestamp of the batches of a log between two offsets, None if there are none."""
        with self._lock:
            batches = (slot.batch for half in (self._other, self._active) for slot in half.slots(log_id))
            return max((each.max_timestamp for each in batches if start <= each.base_offset < end), default=None)

    def forget(self, log_id: int) -> None:
        """Remove the batches of a deleted log."""
        with self._lock:
            self._active.forget(log_id)
            self._other.forget(log_id)
            self._count()

    def _count(self) -> None:
        self.counters.bytes = self._active.bytes + self._other.bytes
        self.counters.entries = self._active.entries + self._other.entries
