"""The tail cache: the newest batches, for readers near the end of a log (Pulsar's managed ledger cache).

Entries of all logs are evicted in the order of their insertion, as in Pulsar since 4.1 (PIP-430, RangeCacheRemovalQueue). Earlier
versions of Pulsar evicted the largest logs first, which drops new entries of busy topics before old entries of idle ones. An
entry is dropped for one of three reasons: the cache is full, the entry has expired, or all active cursors have read it.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from spark_producer.broker.storage.tiered.counters import TailCounters

EVICTION_THRESHOLD: Final = 0.98
"""Fraction of its maximum size above which the cache evicts entries (Pulsar's EntryCacheManagerImpl)."""

EVICTION_TARGET: Final = 0.90
"""Fraction of its maximum size down to which it evicts (managedLedgerCacheEvictionWatermark)."""

TTL_MS: Final = 1000
"""Maximum time of an entry in the cache, in milliseconds (managedLedgerCacheEvictionTimeThresholdMillis)."""

_MIN_SWEPT: Final = 64


class _Cached(NamedTuple):
    end_offset: int
    batch: bytes
    moment: float


class _Bases:
    """The base offsets of a log's entries in ascending order. They are added at the end and removed at the beginning."""

    def __init__(self) -> None:
        self._offsets: list[int] = []
        self._first = 0

    def __len__(self) -> int:
        return len(self._offsets) - self._first

    def __iter__(self) -> Iterator[int]:
        return iter(self._offsets[self._first :])

    @property
    def last(self) -> int:
        return self._offsets[-1] if len(self) else -1

    def append(self, base_offset: int) -> None:
        self._offsets.append(base_offset)

    def first(self) -> int:
        return self._offsets[self._first]

    def drop_first(self) -> None:
        self._first += 1
        if self._first >= _MIN_SWEPT and self._first * 2 > len(self._offsets):
            del self._offsets[: self._first]
            self._first = 0

    def floor(self, offset: int) -> int | None:
        """Return the largest base offset up to `offset`."""
        at = bisect_right(self._offsets, offset, lo=self._first) - 1
        return self._offsets[at] if at >= self._first else None


class TailCache:
    """Copies of the newest batches of all logs, at most `max_bytes` except during an insertion.

    Any thread may use it: the broker's thread inserts and reads, and another one calls `expire` when there are no insertions.
    Only the bytes of batches are counted, as in Pulsar. `clock` returns seconds.
    """

    def __init__(
        self, max_bytes: int, counters: TailCounters, clock: Callable[[], float], *, ttl_ms: int = TTL_MS
    ) -> None:
        self._max_bytes = max_bytes
        self._counters = counters
        self._clock = clock
        self._ttl = ttl_ms / 1000
        self._lock = threading.Lock()
        self._queue: OrderedDict[tuple[int, int], _Cached] = OrderedDict()
        self._logs: dict[int, _Bases] = {}

    def insert(self, log_id: int, base_offset: int, end_offset: int, batch: bytes | memoryview) -> bool:
        """Add a copy of a batch, and evict old entries if the cache is then full. Return whether the batch was added.

        A batch is not added if it is larger than the cache, or if its log has an entry at the same or a later offset.
        """
        with self._lock:
            now = self._clock()
            self._expire(now)
            bases = self._logs.get(log_id)
            if len(batch) > self._max_bytes or (bases is not None and base_offset <= bases.last):
                return False
            copied = _Cached(end_offset, bytes(batch), now)  # first, since it may raise MemoryError
            if bases is None:
                bases = self._logs[log_id] = _Bases()
            bases.append(base_offset)
            self._queue[log_id, base_offset] = copied
            self._counters.insert += 1
            self._counters.entries += 1
            self._counters.bytes += len(batch)
            if self._counters.bytes > EVICTION_THRESHOLD * self._max_bytes:
                self._counters.evict_size += self._evict_to(EVICTION_TARGET * self._max_bytes)
            return True

    def read(
        self, log_id: int, offset: int, end: int, max_bytes: int, *, at_least_one: bool = True
    ) -> list[bytes] | None:
        """Return the batches from the one that holds `offset` on, before offset `end`; None if any of them is missing.

        They have at most `max_bytes`; with `at_least_one` the first may be larger. If one is missing, all of them are read from
        the other tiers (RangeEntryCacheImpl).
        """
        with self._lock:
            bases = self._logs.get(log_id)
            base = None if bases is None else bases.floor(offset)
            if base is None or offset >= self._queue[log_id, base].end_offset:
                return None
            found: list[bytes] = []
            left = max_bytes
            while base < end:
                cached = self._queue.get((log_id, base))
                if cached is None:
                    return None
                if len(cached.batch) > left and (found or not at_least_one):
                    break
                found.append(cached.batch)
                left -= len(cached.batch)
                base = cached.end_offset
            return found

    def expire(self) -> float | None:
        """Drop the expired entries; return the time at which the next one expires, None if the cache is empty.

        Each insertion drops expired entries too. Pulsar does so every 10 ms (managedLedgerCacheEvictionIntervalMs).
        """
        with self._lock:
            return self._expire(self._clock())

    def drop_before(self, log_id: int, offset: int) -> None:
        """Drop the entries of a log that end at `offset` or before it, because every active cursor has read them."""
        with self._lock:
            while (bases := self._logs.get(log_id)) is not None:
                if self._queue[log_id, bases.first()].end_offset > offset:
                    return
                self._drop_first(log_id)
                self._counters.evict_cursor += 1

    def invalidate(self, log_id: int) -> None:
        """Drop all entries of a log, which was deleted, or could not be read."""
        with self._lock:
            while log_id in self._logs:
                self._drop_first(log_id)
                self._counters.invalidated += 1

    def _expire(self, now: float) -> float | None:
        while self._queue:
            (log_id, _), oldest = next(iter(self._queue.items()))
            if oldest.moment + self._ttl > now:
                return oldest.moment + self._ttl
            self._drop_first(log_id)
            self._counters.evict_ttl += 1
        return None

    def _evict_to(self, size: float) -> int:
        evicted = 0
        while self._counters.bytes > size:
            log_id, _ = next(iter(self._queue))
            self._drop_first(log_id)
            evicted += 1
        return evicted

    def _drop_first(self, log_id: int) -> None:
        """Drop the first entry of a log. The first entry of the queue is also the first of its log, since both are sorted."""
        bases = self._logs[log_id]
        cached = self._queue.pop((log_id, bases.first()))
        bases.drop_first()
        if not len(bases):
            del self._logs[log_id]
        self._counters.entries -= 1
        self._counters.bytes -= len(cached.batch)
