"""The read cache is a ring of segments (RC1, RC2)."""

from __future__ import annotations

import mmap
import random
from types import SimpleNamespace

import pytest

from spark_producer.broker.storage.tiered import read_cache
from spark_producer.broker.storage.tiered.counters import ReadCacheCounters
from spark_producer.broker.storage.tiered.interfaces import EntryRun, ReadLimits
from spark_producer.broker.storage.tiered.read_cache import ReadCache
from tests.unit.broker.storage.tiered.read_path_harness import LOG, OTHER


def entry(base_offset: int, size: int = 64, records: int = 2) -> EntryRun:
    """A stretch of one entry."""
    return one(base_offset, base_offset + records, random.Random(base_offset).randbytes(size))


def one(base_offset: int, end_offset: int, batch: bytes) -> EntryRun:
    return EntryRun([base_offset], end_offset, [memoryview(batch)])


def together(*entries: EntryRun) -> EntryRun:
    """A stretch of entries that follow each other."""
    bases = [each.bases[0] for each in entries]
    return EntryRun(bases, entries[-1].end_offset, [each.batches[0] for each in entries])


def kept(of: EntryRun) -> tuple[int, bytes]:
    return of.end_offset, bytes(of.batches[0])


def find(cache: ReadCache, log_id: int, offset: int) -> tuple[int, bytes] | None:
    """The entry that holds `offset`, as `kept` shows it."""
    found = cache.read(log_id, offset, ReadLimits(offset + 1, 0, at_least_one=True))
    assert found is None or found.entries == 1
    return None if found is None else (found.end_offset, found.data)


@pytest.mark.covers("RC1")
def test_a_full_ring_reuses_its_oldest_segment() -> None:
    counters = ReadCacheCounters()
    cache = ReadCache(2 * 640, counters)
    for number in range(20):  # 10 of 64 bytes to a segment
        cache.put(LOG, entry(number * 2))
    assert (counters.entries, counters.evict, counters.bytes) == (20, 0, 1280)
    cache.put(LOG, entry(40))
    assert (counters.entries, counters.evict, counters.bytes) == (11, 10, 704), "half of the cache went at once"
    assert [number for number in range(21) if find(cache, LOG, number * 2)] == list(range(10, 21))
    for number in range(10, 21):
        assert find(cache, LOG, number * 2) == kept(entry(number * 2))
    assert counters.insert == 21
    cache.close()


@pytest.mark.covers("RC1")
def test_rounds_and_rounds_give_what_was_put_or_nothing() -> None:
    counters = ReadCacheCounters()
    cache = ReadCache(3 * 1000, counters, largest_segment=1000)
    assert cache.segment_bytes == 1000
    chance = random.Random(1)
    put: dict[tuple[int, int], EntryRun] = {}
    for step in range(3000):
        log_id, base = chance.choice((LOG, OTHER)), chance.randrange(100) * 3
        if chance.random() < 0.5:
            put[log_id, base] = one(base, base + 3, chance.randbytes(chance.randrange(1, 200)))
            cache.put(log_id, put[log_id, base])
            assert find(cache, log_id, base) == kept(put[log_id, base]), step
        found = find(cache, log_id, base + chance.randrange(3))
        assert found is None or found == kept(put[log_id, base]), step
    assert counters.insert - counters.evict >= counters.entries > 3, (
        "an entry that is put again takes the place of the old one"
    )
    cache.close()


@pytest.mark.covers("RC1")
def test_stretches_begin_at_multiples_of_64() -> None:
    cache = ReadCache(2 * 256, ReadCacheCounters())
    for number in range(4):
        cache.put(LOG, entry(number * 2, size=1))
    assert [number for number in range(4) if find(cache, LOG, number * 2)] == [0, 1, 2, 3]
    cache.put(LOG, entry(8, size=1))
    cache.put(LOG, entry(10, size=193))
    assert find(cache, LOG, 0) is None, "a byte and 193 bytes do not go into 256"
    cache.close()


@pytest.mark.covers("RC2")
def test_an_entry_larger_than_a_segment_is_left_out_and_drops_nothing() -> None:
    counters = ReadCacheCounters()
    cache = ReadCache(2 * 640, counters)
    cache.put(LOG, entry(0))
    cache.put(LOG, entry(2, size=641))
    assert (counters.too_large, counters.insert, counters.evict) == (1, 1, 0)
    assert find(cache, LOG, 2) is None
    assert find(cache, LOG, 0) == kept(entry(0))
    cache.put(LOG, entry(2, size=640))
    assert find(cache, LOG, 2) == kept(entry(2, size=640)), "one that fits exactly"
    cache.close()


def test_an_entry_is_found_by_each_of_its_offsets_and_by_no_other() -> None:
    cache = ReadCache(4096, ReadCacheCounters())
    cache.put(LOG, entry(10, records=3))
    cache.put(LOG, entry(4, records=3))
    assert [offset for offset in range(20) if find(cache, LOG, offset)] == [4, 5, 6, 10, 11, 12]
    assert [offset for offset in range(20) if find(cache, OTHER, offset)] == []
    cache.close()


def test_of_two_copies_the_newer_one_is_found() -> None:
    cache = ReadCache(2 * 640, ReadCacheCounters())
    cache.put(LOG, entry(0))
    for number in range(1, 12):
        cache.put(LOG, entry(number * 2))
    newer = one(0, 2, b"x" * 64)
    cache.put(LOG, newer)
    assert find(cache, LOG, 0) == kept(newer)
    cache.close()


def test_large_caches_have_segments_of_a_gibibyte(monkeypatch: pytest.MonkeyPatch) -> None:
    mapped: list[int] = []

    class Memory(mmap.mmap):
        def __new__(cls, file: int, size: int) -> Memory:
            mapped.append(size)
            return super().__new__(cls, file, 4096)

    monkeypatch.setattr(read_cache, "mmap", SimpleNamespace(mmap=Memory))
    ReadCache(5 << 30, ReadCacheCounters()).close()
    assert mapped == [1 << 30] * 5
    mapped.clear()
    ReadCache(1 << 30, ReadCacheCounters()).close()
    assert mapped == [1 << 29] * 2


def test_entries_that_follow_each_other_are_returned_together() -> None:
    """Up to the limits of the reader, to a gap, and to the end of the segment."""
    cache = ReadCache(2 * 640, ReadCacheCounters())
    entries = [entry(number * 2) for number in range(12)]  # 10 of 64 bytes to a segment
    for each in (*entries, entry(30)):
        cache.put(LOG, each)

    def run(offset: int, wanted: ReadLimits) -> tuple[int, int, bytes]:
        found = cache.read(LOG, offset, wanted)
        assert found is not None
        return found.entries, found.end_offset, found.data

    def joined(first: int, end: int) -> tuple[int, int, bytes]:
        return end - first, end * 2, b"".join(bytes(each.batches[0]) for each in entries[first:end])

    assert run(0, ReadLimits(1000, 1000)) == joined(0, 10), "a segment"
    assert run(20, ReadLimits(1000, 1000)) == joined(10, 12), "up to what is missing"
    assert run(5, ReadLimits(1000, 64 * 3)) == joined(2, 5), "as much as fits"
    assert run(5, ReadLimits(1000, 64 * 3 - 1)) == joined(2, 4)
    assert run(5, ReadLimits(8, 1000)) == joined(2, 4), "up to where the reader ends"
    assert run(5, ReadLimits(1000, 0, at_least_one=True)) == joined(2, 3)
    assert run(5, ReadLimits(1000, 63)) == (0, 4, b"")
    cache.close()


@pytest.mark.covers("RC1")
def test_a_stretch_goes_into_as_many_segments_as_it_needs() -> None:
    counters = ReadCacheCounters()
    cache = ReadCache(3 * 1000, counters, largest_segment=1000)
    entries = [entry(number * 2, size=90) for number in range(20)]
    cache.put(LOG, together(*entries[:5]))
    cache.put(LOG, together(*entries[5:10], entry(20, size=1001), *entries[11:20]))
    found = [number for number in range(20) if find(cache, LOG, number * 2) == kept(entries[number])]
    assert found == [*range(10), *range(11, 20)]
    assert (counters.insert, counters.too_large, counters.evict, counters.entries) == (19, 1, 0, 19)
    assert counters.bytes == 19 * 90
    cache.close()


@pytest.mark.parametrize("seed", range(20))
def test_stretches_that_overlap_are_kept_once(seed: int) -> None:
    """If a segment has an entry twice, the newer copy is found."""
    chance, counters = random.Random(seed), ReadCacheCounters()
    cache = ReadCache(2 * 1_000_000, counters)
    newest: dict[int, EntryRun] = {}
    for step in range(60):
        first = chance.randrange(80)
        added = [
            one(2 * number, 2 * number + 2, chance.randbytes(chance.randrange(1, 50)))
            for number in range(first, min(100, first + chance.randrange(1, 30)))
        ]
        cache.put(LOG, together(*added))
        newest |= {each.bases[0]: each for each in added}
        assert (counters.entries, counters.bytes) == (
            len(newest),
            sum(len(each.batches[0]) for each in newest.values()),
        ), step
    for base in range(0, 200, 2):
        assert find(cache, LOG, base + 1) == (kept(newest[base]) if base in newest else None)
    first = min(newest)
    last = next(base for base in range(first, 202, 2) if base not in newest)
    whole = cache.read(LOG, first, ReadLimits(1000, 1_000_000))
    assert whole is not None
    assert (whole.entries, whole.end_offset) == ((last - first) // 2, last)
    assert whole.data == b"".join(bytes(newest[base].batches[0]) for base in range(first, last, 2))
    cache.close()


@pytest.mark.parametrize("size", [100, read_cache.MIN_LARGE_BYTES + 1])
def test_large_and_small_entries_are_copied(size: int) -> None:
    cache = ReadCache(2 * 100_000, ReadCacheCounters())
    entries = [entry(number * 2, size=size) for number in range(5)]
    cache.put(LOG, together(*entries))
    assert [find(cache, LOG, number * 2) for number in range(5)] == [kept(each) for each in entries]
    cache.close()
