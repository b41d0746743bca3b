"""The read cache: a ring of memory segments that read-ahead fills (BookKeeper's ReadCache).

Entries are copied into the newest segment, one after the other. When it is full, the oldest segment is begun anew, which drops
all of its entries at once. So no memory is allocated or freed for single entries, and never more than the cache was given.
"""

from __future__ import annotations

import mmap
from bisect import bisect_left, bisect_right
from itertools import islice
from typing import Final, NamedTuple

from spark_producer.broker.storage.tiered.counters import ReadCacheCounters
from spark_producer.broker.storage.tiered.sources import Entry, Run, Wanted

LARGEST_SEGMENT: Final = 1 << 30
FEWEST_SEGMENTS: Final = 2
ALIGNMENT: Final = 64
"""Entries begin at multiples of this: two of them never share a cache line of the processor."""


class _Place(NamedTuple):
    end_offset: int
    position: int
    size: int


class _Places:
    """Where the entries of one log lie in a segment, by base offset."""

    def __init__(self) -> None:
        self.bases: list[int] = []
        self.places: list[_Place] = []

    def enter(self, base_offset: int, place: _Place) -> _Place | None:
        """Note an entry; return where it lay before, None if it is new."""
        bases = self.bases
        at = len(bases) if not bases or base_offset > bases[-1] else bisect_left(bases, base_offset)
        if at < len(bases) and bases[at] == base_offset:
            before, self.places[at] = self.places[at], place
            return before
        bases.insert(at, base_offset)
        self.places.insert(at, place)
        return None

    def row(self, offset: int) -> int | None:
        """Return the row of the entry that holds `offset`, None if there is none."""
        row = bisect_right(self.bases, offset) - 1
        return row if row >= 0 and offset < self.places[row].end_offset else None


class _Segment:
    """A piece of memory, and an index of the entries in it."""

    def __init__(self, size: int) -> None:
        self._memory = memoryview(mmap.mmap(-1, size))
        self._size = size
        self._used = 0
        self._logs: dict[int, _Places] = {}
        self.entries = 0
        self.bytes = 0

    def has_room(self, size: int) -> bool:
        return self._used + size <= self._size

    def put(self, log_id: int, entry: Entry) -> None:
        size, position = len(entry.batch), self._used
        self._memory[position : position + size] = entry.batch
        self._used = -(-(position + size) // ALIGNMENT) * ALIGNMENT
        places = self._logs.get(log_id)
        if places is None:
            places = self._logs[log_id] = _Places()
        before = places.enter(entry.base_offset, _Place(entry.end_offset, position, size))
        self.entries += before is None
        self.bytes += size - (0 if before is None else before.size)

    def run(self, log_id: int, offset: int, wanted: Wanted) -> Run | None:
        places = self._logs.get(log_id)
        row = None if places is None else places.row(offset)
        if places is None or row is None:
            return None
        views: list[memoryview] = []
        taken, expected = 0, places.bases[row]
        for base, (end_offset, position, size) in zip(
            islice(places.bases, row, None), islice(places.places, row, None), strict=True
        ):
            if base != expected or base >= wanted.end or not wanted.takes(size, taken):
                break
            views.append(self._memory[position : position + size])
            taken += size
            expected = end_offset
        return Run(len(views), expected, b"".join(views))

    def clear(self) -> None:
        self._used = self.entries = self.bytes = 0
        self._logs.clear()

    def close(self) -> None:
        self._memory.release()


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
        counters, segment = self._counters, self._segments[self._current]
        if not segment.has_room(len(entry.batch)):
            self._current = (self._current + 1) % len(self._segments)
            segment = self._segments[self._current]
            counters.evict += segment.entries
            counters.entries -= segment.entries
            counters.bytes -= segment.bytes
            segment.clear()
        entries, size = segment.entries, segment.bytes
        segment.put(log_id, entry)
        counters.insert += 1
        counters.entries += segment.entries - entries
        counters.bytes += segment.bytes - size
        return True

    def run(self, log_id: int, offset: int, wanted: Wanted) -> Run | None:
        """Return entries from the one that holds `offset` on, as many as its segment has of those wanted; None if that one is not
        there."""
        for back in range(len(self._segments)):
            found = self._segments[self._current - back].run(log_id, offset, wanted)
            if found is not None:
                return found
        return None

    def close(self) -> None:
        """Give the memory back."""
        for segment in self._segments:
            segment.clear()
            segment.close()
