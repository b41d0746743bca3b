"""One half of the write cache: copies of batches that are not yet in an entry log, in memory that is reserved once and reused.

The memory is an anonymous mapping. A batch has a slot in it, which begins at a multiple of 64 bytes (BookKeeper's WriteCache).
The journal and the flush write directly from the slots, so a half may be cleared only after both have completed.
"""

from __future__ import annotations

import mmap
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Final, NamedTuple

from spark_producer.broker.storage.file_ops import Buffer
from spark_producer.broker.storage.tiered.interfaces import ReadLimits
from spark_producer.broker.storage.tiered.ledgers import Ledger

SLOT_ALIGNMENT: Final = 64
NO_TICKET: Final = 0
"""The ticket of a half without batches in the journal."""


class CachedBatch(NamedTuple):
    """The metadata of a batch in the cache.

    position: size of all earlier batches of the log in bytes, plus a constant: only differences of positions are meaningful.
    ledger: the ledger of the batch.
    """

    base_offset: int
    end_offset: int
    max_timestamp: int
    size: int
    position: int
    ledger: Ledger


class Slot(NamedTuple):
    """A batch in the half, and the byte at which it begins."""

    batch: CachedBatch
    start: int


class WriteCacheHalf:
    """Batches of many logs in `size` bytes. It has no lock: see `WriteCache`."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.ticket = NO_TICKET
        """The ticket of the last batch that was appended to the journal."""
        self.entries = 0
        self.bytes = 0
        self._memory = memoryview(mmap.mmap(-1, size))
        self._used = 0
        self._slots: dict[int, list[Slot]] = {}
        self._bases: dict[int, list[int]] = {}

    @property
    def used(self) -> int:
        """The number of used bytes."""
        return self._used

    def has_space(self, size: int) -> bool:
        """Return whether a batch of `size` bytes fits."""
        return self._used + size <= self.size

    def put(self, log_id: int, batch: CachedBatch, parts: Iterable[Buffer]) -> memoryview | None:
        """Copy a batch, given in parts, and return the view of its slot; return None if it does not fit.

        A batch replaces one with the same base offset, whose slot stays used. The order of batches is free. After a MemoryError
        the half is unchanged.
        """
        if not self.has_space(batch.size):
            return None
        start = at = self._used
        for part in parts:
            self._memory[at : at + len(part)] = part
            at += len(part)
        view = self._memory[start:at]
        self._enter(log_id, Slot(batch, start))  # last, since it may raise MemoryError
        self._used = -(-at // SLOT_ALIGNMENT) * SLOT_ALIGNMENT
        return view

    def _enter(self, log_id: int, slot: Slot) -> None:
        slots, bases = self._slots.setdefault(log_id, []), self._bases.setdefault(log_id, [])
        base = slot.batch.base_offset
        index = len(bases) if not bases or base > bases[-1] else bisect_left(bases, base)
        if index < len(bases) and bases[index] == base:
            self.bytes -= slots[index].batch.size
            slots[index] = slot
        else:
            bases.insert(index, base)
            try:
                slots.insert(index, slot)
            except MemoryError:
                del bases[index]  # else the rows of all following batches would be off by one
                raise
            self.entries += 1
        self.bytes += slot.batch.size

    def take_back(self, log_id: int) -> None:
        """Remove the last batch of a log, which must be the batch that was put last, and free its bytes."""
        self._bases[log_id].pop()
        slot = self._slots[log_id].pop()
        self._used = slot.start
        self.entries -= 1
        self.bytes -= slot.batch.size

    def find(self, log_id: int, offset: int) -> Slot | None:
        """Return the slot of the batch that holds `offset`, None if the half has no such batch."""
        bases = self._bases.get(log_id)
        index = bisect_right(bases, offset) - 1 if bases else -1
        if index < 0:
            return None
        slot = self._slots[log_id][index]
        return slot if offset < slot.batch.end_offset else None

    def read(self, log_id: int, offset: int, limits: ReadLimits) -> tuple[list[memoryview], int] | None:
        """Return consecutive batches from the one that holds `offset` on, within `limits`, and the offset after them; None if the
        half has no such batch. The bytes change when the half is reused."""
        bases = self._bases.get(log_id)
        index = bisect_right(bases, offset) - 1 if bases else -1
        if index < 0 or offset >= self._slots[log_id][index].batch.end_offset:
            return None
        views: list[memoryview] = []
        taken, expected = 0, self._slots[log_id][index].batch.base_offset
        for batch, start in islice(self._slots[log_id], index, None):
            if batch.base_offset != expected or expected >= limits.end or not limits.allows(batch.size, taken):
                break
            views.append(self._memory[start : start + batch.size])
            taken += batch.size
            expected = batch.end_offset
        return views, expected

    def first_at_or_after_position(self, log_id: int, position: int) -> Slot | None:
        """Return the slot of the first batch of a log at or after `position`."""
        slots = self._slots.get(log_id, ())
        index = bisect_left(slots, position, key=lambda slot: slot.batch.position)
        return slots[index] if index < len(slots) else None

    def slots(self, log_id: int) -> Sequence[Slot]:
        """Return the slots of a log by base offset."""
        return self._slots.get(log_id, ())

    def log_ids(self) -> list[int]:
        """Return the sorted ids of the logs with batches in the half."""
        return sorted(self._slots)

    def view(self, slot: Slot) -> memoryview:
        """Return the bytes of a batch, which change when the half is reused."""
        return self._memory[slot.start : slot.start + slot.batch.size]

    def forget(self, log_id: int) -> None:
        """Remove the batches of a log. Their bytes are freed when the half is cleared."""
        self._bases.pop(log_id, None)
        for slot in self._slots.pop(log_id, []):
            self.entries -= 1
            self.bytes -= slot.batch.size

    def clear(self) -> None:
        """Remove all batches."""
        self._slots.clear()
        self._bases.clear()
        self._used = self.entries = self.bytes = 0
        self.ticket = NO_TICKET
