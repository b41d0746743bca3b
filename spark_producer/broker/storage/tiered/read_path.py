"""The read path: a read goes through the tiers in the order of Pulsar's broker and BookKeeper's bookie.

(1) The tail cache, if it has the whole range. Otherwise, for each batch: (2) the active half of the write cache, (3) the half
that is being flushed, (4) the read cache, (5) the location index, (6) the entry log; then (7) the entries after it are read
ahead, (8) all of them are put into the read cache, and (9) the batch is returned.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from enum import Enum
from typing import Final, NamedTuple

from spark_producer.broker.storage.tiered.counters import TierCounters
from spark_producer.broker.storage.tiered.cursors import Cursors
from spark_producer.broker.storage.tiered.interfaces import (
    EntryLogReader,
    EntryMissing,
    Location,
    LocationReader,
    ReadLimits,
    ReadResult,
    WriteCacheReader,
)
from spark_producer.broker.storage.tiered.read_ahead import ReadAhead, ReadAheadLimits, Stop
from spark_producer.broker.storage.tiered.read_cache import ReadCache
from spark_producer.broker.storage.tiered.tail_cache import TailCache
from spark_producer.errors import CorruptRecord
from spark_producer.record.batch_v2 import read_header

_MAX_LOOKUPS: Final = 3
"""Maximum number of lookups of a location whose file was deleted: each compaction moves an entry once."""


class Tier(Enum):
    """The tier from which a batch was read that the tail cache did not have."""

    ACTIVE = "active half"
    FLUSHING = "flushing half"
    READ_CACHE = "read cache"
    ENTRY_LOG = "entry log"


class _TierResult(NamedTuple):
    """The result of one tier."""

    tier: Tier
    result: ReadResult


class _ReadPieces(NamedTuple):
    """The result of a read: its bytes in pieces, the number of entries, and the offset after them."""

    pieces: list[bytes]
    entries: int
    end_offset: int


class ReadPath:
    """Reads logs through all tiers. Only the broker's thread uses it. `clock` returns seconds."""

    def __init__(
        self,
        *,
        tail: TailCache,
        cursors: Cursors,
        write_cache: WriteCacheReader,
        read_cache: ReadCache,
        index: LocationReader,
        entry_logs: EntryLogReader,
        limits: ReadAheadLimits,
        counters: TierCounters,
        clock: Callable[[], float],
    ) -> None:
        self._tail = tail
        self._cursors = cursors
        self._write_cache = write_cache
        self._read_cache = read_cache
        self._index = index
        self._entry_logs = entry_logs
        self._limits = limits
        self._counters = counters
        self._clock = clock

    def admitted(self, log_id: int, base_offset: int, end_offset: int, batch: bytes | memoryview) -> None:
        """Put an admitted batch into the tail cache if its log has an active cursor.

        Pulsar inserts a batch after it was written. Here a batch cannot be read earlier either, because no read passes the high
        watermark; and a reader that waits for the new high watermark finds the batch there.
        """
        if self._cursors.admitted(log_id, base_offset, end_offset):
            self._tail.insert(log_id, base_offset, end_offset, batch)

    def reader_waits(self, log_id: int, offset: int) -> None:
        """Record that a reader waits for batches from `offset` on."""
        self._cursors.reader_waits(log_id, offset)

    def expire(self) -> float | None:
        """Drop expired batches of the tail cache; return the time of the next call, None if the cache is empty. Any thread may
        call this."""
        return self._tail.expire()

    def cursor_changed(self, log_id: int, exists: bool) -> None:
        """Record whether any consumer group has a cursor in a log."""
        self._cursors.set_durable(log_id, int(exists))

    def forget(self, log_id: int) -> None:
        """Remove a deleted log."""
        self._tail.invalidate(log_id)
        self._cursors.forget(log_id)

    def rewritten(self, log_id: int) -> None:
        """Drop the cached batches of a log that was rewritten."""
        self._tail.invalidate(log_id)
        self._read_cache.forget(log_id)

    def read(self, log_id: int, offset: int, end: int, max_bytes: int, *, at_least_one: bool = True) -> bytes:
        """Return whole batches, in order, from the one that holds `offset` on, before the one that begins at `end`.

        They have at most `max_bytes`; with `at_least_one` the first one may be larger.

        Args:
            log_id: id of the log.
            offset: at least its start offset, and at most its high watermark.
            end: its high watermark, or the base offset of a batch before it.

        Raises:
            CorruptRecord, EntryMissing, OSError: the first batch cannot be read.
        """
        limits = ReadLimits(end, max_bytes, at_least_one)
        found = self._from_tail(log_id, offset, limits) or self._from_storage(log_id, offset, limits)
        data = found.pieces[0] if len(found.pieces) == 1 else b"".join(found.pieces)
        self._counters.read.fetched += found.entries
        self._counters.read.fetched_bytes += len(data)
        if found.entries:
            self._cursors.reader_moved(log_id, offset, found.end_offset)
            slowest = self._cursors.slowest(log_id)
            if slowest is not None:
                self._tail.drop_before(log_id, slowest)
        else:
            self._cursors.reader_waits(log_id, offset)
        return data

    def _from_tail(self, log_id: int, offset: int, limits: ReadLimits) -> _ReadPieces | None:
        """Return all batches within `limits` from the tail cache; None if one of them is missing there."""
        if offset >= limits.end:
            return _ReadPieces([], 0, offset)
        found = self._tail.read(log_id, offset, limits.end, limits.max_bytes, at_least_one=limits.at_least_one)
        if found is None:
            return None
        self._counters.tail.hit += len(found)
        self._counters.tail.hit_bytes += sum(map(len, found))
        return _ReadPieces(found, len(found), read_header(found[-1]).last_offset + 1 if found else offset)

    def _from_storage(self, log_id: int, offset: int, limits: ReadLimits) -> _ReadPieces:
        pieces: list[bytes] = []
        entries = 0
        while offset < limits.end:
            try:
                found = self._find(log_id, offset, limits)
            except (CorruptRecord, EntryMissing, OSError):
                self._tail.invalidate(log_id)
                if not pieces:
                    raise
                break  # the next read begins with this batch, and raises
            result = found.result
            if not result.entries:
                break
            self._count(found)
            pieces.append(result.data)
            entries += result.entries
            offset = result.end_offset
            limits = ReadLimits(limits.end, limits.max_bytes - len(result.data))
        return _ReadPieces(pieces, entries, offset)

    def _find(self, log_id: int, offset: int, limits: ReadLimits) -> _TierResult:
        """Return batches from the one that holds `offset` on, from the first tier that has that one.

        The write cache is searched before the index: a batch that leaves the cache meanwhile is in the index.
        """
        written = self._write_cache.read(log_id, offset, limits)
        if written is not None:
            return _TierResult(Tier.FLUSHING if written.is_flushing else Tier.ACTIVE, written)
        cached = self._read_cache.read(log_id, offset, limits)
        if cached is not None:
            return _TierResult(Tier.READ_CACHE, cached)
        for attempt in range(_MAX_LOOKUPS):
            location = self._locate(log_id, offset)
            if not limits.allows(location.size, 0):
                return _TierResult(Tier.ENTRY_LOG, ReadResult(0, offset, b""))
            try:
                return _TierResult(Tier.ENTRY_LOG, ReadResult(1, location.end_offset, self._load(log_id, location)))
            except EntryMissing:
                if attempt == _MAX_LOOKUPS - 1 or self._locate(log_id, offset) == location:
                    raise
        raise AssertionError("the last lookup returns or raises")

    def _locate(self, log_id: int, offset: int) -> Location:
        begin = self._clock()
        location = self._index.find(log_id, offset)
        self._counters.index.lookup += 1
        self._counters.index.us += _microseconds(self._clock() - begin)
        if location is None:
            raise EntryMissing(f"the index has no batch of log {log_id} that holds offset {offset}")
        return location

    def _load(self, log_id: int, location: Location) -> bytes:
        """Read an entry, read the following ones ahead, put all of them into the read cache, and return the first."""
        is_cached = self._entry_logs.is_cached(location)
        begin = self._clock()
        ahead = ReadAhead(self._limits, log_id, location.base_offset)
        with contextlib.closing(self._entry_logs.runs(location, ahead)) as runs:
            first = next(runs, None)
            if first is None:
                raise EntryMissing(
                    f"entry log {location.file_id} has no batch of log {log_id} with offset {location.base_offset} at byte "
                    f"{location.position}"
                )
            counters = self._counters.entrylog
            counters.read_us += _microseconds(self._clock() - begin)
            counters.read_page_cache += is_cached is True
            counters.read_disk += is_cached is False
            begin, batch = self._clock(), bytes(first.batches[0])
            self._read_cache.put(log_id, first)
            try:
                for run in runs:
                    self._read_cache.put(log_id, run)
            except OSError:
                ahead.stop = Stop.END  # a read of these entries raises the error
            self._count_ahead(ahead, self._clock() - begin)
        return batch

    def _count_ahead(self, ahead: ReadAhead, seconds: float) -> None:
        counters = self._counters.readahead
        counters.batches += 1
        counters.entries += ahead.entries
        counters.bytes += ahead.bytes
        counters.us += _microseconds(seconds)
        name = f"stop_{(ahead.stop or Stop.END).value}"
        setattr(counters, name, getattr(counters, name) + 1)

    def _count(self, found: _TierResult) -> None:
        """Count returned batches: for each a hit of its tier, and a miss of the tiers before it."""
        counters, entries, size = self._counters, found.result.entries, len(found.result.data)
        counters.tail.miss += entries
        counters.tail.miss_bytes += size
        if found.tier is Tier.ACTIVE:
            counters.write_cache.hit_active += entries
            return
        if found.tier is Tier.FLUSHING:
            counters.write_cache.hit_flushing += entries
            return
        counters.write_cache.miss += entries
        counters.read.catchup_bytes += size
        if found.tier is Tier.READ_CACHE:
            counters.read_cache.hit += entries
        else:
            counters.read_cache.miss += entries
            counters.entrylog.read += entries
            counters.entrylog.read_bytes += size


def _microseconds(seconds: float) -> int:
    return int(seconds * 1_000_000)
