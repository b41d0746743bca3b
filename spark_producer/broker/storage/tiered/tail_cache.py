"""The tail cache: batches that were just written, for readers that are near the end (Pulsar's managed ledger cache).

Entries leave it in the order in which they came, whatever log they belong to, as in Pulsar since 4.1 (PIP-430,
RangeCacheRemovalQueue). Before, the largest logs were evicted first, which drops new entries of busy topics before old entries of
idle ones. An entry leaves for one of three reasons: the cache is full, the entry is old, or all active cursors have read it.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from spark_producer.broker.storage.tiered.counters import TailCounters

EVICTION_THRESHOLD: Final = 0.98
"""The part of its size beyond which the cache evicts (Pulsar's EntryCacheManagerImpl)."""

EVICTION_TARGET: Final = 0.90
"""The part of its size to which it evicts (managedLedgerCacheEvictionWatermark)."""

TTL_MS: Final = 1000
"""The milliseconds after which an entry is dropped (managedLedgerCacheEvictionTimeThresholdMillis)."""

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
    """The newest batches of all logs, each copied, `max_bytes` of them at most for longer than one insertion takes.

    Every thread may use it: the broker's thread inserts and reads, and another one calls `expire` for when nothing else happens.
    Only the bytes of batches are counted, as in Pulsar. The clock gives seconds.
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
        """Put a copy of a batch behind all others, and evict if the cache is then full. Return whether it was put in.

        It is not if it is larger than the cache, or if an entry of its log from the same offset or a later one is there already.
        """
        with self._lock:
            now = self._clock()
            self._expire(now)
            bases = self._logs.get(log_id)
            if len(batch) > self._max_bytes or (bases is not None and base_offset <= bases.last):
                return False
            copied = _Cached(end_offset, bytes(batch), now)  # before anything is changed, since it takes memory
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

        They are `max_bytes` at most, or with `at_least_one` one of any size. If one is missing, storage serves all of them
        (RangeEntryCacheImpl).
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
        """Drop the entries that are too old; return the moment at which the next one will be, None if the cache is empty.

        Each insertion does so too. Pulsar does so every 10 ms (managedLedgerCacheEvictionIntervalMs).
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
        """Drop all entries of a log, because it was deleted, or reading it failed."""
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
        """Drop the first entry of a log. The first of the whole queue is also the first of its log, since both are in order."""
        bases = self._logs[log_id]
        cached = self._queue.pop((log_id, bases.first()))
        bases.drop_first()
        if not len(bases):
            del self._logs[log_id]
        self._counters.entries -= 1
        self._counters.bytes -= len(cached.batch)
