"""A read path over a write cache, an index and entry logs that are lists, in which tests put batches where they want."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import asdict

from spark_producer.broker.storage.base import LEADER_EPOCH
from spark_producer.broker.storage.tiered.counters import TierCounters
from spark_producer.broker.storage.tiered.cursors import Cursors
from spark_producer.broker.storage.tiered.entry_log_format import entry_header
from spark_producer.broker.storage.tiered.interfaces import (
    EntryConsumer,
    EntryMissing,
    EntryRun,
    Location,
    ReadLimits,
    ReadResult,
)
from spark_producer.broker.storage.tiered.read_ahead import ReadAheadLimits
from spark_producer.broker.storage.tiered.read_cache import ReadCache
from spark_producer.broker.storage.tiered.read_path import ReadPath
from spark_producer.broker.storage.tiered.tail_cache import TailCache
from spark_producer.record.batch_v2 import assign_base_offset, read_header
from tests.fakes.fake_clock import FakeClock
from tests.unit.broker.batches import filler_batch

LOG, OTHER = 7, 8
"""Ids of logs."""

MIB = 1024 * 1024
LIMITS = ReadAheadLimits(max_entries=1000, cache_bytes=MIB // 2)


def batch_at(base_offset: int, records: int = 2, *, size: int = 100) -> bytes:
    """A batch as a log keeps it, which looks different from every other one."""
    stored = bytearray(filler_batch(records, size=size, timestamp=base_offset))
    assign_base_offset(memoryview(stored), base_offset, LEADER_EPOCH)
    return bytes(stored)


def batches_from(base_offset: int, count: int, records: int = 2, *, size: int = 100) -> list[bytes]:
    return [batch_at(base_offset + number * records, records, size=size) for number in range(count)]


def stored(batch: bytes, log_id: int = LOG) -> bytes:
    """A batch as an entry log has it."""
    return entry_header(log_id, batch) + batch


def end_of(batch: bytes) -> int:
    return read_header(batch).last_offset + 1


class FakeWriteCache:
    """The write cache: what is in each half. `asked` is called each time that it is asked."""

    def __init__(self) -> None:
        self.active: list[tuple[int, bytes]] = []
        self.flushing: list[tuple[int, bytes]] = []
        self.asked: Callable[[], None] = lambda: None

    def read(self, log_id: int, offset: int, limits: ReadLimits) -> ReadResult | None:
        """Return one entry, if it is wanted: the shortest run that a write cache may return."""
        try:
            for half, is_flushing in ((self.active, False), (self.flushing, True)):
                for owner, batch in half:
                    header = read_header(batch)
                    if owner == log_id and header.base_offset <= offset <= header.last_offset:
                        if not limits.allows(len(batch), 0):
                            return ReadResult(0, offset, b"", is_flushing)
                        return ReadResult(1, header.last_offset + 1, batch, is_flushing)
            return None
        finally:
            self.asked()


class FakeEntryLogs:
    """Entry logs with their index. An entry lies at its number in the file. `entries_read` counts the entries that were
    read, and `open` the files that are open."""

    def __init__(self) -> None:
        self.files: dict[int, list[tuple[int, bytes]]] = {}
        self.index: dict[int, list[Location]] = {}
        self.cached: bool | None = None
        self.entries_read = 0
        self.open = 0
        self.damaged: set[tuple[int, int]] = set()

    def append(self, log_id: int, batches: list[bytes], file_id: int = 1) -> None:
        """Flush batches of a log to the end of a file."""
        file = self.files.setdefault(file_id, [])
        for batch in batches:
            header = read_header(batch)
            place = Location(header.base_offset, header.last_offset + 1, file_id, len(file), len(batch))
            self.index.setdefault(log_id, []).append(place)
            file.append((log_id, batch))

    def find(self, log_id: int, offset: int) -> Location | None:
        places = self.index.get(log_id, [])
        return next((each for each in places if each.base_offset <= offset < each.end_offset), None)

    def runs(self, location: Location, consumer: EntryConsumer) -> Generator[EntryRun, None, None]:
        """Each entry is read separately, into a buffer that is reused."""
        if location.file_id not in self.files:
            raise EntryMissing(f"there is no entry log {location.file_id}")
        self.open += 1
        try:
            for number, (log_id, batch) in list(enumerate(self.files[location.file_id]))[location.position :]:
                if consumer.is_done:
                    return
                self.entries_read += 1
                buffer = memoryview(bytearray(stored(batch, log_id)))
                if (location.file_id, number) in self.damaged:
                    buffer[-1] ^= 1
                run, _ = consumer.take(buffer)
                if run is not None:
                    yield run
                buffer[:] = bytes(len(buffer))
            if not consumer.is_done:
                consumer.on_damage()
        finally:
            self.open -= 1

    def is_cached(self, location: Location) -> bool | None:
        return self.cached


class ReadPathHarness:
    """A whole read path. `log_end` is the high watermark of LOG."""

    def __init__(
        self, *, tail_bytes: int = MIB, cache_bytes: int = MIB, limits: ReadAheadLimits = LIMITS, durable: bool = True
    ) -> None:
        self.clock = FakeClock()
        self.counters = TierCounters()
        self.write_cache = FakeWriteCache()
        self.logs = FakeEntryLogs()
        self.tail = TailCache(tail_bytes, self.counters.tail, self.clock)
        self.cursors = Cursors(self.counters.cursor, self.clock, require_durable=durable)
        self.read_cache = ReadCache(cache_bytes, self.counters.read_cache)
        self.log_end = 0
        self.path = ReadPath(
            tail=self.tail,
            cursors=self.cursors,
            write_cache=self.write_cache,
            read_cache=self.read_cache,
            index=self.logs,
            entry_logs=self.logs,
            limits=limits,
            counters=self.counters,
            clock=self.clock,
        )

    def admit(self, *batches: bytes) -> None:
        """Append as a log does: into the active half, then into the tail cache."""
        for batch in batches:
            self.write_cache.active.append((LOG, batch))
            self.log_end = end_of(batch)
            self.path.admitted(LOG, read_header(batch).base_offset, self.log_end, batch)

    def swap(self) -> None:
        self.write_cache.active, self.write_cache.flushing = [], self.write_cache.active

    def flush(self, file_id: int = 1) -> None:
        """Swap if nothing is being flushed, and flush: index first, clear then."""
        if not self.write_cache.flushing:
            self.swap()
        for log_id in sorted({owner for owner, _ in self.write_cache.flushing}):
            self.logs.append(log_id, [batch for owner, batch in self.write_cache.flushing if owner == log_id], file_id)
        self.write_cache.flushing = []

    def read(self, offset: int, max_bytes: int = MIB, *, at_least_one: bool = True, end: int | None = None) -> bytes:
        stop = self.log_end if end is None else end
        return self.path.read(LOG, offset, stop, max_bytes, at_least_one=at_least_one)

    def counted(self) -> dict[str, int]:
        """All counters but those of time, as `tier.field`."""
        found = {
            f"{tier}.{name}": value for tier, all_of in asdict(self.counters).items() for name, value in all_of.items()
        }
        return {name: value for name, value in found.items() if not name.endswith(("us", "ms"))}

    def change(self, before: dict[str, int]) -> dict[str, int]:
        """Return the counts since then."""
        return {name: value - before[name] for name, value in self.counted().items() if value != before[name]}
