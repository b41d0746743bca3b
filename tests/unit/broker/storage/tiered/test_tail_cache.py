"""The tail cache: what goes in, what comes out, and why (TAIL4 to TAIL7, TAIL9)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_producer.broker.storage.tiered.counters import TailCounters
from spark_producer.broker.storage.tiered.tail_cache import TailCache
from tests.fakes.fake_clock import FakeClock
from tests.unit.broker.storage.tiered.read_path_harness import LOG, OTHER

ALL = 1 << 30


class TailCacheHarness:
    """A cache of `max_bytes`, and a model of it: every batch that was put in."""

    def __init__(self, max_bytes: int = 1000) -> None:
        self.clock = FakeClock()
        self.counters = TailCounters()
        self.cache = TailCache(max_bytes, self.counters, self.clock)

    def put(self, base_offset: int, size: int = 10, *, log_id: int = LOG, records: int = 2) -> bool:
        return self.cache.insert(log_id, base_offset, base_offset + records, content(base_offset, size))

    def held(self, log_id: int = LOG, last: int = 600) -> list[int]:
        """The base offsets that are there."""
        return [each for each in range(0, last, 2) if self.cache.read(log_id, each, each + 1, ALL) is not None]


def content(base_offset: int, size: int) -> bytes:
    return (base_offset % 251).to_bytes(1, "big") * size


@pytest.mark.covers("TAIL4")
def test_nothing_is_evicted_up_to_98_percent_and_then_down_to_90() -> None:
    harness = TailCacheHarness(1000)
    for number in range(98):
        harness.put(number * 2)
    assert (harness.counters.bytes, harness.counters.evict_size) == (980, 0), "98 % are not more than 98 %"
    harness.put(98 * 2)
    assert (harness.counters.bytes, harness.counters.evict_size) == (900, 9), "990 - 900 bytes, of 10 each"
    assert harness.held() == [number * 2 for number in range(9, 99)], "the oldest ones went"
    assert harness.counters.entries == 90


@pytest.mark.covers("TAIL4")
def test_it_evicts_whole_entries_until_enough_is_free() -> None:
    harness = TailCacheHarness(1000)
    for number in range(3):
        harness.put(number * 2, 300)
    harness.put(6, 85)
    assert (harness.counters.bytes, harness.counters.evict_size) == (685, 1), "85 bytes too many take one of 300 along"


@pytest.mark.covers("TAIL4")
def test_the_oldest_entry_goes_whatever_log_it_is_of() -> None:
    harness = TailCacheHarness(100)
    harness.put(0, 10, log_id=OTHER)
    for number in range(8):
        harness.put(number * 2, 10)
    harness.put(2, 10, log_id=OTHER)
    assert harness.counters.evict_size == 1
    assert harness.held(OTHER) == [2], "the busy log has eight times as much, and its entries are newer"
    assert len(harness.held()) == 8


def test_an_entry_larger_than_the_cache_is_left_out() -> None:
    harness = TailCacheHarness(100)
    assert harness.put(0, 50)
    assert not harness.put(2, 101)
    assert harness.held() == [0]
    assert (harness.counters.insert, harness.counters.bytes) == (1, 50)


def test_an_entry_is_put_in_once() -> None:
    harness = TailCacheHarness()
    assert harness.put(2)
    assert not harness.put(2)
    assert not harness.put(0), "it came later, and lies before"
    assert (harness.counters.insert, harness.counters.bytes) == (1, 10)


@pytest.mark.covers("TAIL5")
def test_an_entry_is_dropped_after_a_second() -> None:
    harness = TailCacheHarness()
    harness.put(0)
    harness.clock.advance(0.6)
    harness.put(2)
    assert harness.cache.expire() == harness.clock() + 0.4
    harness.clock.advance(0.399)
    harness.cache.expire()
    assert harness.held() == [0, 2]
    harness.clock.advance(0.0011)
    assert harness.cache.expire() is not None
    assert harness.held() == [2]
    assert (harness.counters.evict_ttl, harness.counters.bytes, harness.counters.entries) == (1, 10, 1)
    harness.clock.advance(10)
    assert harness.cache.expire() is None
    assert (harness.counters.evict_ttl, harness.counters.bytes, harness.counters.entries) == (2, 0, 0)


@pytest.mark.covers("TAIL5")
def test_an_insertion_drops_what_is_too_old() -> None:
    harness = TailCacheHarness()
    harness.put(0)
    harness.put(0, log_id=OTHER)
    harness.clock.advance(1.001)
    harness.put(2)
    assert (harness.held(), harness.held(OTHER)) == ([2], [])
    assert harness.counters.evict_ttl == 2


@pytest.mark.covers("TAIL6")
def test_what_all_have_read_is_dropped() -> None:
    harness = TailCacheHarness()
    for number in range(5):
        harness.put(number * 2)
    harness.put(0, log_id=OTHER)
    harness.cache.drop_before(LOG, 5)
    assert harness.held() == [4, 6, 8], "the entry that holds offset 5 stays"
    harness.cache.drop_before(LOG, 6)
    assert harness.held() == [6, 8]
    assert harness.held(OTHER) == [0]
    assert (harness.counters.evict_cursor, harness.counters.bytes) == (3, 30)
    harness.cache.drop_before(LOG, 1000)
    assert harness.held() == []
    harness.cache.drop_before(LOG, 1000)


@pytest.mark.covers("TAIL7")
def test_a_range_is_there_as_a_whole_or_not_at_all() -> None:
    harness = TailCacheHarness()
    harness.put(0)
    harness.put(2)
    harness.put(6)  # 4 and 5 are missing
    assert harness.cache.read(LOG, 0, 4, ALL) == [content(0, 10), content(2, 10)]
    assert harness.cache.read(LOG, 0, 5, ALL) is None
    assert harness.cache.read(LOG, 0, 8, ALL) is None, "its first two entries and its last one are there"
    assert harness.cache.read(LOG, 4, 8, ALL) is None
    assert harness.cache.read(LOG, 6, 8, ALL) == [content(6, 10)]
    assert harness.cache.read(LOG, 6, 10, ALL) is None, "8 is not there"


@pytest.mark.covers("TAIL7")
@pytest.mark.parametrize(
    ("max_bytes", "at_least_one", "count"),
    [(30, True, 3), (29, True, 2), (20, False, 2), (9, True, 1), (9, False, 0), (0, True, 1), (ALL, False, 5)],
)
def test_a_range_ends_where_the_next_entry_does_not_fit(max_bytes: int, at_least_one: bool, count: int) -> None:
    harness = TailCacheHarness()
    for number in range(5):
        harness.put(number * 2)
    found = harness.cache.read(LOG, 0, 10, max_bytes, at_least_one=at_least_one)
    assert found == [content(number * 2, 10) for number in range(count)]


def test_a_range_begins_with_the_entry_that_holds_the_offset() -> None:
    harness = TailCacheHarness()
    harness.put(4, records=3)
    assert harness.cache.read(LOG, 3, 7, ALL) is None
    for offset in (4, 5, 6):
        assert harness.cache.read(LOG, offset, 7, ALL) == [content(4, 10)]
    assert harness.cache.read(LOG, 7, 8, ALL) is None
    assert harness.cache.read(OTHER, 4, 7, ALL) is None


def test_a_log_can_be_dropped_alone() -> None:
    harness = TailCacheHarness()
    harness.put(0)
    harness.put(2)
    harness.put(0, log_id=OTHER)
    harness.cache.invalidate(LOG)
    assert (harness.held(), harness.held(OTHER)) == ([], [0])
    assert (harness.counters.invalidated, harness.counters.bytes, harness.counters.entries) == (2, 10, 1)


@pytest.mark.parametrize("most", [1000, 100_000])
def test_many_entries_come_and_go(most: int) -> None:
    harness = TailCacheHarness(most)
    for number in range(5000):
        harness.put(number * 2)
        if number >= 60:
            harness.cache.drop_before(LOG, (number - 60) * 2)
    assert harness.cache.read(LOG, 9960, 10_000, ALL) == [content(each, 10) for each in range(9960, 10_000, 2)]
    assert harness.counters.insert == 5000
    assert harness.counters.entries == 61


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.sampled_from((LOG, OTHER)), st.integers(0, 3), st.integers(0, 130)),
        st.tuples(st.just("drop"), st.sampled_from((LOG, OTHER)), st.integers(0, 200), st.just(0)),
        st.tuples(st.just("invalidate"), st.sampled_from((LOG, OTHER)), st.just(0), st.just(0)),
        st.tuples(st.just("pass"), st.just(LOG), st.integers(0, 1200), st.just(0)),
        st.tuples(st.just("read"), st.sampled_from((LOG, OTHER)), st.integers(0, 200), st.integers(0, 300)),
    ),
    max_size=120,
)


@pytest.mark.covers("TAIL9")
@given(STEPS)
def test_the_size_is_that_of_the_entries_after_whatever_was_done(steps: list[tuple[str, int, int, int]]) -> None:
    """A put has a gap before it (0 to 3 offsets) and a size; what may be read is what was put in and not dropped."""
    harness = TailCacheHarness(400)
    ends = {LOG: 0, OTHER: 0}
    put: dict[tuple[int, int], bytes] = {}
    for step, log_id, number, size in steps:
        match step:
            case "put":
                base = ends[log_id] + max(number - 1, 0)  # mostly without a gap
                put[log_id, base] = content(base, size)
                ends[log_id] = base + 2
                harness.put(base, size, log_id=log_id)
            case "drop":
                harness.cache.drop_before(log_id, number)
            case "invalidate":
                harness.cache.invalidate(log_id)
            case "pass":
                harness.clock.advance(number / 1000)
                harness.cache.expire()
            case "read":
                found = harness.cache.read(log_id, number, ends[log_id], size)
                assert found is None or b"".join(found) in b"".join(put[key] for key in sorted(put) if key[0] == log_id)
        held = {key: batch for key, batch in put.items() if harness.cache.read(*key, key[1] + 1, ALL) is not None}
        for key, batch in held.items():
            assert harness.cache.read(*key, key[1] + 1, ALL) == [batch]
        assert harness.counters.bytes == sum(map(len, held.values())) <= 400 * 0.98
        assert harness.counters.entries == len(held)
        gone = harness.counters.evict_size + harness.counters.evict_ttl + harness.counters.evict_cursor
        assert harness.counters.insert == len(held) + gone + harness.counters.invalidated
