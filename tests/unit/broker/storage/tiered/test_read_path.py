"""A read is served by the first tier that has the batch, with the same bytes from each (RO1, RO2, TAIL7, TAIL8)."""

from __future__ import annotations

import random
from collections.abc import Generator

import pytest

from spark_producer.broker.storage.tiered.interfaces import (
    EntryConsumer,
    EntryMissing,
    EntryRun,
    Location,
    ReadLimits,
    ReadResult,
)
from spark_producer.broker.storage.tiered.read_ahead import ReadAheadLimits
from spark_producer.errors import CorruptRecord
from spark_producer.record.batch_v2 import read_header
from tests.unit.broker.storage.tiered.read_path_harness import (
    LOG,
    OTHER,
    ReadPathHarness,
    batch_at,
    batches_from,
    end_of,
)

ONE = batch_at(0, records=3)
SIZE = len(ONE)
MISSED_TAIL = {"tail.miss": 1, "tail.miss_bytes": SIZE}
FETCHED = {"read.fetched": 1, "read.fetched_bytes": SIZE}
FROM_LOG = {
    **FETCHED,
    **MISSED_TAIL,
    "write_cache.miss": 1,
    "read_cache.miss": 1,
    "read_cache.insert": 1,
    "read_cache.entries": 1,
    "read_cache.bytes": SIZE,
    "index.lookup": 1,
    "entrylog.read": 1,
    "entrylog.read_bytes": SIZE,
    "readahead.batches": 1,
    "readahead.stop_end": 1,
    "read.catchup_bytes": SIZE,
}


class Tiers:
    """The ways in which ONE comes to lie in one tier alone."""

    @staticmethod
    def tail(harness: ReadPathHarness) -> None:
        harness.cursors.set_durable(LOG, 1)
        harness.path.reader_waits(LOG, 0)
        harness.admit(ONE)
        harness.cursors.set_durable(LOG, 2)  # so that its first reader does not drop it
        harness.write_cache.active.clear()

    @staticmethod
    def active(harness: ReadPathHarness) -> None:
        harness.admit(ONE)

    @staticmethod
    def flushing(harness: ReadPathHarness) -> None:
        harness.admit(ONE)
        harness.swap()

    @staticmethod
    def read_cache(harness: ReadPathHarness) -> None:
        Tiers.entry_log(harness)
        harness.read(0)
        harness.logs.files.clear()

    @staticmethod
    def entry_log(harness: ReadPathHarness) -> None:
        harness.admit(ONE)
        harness.flush()

    @staticmethod
    def page_cache(harness: ReadPathHarness) -> None:
        Tiers.entry_log(harness)
        harness.logs.cached = True

    @staticmethod
    def disk(harness: ReadPathHarness) -> None:
        Tiers.entry_log(harness)
        harness.logs.cached = False


@pytest.mark.covers("RO1")
@pytest.mark.parametrize("offset", [0, 1, 2])
@pytest.mark.parametrize(
    ("place", "counted"),
    [
        (Tiers.tail, {**FETCHED, "tail.hit": 1, "tail.hit_bytes": SIZE}),
        (Tiers.active, {**FETCHED, **MISSED_TAIL, "write_cache.hit_active": 1}),
        (Tiers.flushing, {**FETCHED, **MISSED_TAIL, "write_cache.hit_flushing": 1}),
        (
            Tiers.read_cache,
            {**FETCHED, **MISSED_TAIL, "write_cache.miss": 1, "read_cache.hit": 1, "read.catchup_bytes": SIZE},
        ),
        (Tiers.entry_log, FROM_LOG),
        (Tiers.page_cache, {**FROM_LOG, "entrylog.read_page_cache": 1}),
        (Tiers.disk, {**FROM_LOG, "entrylog.read_disk": 1}),
    ],
)
def test_each_tier_gives_the_same_bytes_and_counts_one(place: object, counted: dict[str, int], offset: int) -> None:
    """A batch is found by each of its offsets."""
    harness = ReadPathHarness()
    place(harness)  # type: ignore[operator]
    before = harness.counted()
    assert harness.read(offset) == ONE
    assert harness.change(before) == counted
    assert harness.counters.served == harness.counters.read.fetched


@pytest.mark.covers("RO1")
def test_the_tiers_are_asked_in_the_order_of_the_article() -> None:
    """The batch is everywhere; then one tier after the other loses it."""
    harness = ReadPathHarness()
    Tiers.tail(harness)
    harness.logs.append(LOG, [ONE])
    harness.write_cache.flushing.append((LOG, ONE))
    harness.write_cache.active.append((LOG, ONE))
    counters = harness.counters
    assert harness.read(0) == ONE
    assert counters.tail.hit == 1
    harness.tail.invalidate(LOG)
    assert harness.read(0) == ONE
    assert counters.write_cache.hit_active == 1
    harness.write_cache.active.clear()
    assert harness.read(0) == ONE
    assert counters.write_cache.hit_flushing == 1
    harness.write_cache.flushing.clear()
    assert harness.read(0) == ONE
    assert (counters.entrylog.read, counters.read_cache.hit) == (1, 0)
    assert harness.read(0) == ONE
    assert (counters.entrylog.read, counters.read_cache.hit) == (1, 1)
    assert counters.served == counters.read.fetched == 5


@pytest.mark.covers("RO1")
def test_a_range_goes_through_all_tiers() -> None:
    harness = ReadPathHarness(limits=ReadAheadLimits(max_entries=3, cache_bytes=1000))
    batches = batches_from(0, 12)
    harness.admit(*batches[:8])
    harness.flush()
    harness.admit(*batches[8:10])
    harness.swap()
    harness.admit(*batches[10:])
    before = harness.counted()
    assert harness.read(0) == b"".join(batches)
    change = harness.change(before)
    assert (change["entrylog.read"], change["read_cache.hit"]) == (2, 6), "0 and 4, and three after each"
    assert (change["write_cache.hit_flushing"], change["write_cache.hit_active"]) == (2, 2)
    assert change["read.fetched"] == 12


@pytest.mark.covers("RO1")
def test_read_ahead_is_for_the_next_reads() -> None:
    """The misses of a catch-up read: of n entries of one file, n ÷ (B + 1), rounded up."""
    harness = ReadPathHarness(limits=ReadAheadLimits(max_entries=9, cache_bytes=100_000))
    batches = batches_from(0, 95)
    harness.admit(*batches)
    harness.flush()
    offset = 0
    for batch in batches:
        assert harness.read(offset, 1) == batch
        offset = end_of(batch)
    counters = harness.counters
    assert (counters.entrylog.read, counters.read_cache.miss, counters.read_cache.hit) == (10, 10, 85)
    assert (counters.readahead.batches, counters.readahead.entries, counters.readahead.bytes) == (10, 85, 8500)
    assert (counters.readahead.stop_count, counters.readahead.stop_end) == (9, 1)
    assert harness.logs.entries_read == 95, "each was read once"


@pytest.mark.covers("RO1")
def test_an_entry_larger_than_a_segment_of_the_cache_is_read_all_the_same() -> None:
    harness = ReadPathHarness(cache_bytes=2 * 128)
    batch = batch_at(0, size=500)
    harness.admit(batch)
    harness.flush()
    assert harness.read(0) == batch
    assert harness.read(0) == batch
    assert (harness.counters.entrylog.read, harness.counters.read_cache.too_large) == (2, 2)


def test_returned_bytes_do_not_change_when_read_ahead_reuses_a_segment() -> None:
    """One read that is served by the read cache first, and then overwrites it."""
    harness = ReadPathHarness(cache_bytes=2 * 640, limits=ReadAheadLimits(max_entries=1000, cache_bytes=640))
    batches = batches_from(0, 40)
    harness.admit(*batches)
    harness.flush()
    assert harness.read(0) == b"".join(batches)
    assert harness.read(0) == b"".join(batches)
    assert harness.counters.read_cache.evict > 20


@pytest.mark.parametrize("place", [Tiers.active, Tiers.entry_log, Tiers.read_cache])
@pytest.mark.parametrize(
    ("max_bytes", "at_least_one", "count"),
    [(300, True, 3), (299, True, 2), (299, False, 2), (99, True, 1), (99, False, 0), (0, True, 1)],
)
def test_whole_batches_up_to_the_limit(place: object, max_bytes: int, at_least_one: bool, count: int) -> None:
    harness = ReadPathHarness()
    batches = batches_from(0, 5)
    harness.admit(*batches)
    if place is not Tiers.active:
        harness.flush()
    if place is Tiers.read_cache:
        harness.read(0)
    before = harness.counted()
    assert harness.read(0, max_bytes, at_least_one=at_least_one) == b"".join(batches[:count])
    assert harness.change(before).get("read.fetched", 0) == count
    assert harness.counters.served == harness.counters.read.fetched, "what does not fit is not counted"


def test_nothing_is_read_from_the_end_on() -> None:
    harness = ReadPathHarness()
    harness.cursors.set_durable(LOG, 1)
    harness.path.reader_waits(LOG, 0)
    batches = batches_from(0, 5)
    harness.admit(*batches)
    assert harness.read(10) == b""
    assert harness.read(4, end=4) == b""
    assert harness.read(0, end=6) == b"".join(batches[:3]), "of the tail cache"
    harness.tail.invalidate(LOG)
    assert harness.read(0, end=6) == b"".join(batches[:3]), "of the write cache"
    assert harness.counters.read.fetched == 6


@pytest.mark.covers("TAIL7")
def test_a_range_that_the_tail_cache_has_in_part_comes_from_storage_as_a_whole() -> None:
    harness = ReadPathHarness()
    batches = batches_from(0, 6)
    harness.admit(*batches[:3])
    harness.cursors.set_durable(LOG, 1)
    harness.path.reader_waits(LOG, 6)
    harness.admit(*batches[3:])
    assert harness.counters.tail.entries == 3
    assert harness.read(0) == b"".join(batches)
    assert (harness.counters.tail.hit, harness.counters.tail.miss, harness.counters.write_cache.hit_active) == (0, 6, 6)


@pytest.mark.covers("TAIL8")
def test_two_readers_of_the_same_range_cost_one_read_of_storage() -> None:
    """Pulsar joins reads that are under way at the same time (PendingReadsManager). Here one thread reads, so the second reader
    always comes after the first, and finds what read-ahead has left."""
    harness = ReadPathHarness()
    batches = batches_from(0, 20)
    harness.admit(*batches)
    harness.flush()
    for _ in range(2):
        assert harness.read(0, 1000) == b"".join(batches[:10])
    assert harness.read(8, 500) == b"".join(batches[4:9]), "and one that overlaps"
    assert (harness.counters.entrylog.read, harness.logs.entries_read) == (1, 20)


@pytest.mark.covers("TAIL8")
def test_two_readers_near_the_end_cost_no_read_of_storage() -> None:
    harness = ReadPathHarness()
    harness.cursors.set_durable(LOG, 2)
    harness.path.reader_waits(LOG, 0)
    harness.admit(ONE)
    assert [harness.read(0), harness.read(0)] == [ONE, ONE]
    assert (harness.counters.tail.hit, harness.counters.read.fetched) == (2, 2)


@pytest.mark.covers("RO2")
def test_a_flush_that_ends_while_the_write_cache_is_asked_hides_nothing() -> None:
    harness = ReadPathHarness()
    batches = batches_from(0, 3)
    harness.admit(*batches)
    asked = 0

    def in_between() -> None:
        nonlocal asked
        asked += 1
        if asked == 2:
            harness.swap()
        if asked == 3:
            harness.flush()

    harness.write_cache.asked = in_between
    assert harness.read(0) == b"".join(batches)
    counters = harness.counters
    assert (counters.write_cache.hit_active, counters.write_cache.hit_flushing, counters.entrylog.read) == (2, 1, 0)


@pytest.mark.covers("RO2")
def test_a_half_that_is_cleared_just_before_it_is_asked_hides_nothing() -> None:
    """If the index were asked first, it would not know the entry yet, and afterwards the half would not have it any more."""
    harness = ReadPathHarness()
    harness.admit(ONE)
    harness.swap()
    look = harness.write_cache.read

    def too_late(log_id: int, offset: int, limits: ReadLimits) -> ReadResult | None:
        harness.flush()
        return look(log_id, offset, limits)

    harness.write_cache.read = too_late  # type: ignore[method-assign]
    assert harness.read(0) == ONE
    assert harness.counters.entrylog.read == 1


@pytest.mark.covers("RO2")
def test_an_entry_that_a_compaction_moves_is_looked_up_again() -> None:
    harness = ReadPathHarness()
    harness.admit(ONE)
    harness.flush(file_id=1)
    moved = harness.logs.index[LOG][0]._replace(file_id=2)
    harness.logs.files = {2: [(LOG, ONE)]}
    found = harness.logs.find
    answers = [harness.logs.index[LOG][0], moved, moved]
    harness.logs.find = lambda log_id, offset: answers.pop(0) if answers else found(log_id, offset)  # type: ignore[method-assign]
    assert harness.read(0) == ONE
    assert harness.counters.entrylog.read == 1
    assert harness.counters.index.lookup == 3


@pytest.mark.parametrize("wrong", ["no file", "another log", "another offset", "damage", "not in the index"])
def test_what_cannot_be_read_is_an_error_and_leaves_nothing_in_the_tail_cache(wrong: str) -> None:
    harness = ReadPathHarness()
    batches = batches_from(0, 4)
    harness.admit(*batches)
    harness.flush()
    harness.cursors.set_durable(LOG, 1)
    harness.path.reader_waits(LOG, 8)
    harness.admit(batch_at(8))
    assert harness.counters.tail.entries == 1
    if wrong == "no file":
        del harness.logs.files[1]
    elif wrong == "another log":
        harness.logs.files[1] = [(OTHER, batch) for _, batch in harness.logs.files[1]]
    elif wrong == "another offset":
        harness.logs.files[1].reverse()
    elif wrong == "damage":
        harness.logs.damaged.add((1, 0))
    else:
        harness.logs.index.clear()
    with pytest.raises(CorruptRecord if wrong == "damage" else EntryMissing):
        harness.read(0)
    assert harness.counters.tail.entries == 0
    assert (harness.counters.read.fetched, harness.counters.served) == (0, 0)


def test_an_error_in_the_middle_ends_the_range_before_it() -> None:
    """The next read begins there, and raises."""
    harness = ReadPathHarness()
    batches = batches_from(0, 4)
    harness.admit(*batches)
    harness.flush()
    harness.logs.damaged.add((1, 2))
    assert harness.read(0) == b"".join(batches[:2])
    with pytest.raises(CorruptRecord):
        harness.read(4)


@pytest.mark.parametrize("limit", [0, 2, 1000])
def test_a_file_is_closed_when_it_has_been_read(limit: int) -> None:
    harness = ReadPathHarness(limits=ReadAheadLimits(limit, 1000))
    harness.admit(*batches_from(0, 4))
    harness.flush()
    kept: list[object] = []
    look = harness.logs.runs

    def keep(location: Location, consumer: EntryConsumer) -> Generator[EntryRun, None, None]:
        kept.append(found := look(location, consumer))
        return found

    harness.logs.runs = keep  # type: ignore[method-assign]
    harness.read(0, 1)
    assert harness.logs.open == 0
    assert len(kept) == 1


def test_a_log_that_is_forgotten_is_in_no_cache_of_the_broker() -> None:
    harness = ReadPathHarness()
    Tiers.tail(harness)
    harness.path.forget(LOG)
    assert (harness.counters.tail.entries, harness.counters.cursor.active, harness.counters.cursor.inactive) == (
        0,
        0,
        0,
    )


@pytest.mark.parametrize("seed", range(5))
def test_random_reads_give_the_log_and_the_law_holds(seed: int) -> None:
    """Writers, readers near the end and far from it, flushes and time, in random order."""
    chance = random.Random(seed)
    harness = ReadPathHarness(tail_bytes=3000, cache_bytes=4096, limits=ReadAheadLimits(chance.randrange(1, 20), 2048))
    harness.cursors.set_durable(LOG, 1)
    log: list[bytes] = []
    file_id, near = 1, 0
    for step in range(1500):
        match chance.choices(["admit", "tail", "far", "swap", "flush", "time", "other"], [6, 6, 3, 1, 2, 2, 1])[0]:
            case "admit":
                log.append(batch_at(harness.log_end, chance.randrange(1, 4), size=chance.randrange(61, 400)))
                harness.admit(log[-1])
            case "swap" if not harness.write_cache.flushing:
                harness.swap()
            case "flush":
                file_id += chance.random() < 0.2
                harness.flush(file_id)
            case "time":
                harness.clock.advance(chance.random())
                harness.tail.expire()
            case "other":
                harness.write_cache.active.append((OTHER, batch_at(0)))
            case "far" | "tail" as which:
                offset = near if which == "tail" else chance.randrange(harness.log_end + 1)
                found = harness.read(offset, chance.randrange(1, 3000))
                wanted = b"".join(batch for batch in log if read_header(batch).last_offset >= offset)
                assert wanted.startswith(found), step
                assert bool(found) == (offset < harness.log_end), step
                if which == "tail" and found:
                    near = next(end_of(batch) for batch in reversed(log) if found.endswith(batch))
    counters = harness.counters
    assert counters.served == counters.read.fetched
    assert counters.tail.hit + counters.tail.miss == counters.read.fetched
    assert 0 not in (
        counters.tail.hit,
        counters.write_cache.hit_active,
        counters.write_cache.hit_flushing,
        counters.read_cache.hit,
        counters.entrylog.read,
    ), "every tier served"
