"""The read cache: a ring of memory segments that read-ahead fills (BookKeeper's ReadCache).

Entries are copied into the newest segment, one after the other. When it is full, the oldest segment is begun anew, which drops
all of its entries at once. So no memory is allocated or freed for single entries, and never more than the cache was given.
"""

from __future__ import annotations

import mmap
from bisect import bisect_left, bisect_right
from typing import Final, NamedTuple

from spark_producer.broker.storage.tiered.counters import ReadCacheCounters
from spark_producer.broker.storage.tiered.sources import Entry

LARGEST_SEGMENT: Final = 1 << 30
FEWEST_SEGMENTS: Final = 2
ALIGNMENT: Final = 64
"""Entries begin at multiples of this: two of them never share a cache line of the processor."""


class _Place(NamedTuple):
    end_offset: int
    position: int
    size: int


class _Segment:
    """A piece of memory, and an index of the entries in it."""

    def __init__(self, size: int) -> None:
        self._memory = mmap.mmap(-1, size)
        self._size = size
        self._used = 0
        self._bases: dict[int, list[int]] = {}
        self._places: dict[tuple[int, int], _Place] = {}
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._places)

    def has_room(self, size: int) -> bool:
        return self._used + size <= self._size

    def put(self, log_id: int, entry: Entry) -> None:
        size, position = len(entry.batch), self._used
        self._memory[position : position + size] = entry.batch
        self._used = -(-(position + size) // ALIGNMENT) * ALIGNMENT
        known = self._places.get((log_id, entry.base_offset))
        if known is None:
            bases = self._bases.setdefault(log_id, [])
            bases.insert(bisect_left(bases, entry.base_offset), entry.base_offset)
        self.bytes += size - (known.size if known is not None else 0)
        self._places[log_id, entry.base_offset] = _Place(entry.end_offset, position, size)

    def find(self, log_id: int, offset: int) -> Entry | None:
        bases = self._bases.get(log_id)
        at = bisect_right(bases, offset) - 1 if bases else -1
        if bases is None or at < 0:
            return None
        base = bases[at]
        place = self._places[log_id, base]
        if offset >= place.end_offset:
            return None
        return Entry(base, place.end_offset, self._memory[place.position : place.position + place.size])

    def clear(self) -> None:
        self._used = self.bytes = 0
        self._bases.clear()
        self._places.clear()

    def close(self) -> None:
        self._memory.close()


class ReadCache:
    """Batches that were read from entry logs, at least for as long as half of its bytes were put in after them.

    Only the broker's thread uses it. There are two segments, or as many of 1 GiB as fit into `max_bytes`.
    """

    def __init__(self, max_bytes: int, counters: ReadCacheCounters, *, largest_segment: int = LARGEST_SEGMENT) -> None:
        count = max(FEWEST_SEGMENTS, max_bytes // largest_segment)
        self.segment_bytes = max_bytes // count
        self._counters = counters
        self._segments = [_Segment(self.segment_bytes) for _ in range(count)]
        self._current = 0

    def put(self, log_id: int, entry: Entry) -> bool:
        """Put a copy of an entry into the newest segment; return whether it was put in, which it is not if it is larger than a
        segment. An entry that an older segment has is then there twice: the newer one is found."""
        if len(entry.batch) > self.segment_bytes:
            self._counters.too_large += 1
            return False
        if not self._segments[self._current].has_room(len(entry.batch)):
            self._current = (self._current + 1) % len(self._segments)
            oldest = self._segments[self._current]
            self._counters.evict += len(oldest)
            oldest.clear()
        self._segments[self._current].put(log_id, entry)
        self._counters.insert += 1
        self._counters.entries = sum(len(segment) for segment in self._segments)
        self._counters.bytes = sum(segment.bytes for segment in self._segments)
        return True

    def find(self, log_id: int, offset: int) -> Entry | None:
        """Return the entry that holds `offset`, with a copy of its bytes; None if it is not there."""
        for back in range(len(self._segments)):
            found = self._segments[self._current - back].find(log_id, offset)
            if found is not None:
                return found
        return None

    def close(self) -> None:
        """Give the memory back."""
        for segment in self._segments:
            segment.clear()
            segment.close()
