"""The read cache: a ring of memory segments that read-ahead fills (BookKeeper's ReadCache).

Entries are copied to the newest segment, a run of consecutive ones at a time. When it is full, the oldest segment is cleared and
reused, which drops all of its entries at once. So no memory is allocated or freed for single entries, and the size of the cache
is never exceeded.
"""

from __future__ import annotations

import mmap
from bisect import bisect_left, bisect_right
from itertools import accumulate, islice
from typing import Final, NamedTuple

from spark_producer.broker.storage.tiered.counters import ReadCacheCounters
from spark_producer.broker.storage.tiered.interfaces import EntryRun, ReadLimits, ReadResult

MAX_SEGMENT_BYTES: Final = 1 << 30
MIN_SEGMENTS: Final = 2
MIN_LARGE_BYTES: Final = 8 * 1024
"""Minimum mean size in bytes of entries that are copied one by one. Smaller ones are joined first, which is faster."""
ALIGNMENT: Final = 64
"""Runs begin at multiples of this number of bytes, so that two of them never share a cache line of the processor."""


class _CachedRun(NamedTuple):
    """A run in a segment: the byte at which it begins, the base offset and the end byte of each entry, and the end offset."""

    start: int
    bases: list[int]
    ends: list[int]
    end_offset: int

    def part(self, first: int, end: int) -> list[_CachedRun]:
        """Return the entries from row `first` to before `end` in a list, which is empty if there are none."""
        if first >= end:
            return []
        start = self.ends[first - 1] if first else self.start
        end_offset = self.bases[end] if end < len(self.bases) else self.end_offset
        return [_CachedRun(start, self.bases[first:end], self.ends[first:end], end_offset)]

    def row(self, offset: int) -> int:
        """Return the row of the entry that holds `offset`, which must be in the run."""
        return bisect_right(self.bases, offset) - 1


class _LogRuns:
    """The runs of one log in a segment, which do not overlap, sorted by their first base offset."""

    def __init__(self) -> None:
        self.firsts: list[int] = []
        self.runs: list[_CachedRun] = []

    def add(self, cached: _CachedRun) -> None:
        """Add a run, none of whose entries is in the segment."""
        first = cached.bases[0]
        at = len(self.firsts) if not self.firsts or first > self.firsts[-1] else bisect_left(self.firsts, first)
        self.firsts.insert(at, first)
        self.runs.insert(at, cached)

    def cut(self, first: int, end: int) -> list[_CachedRun]:
        """Remove the entries with base offsets from `first` to before `end`; return them."""
        found: list[_CachedRun] = []
        if not self.runs or self.runs[-1].end_offset <= first:
            return found
        at = max(0, bisect_right(self.firsts, first) - 1)
        while at < len(self.firsts) and self.firsts[at] < end:
            cached = self.runs[at]
            low, high = bisect_left(cached.bases, first), bisect_left(cached.bases, end)
            found += cached.part(low, high)
            left = [*cached.part(0, low), *cached.part(high, len(cached.bases))]
            self.runs[at : at + 1] = left
            self.firsts[at : at + 1] = [each.bases[0] for each in left]
            at += len(left)
        return found

    def index(self, offset: int) -> int | None:
        """Return the index of the run that holds `offset`, None if there is none."""
        at = bisect_right(self.firsts, offset) - 1
        return at if at >= 0 and offset < self.runs[at].end_offset else None


class _Segment:
    """A memory segment, and an index of the entries in it."""

    def __init__(self, size: int) -> None:
        self._memory = memoryview(mmap.mmap(-1, size))
        self._size = size
        self._used = 0
        self._logs: dict[int, _LogRuns] = {}
        self.entries = 0
        self.bytes = 0

    @property
    def free_bytes(self) -> int:
        return self._size - self._used

    def put(self, log_id: int, run: EntryRun, ends: list[int]) -> None:
        """Copy a run to the segment, which must have space for it. `ends`: end of each entry in the run, in bytes."""
        size, start = ends[-1], self._used
        if size > MIN_LARGE_BYTES * len(ends):
            for batch, end in zip(run.batches, ends, strict=True):
                self._memory[start + end - len(batch) : start + end] = batch
        else:
            self._memory[start : start + size] = b"".join(run.batches)
        self._used = -(-(start + size) // ALIGNMENT) * ALIGNMENT
        log = self._logs.setdefault(log_id, _LogRuns())
        for before in log.cut(run.bases[0], run.end_offset):
            self.entries -= len(before.bases)
            self.bytes -= before.ends[-1] - before.start
        log.add(_CachedRun(start, run.bases, [start + end for end in ends], run.end_offset))
        self.entries += len(ends)
        self.bytes += size

    def read(self, log_id: int, offset: int, limits: ReadLimits) -> ReadResult | None:
        log = self._logs.get(log_id)
        index = None if log is None else log.index(offset)
        if log is None or index is None:
            return None
        views: list[memoryview] = []
        cached = log.runs[index]
        row, entries, taken = cached.row(offset), 0, 0
        expected = cached.bases[row]
        for cached in islice(log.runs, index, None):
            if cached.bases[row] != expected or expected >= limits.end:
                break
            begin = cached.ends[row - 1] if row else cached.start
            high = bisect_left(cached.bases, limits.end, row)
            end = bisect_right(cached.ends, begin + limits.max_bytes - taken, row, high)
            if end == row and limits.at_least_one and not taken:
                end = row + 1
            if end == row:
                break
            views.append(self._memory[begin : cached.ends[end - 1]])
            entries += end - row
            taken += cached.ends[end - 1] - begin
            if end < len(cached.bases):
                expected = cached.bases[end]
                break
            row, expected = 0, cached.end_offset
        return ReadResult(entries, expected, b"".join(views))

    def forget(self, log_id: int) -> None:
        for cached in self._logs.pop(log_id, _LogRuns()).runs:
            self.entries -= len(cached.bases)
            self.bytes -= cached.ends[-1] - cached.start

    def clear(self) -> None:
        self._used = self.entries = self.bytes = 0
        self._logs.clear()

    def close(self) -> None:
        self._memory.release()


class ReadCache:
    """Batches that were read from entry logs. A batch stays at least until half of `max_bytes` was put in after it.

    Only the broker's thread uses it. There are two segments, or as many of 1 GiB as fit in `max_bytes`.
    """

    def __init__(
        self, max_bytes: int, counters: ReadCacheCounters, *, largest_segment: int = MAX_SEGMENT_BYTES
    ) -> None:
        count = max(MIN_SEGMENTS, max_bytes // largest_segment)
        self.segment_bytes = max_bytes // count
        self._counters = counters
        self._segments = [_Segment(self.segment_bytes) for _ in range(count)]
        self._current = 0

    def put(self, log_id: int, run: EntryRun) -> None:
        """Copy a run to the newest segment, and the rest that does not fit to the next one. An entry that is larger than a
        segment is skipped. An entry may be in two segments: then the newer copy is read."""
        row, count, ends = 0, len(run.bases), list(accumulate(map(len, run.batches)))
        while row < count:
            begin = ends[row - 1] if row else 0
            end = bisect_right(ends, begin + self._segments[self._current].free_bytes, row)
            if end > row:
                self._put(
                    log_id, _slice(run, row, end), [each - begin for each in ends[row:end]] if begin else ends[:end]
                )
                row = end
            elif ends[row] - begin > self.segment_bytes:
                self._counters.too_large += 1
                row += 1
            else:
                self._begin_next()

    def _put(self, log_id: int, run: EntryRun, ends: list[int]) -> None:
        counters, segment = self._counters, self._segments[self._current]
        entries, size = segment.entries, segment.bytes
        segment.put(log_id, run, ends)
        counters.insert += len(ends)
        counters.entries += segment.entries - entries
        counters.bytes += segment.bytes - size

    def _begin_next(self) -> None:
        """Clear the oldest segment and make it the newest one."""
        self._current = (self._current + 1) % len(self._segments)
        counters, segment = self._counters, self._segments[self._current]
        counters.evict += segment.entries
        counters.entries -= segment.entries
        counters.bytes -= segment.bytes
        segment.clear()

    def read(self, log_id: int, offset: int, limits: ReadLimits) -> ReadResult | None:
        """Return entries of one segment from the one that holds `offset` on, within `limits`; None if no segment has that one."""
        for back in range(len(self._segments)):
            found = self._segments[self._current - back].read(log_id, offset, limits)
            if found is not None:
                return found
        return None

    def forget(self, log_id: int) -> None:
        """Drop the entries of a log that was rewritten."""
        for segment in self._segments:
            entries, size = segment.entries, segment.bytes
            segment.forget(log_id)
            self._counters.entries -= entries - segment.entries
            self._counters.bytes -= size - segment.bytes

    def close(self) -> None:
        """Release the memory."""
        for segment in self._segments:
            segment.clear()
            segment.close()


def _slice(run: EntryRun, first: int, end: int) -> EntryRun:
    """Return the entries of a run from row `first` to before `end`."""
    end_offset = run.bases[end] if end < len(run.bases) else run.end_offset
    return EntryRun(run.bases[first:end], end_offset, run.batches[first:end])
