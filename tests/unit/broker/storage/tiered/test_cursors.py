"""Cursors: who reads near the end, and how far all of them have come (TAIL1 to TAIL3, TAIL6)."""

from __future__ import annotations

import random

import pytest

from spark_producer.broker.storage.tiered.counters import CursorCounters
from spark_producer.broker.storage.tiered.cursors import IDLE_S, MAX_ACTIVE_LAG, MAX_READERS, Cursors
from tests.fakes.fake_clock import FakeClock
from tests.unit.broker.storage.tiered.read_path_harness import LOG, OTHER, ReadPathHarness, batches_from, end_of


class CursorsHarness:
    """A log with batches of two records."""

    def __init__(self, *, threshold: int = MAX_ACTIVE_LAG, durable: bool = True) -> None:
        self.clock = FakeClock()
        self.counters = CursorCounters()
        self.cursors = Cursors(self.counters, self.clock, threshold=threshold, require_durable=durable)
        self.end = 0

    def admit(self, count: int = 1) -> list[bool]:
        answers = []
        for _ in range(count):
            answers.append(self.cursors.admitted(LOG, self.end, self.end + 2))
            self.end += 2
        return answers

    @property
    def counted(self) -> tuple[int, int]:
        return self.counters.active, self.counters.inactive


@pytest.mark.covers("TAIL1")
def test_without_a_cursor_nothing_is_cached() -> None:
    harness = ReadPathHarness()
    harness.path.reader_waits(LOG, 0)  # a reader of no group
    harness.admit(*batches_from(0, 50))
    assert harness.read(0) == b"".join(batches_from(0, 50))
    harness.admit(*batches_from(100, 50))
    assert (harness.counters.tail.bytes, harness.counters.tail.insert) == (0, 0)
    assert harness.counters.write_cache.hit_active == 50


@pytest.mark.covers("TAIL1")
def test_with_a_cursor_without_a_reader_nothing_is_cached() -> None:
    harness = ReadPathHarness()
    harness.cursors.set_durable(LOG, 1)
    harness.admit(*batches_from(0, 50))
    assert harness.counters.tail.insert == 0
    assert harness.counters.cursor.inactive == 1


@pytest.mark.covers("TAIL1")
def test_with_an_active_cursor_all_is_cached() -> None:
    harness = ReadPathHarness()
    harness.cursors.set_durable(LOG, 1)
    harness.path.reader_waits(LOG, 0)
    harness.admit(*batches_from(0, 50))
    assert (harness.counters.tail.insert, harness.counters.tail.bytes) == (50, 5000)
    assert harness.read(0) == b"".join(batches_from(0, 50))
    assert harness.counters.tail.hit == 50


@pytest.mark.covers("TAIL1")
def test_readers_of_no_group_count_if_the_settings_say_so() -> None:
    harness = ReadPathHarness(durable=False)
    harness.path.reader_waits(LOG, 0)
    harness.admit(*batches_from(0, 50))
    assert harness.counters.tail.insert == 50


@pytest.mark.covers("TAIL2")
def test_a_lag_of_999_entries_is_active_and_one_of_1000_is_not() -> None:
    harness = CursorsHarness()
    harness.cursors.set_durable(LOG, 1)
    harness.cursors.reader_waits(LOG, 0)
    harness.admit(999)
    assert harness.cursors.has_active(LOG)
    assert harness.counted == (1, 0)
    assert harness.admit() == [True], "when it came the lag was 999"
    assert not harness.cursors.has_active(LOG)
    assert harness.counted == (0, 1)
    assert harness.admit() == [False]


@pytest.mark.covers("TAIL2")
def test_the_lag_is_in_entries_and_an_entry_that_is_read_in_part_is_part_of_it() -> None:
    harness = CursorsHarness(threshold=3)
    harness.cursors.set_durable(LOG, 1)
    harness.cursors.reader_waits(LOG, 0)
    harness.admit(5)
    for position, is_active in ((4, False), (5, False), (6, True), (7, True), (10, True)):
        harness.cursors.reader_moved(LOG, 0, position)
        assert harness.cursors.has_active(LOG) is is_active, position
        harness.cursors.reader_moved(LOG, position, 0)


@pytest.mark.covers("TAIL3")
def test_a_reader_that_has_caught_up_is_active_again() -> None:
    harness = CursorsHarness(threshold=10)
    harness.cursors.set_durable(LOG, 1)
    harness.cursors.reader_waits(LOG, 0)
    harness.admit(100)
    assert not harness.cursors.has_active(LOG)
    harness.cursors.reader_moved(LOG, 0, 100)
    assert not harness.cursors.has_active(LOG), "a lag of 50"
    harness.cursors.reader_moved(LOG, 100, 182)
    assert harness.cursors.has_active(LOG), "a lag of 9"
    assert harness.admit() == [True]


@pytest.mark.covers("TAIL3")
def test_of_a_reader_that_is_before_all_that_is_known_the_lag_is_large() -> None:
    """The group came when the log had entries already: how many lie before the first new one is not known."""
    harness = CursorsHarness()
    harness.admit(3)
    harness.cursors.set_durable(LOG, 1)
    harness.cursors.reader_waits(LOG, 0)
    assert harness.admit() == [False]
    harness.cursors.reader_moved(LOG, 0, 6)
    assert harness.admit() == [True]


def test_the_nearest_reader_makes_a_cursor_active() -> None:
    harness = CursorsHarness(threshold=5)
    harness.cursors.set_durable(LOG, 2)
    harness.cursors.reader_waits(LOG, 0)
    harness.admit(20)
    harness.cursors.reader_waits(LOG, 40)
    assert harness.cursors.has_active(LOG)


@pytest.mark.covers("TAIL6")
def test_the_slowest_active_reader_is_what_counts() -> None:
    harness = CursorsHarness(threshold=5)
    harness.cursors.set_durable(LOG, 2)
    harness.cursors.reader_waits(LOG, 0)
    harness.admit(4)
    assert harness.cursors.slowest(LOG) is None, "only one of two groups was seen"
    harness.cursors.reader_waits(LOG, 6)
    assert harness.cursors.slowest(LOG) == 0
    harness.cursors.reader_moved(LOG, 0, 4)
    assert harness.cursors.slowest(LOG) == 4
    harness.admit(10)
    assert harness.cursors.slowest(LOG) is None, "both are far from the end"
    harness.cursors.reader_moved(LOG, 6, 24)
    assert harness.cursors.slowest(LOG) == 24, "the other is not active"


@pytest.mark.covers("TAIL6")
def test_what_the_slowest_has_read_leaves_the_cache() -> None:
    harness = ReadPathHarness()
    harness.cursors.set_durable(LOG, 2)
    harness.path.reader_waits(LOG, 0)
    batches = batches_from(0, 10)
    harness.admit(*batches)
    assert harness.read(0, 500) == b"".join(batches[:5])
    assert harness.counters.tail.entries == 10, "the other group was not seen yet"
    assert harness.read(0, 300) == b"".join(batches[:3])
    assert harness.counters.tail.entries == 7
    assert harness.read(6, 300) == b"".join(batches[3:6])
    assert (harness.counters.tail.entries, harness.counters.tail.evict_cursor) == (5, 5), "now the first one is slower"
    assert harness.counters.tail.hit == 11


@pytest.mark.covers("TAIL6")
def test_two_readers_at_the_same_offset_are_distinguished_once_the_second_has_read() -> None:
    harness = CursorsHarness()
    harness.cursors.set_durable(LOG, 1)
    harness.cursors.reader_waits(LOG, 0)
    harness.admit(10)
    harness.cursors.reader_moved(LOG, 0, 4)
    assert harness.cursors.slowest(LOG) == 4
    harness.cursors.reader_moved(LOG, 0, 4)
    harness.cursors.reader_moved(LOG, 4, 10)
    assert harness.cursors.slowest(LOG) == 4, "the second one is still there"
    harness.cursors.reader_waits(LOG, 4)
    harness.cursors.reader_waits(LOG, 10)
    assert harness.cursors.slowest(LOG) == 4, "who waits is not another one with each look"
    harness.cursors.reader_moved(LOG, 4, 10)
    assert harness.cursors.slowest(LOG) == 10


def test_a_group_that_leaves_ends_what_is_known() -> None:
    harness = CursorsHarness()
    harness.cursors.set_durable(LOG, 1)
    harness.cursors.reader_waits(LOG, 0)
    harness.admit()
    assert harness.counted == (1, 0)
    harness.cursors.set_durable(LOG, 0)
    assert harness.counted == (0, 0)
    assert not harness.cursors.has_active(LOG)
    harness.cursors.forget(LOG)
    harness.cursors.set_durable(OTHER, 0)
    assert harness.counted == (0, 0)


def test_readers_that_are_gone_are_forgotten() -> None:
    harness = CursorsHarness()
    harness.cursors.set_durable(LOG, 1)
    harness.cursors.reader_waits(LOG, 0)
    harness.admit(5)
    harness.cursors.reader_waits(LOG, 4)
    assert harness.cursors.slowest(LOG) == 0
    harness.clock.advance(IDLE_S + 1)
    harness.cursors.reader_waits(LOG, 4)
    assert harness.cursors.slowest(LOG) == 4


def test_so_many_readers_are_known_and_no_more() -> None:
    harness = CursorsHarness()
    harness.cursors.set_durable(LOG, 1)
    harness.cursors.reader_waits(LOG, 0)
    harness.admit(MAX_READERS + 10)
    for position in range(MAX_READERS + 10):
        harness.clock.advance(0.001)
        harness.cursors.reader_waits(LOG, position)
    assert harness.cursors.slowest(LOG) == 10, "the last ones are known"


def test_the_lag_is_right_after_any_number_of_entries() -> None:
    """Beside the plain rule: entries that end after the position, counted one by one."""
    harness = CursorsHarness(threshold=20)
    chance = random.Random(3)
    harness.cursors.set_durable(LOG, 1)
    position, ends = 0, [0]
    harness.cursors.reader_waits(LOG, 0)
    for step in range(2000):
        if chance.random() < 0.55:
            assert harness.admit() == [sum(end > position for end in ends) < 20], step
            ends.append(harness.end)
        else:
            following = min(harness.end, position + chance.randrange(12))
            harness.cursors.reader_moved(LOG, position, following)
            position = following
        assert harness.cursors.has_active(LOG) is (sum(end > position for end in ends) < 20), step


def test_a_read_reports_its_end() -> None:
    harness = ReadPathHarness()
    harness.cursors.set_durable(LOG, 1)
    harness.path.reader_waits(LOG, 0)
    batches = batches_from(0, 4)
    harness.admit(*batches)
    harness.read(0, 250)
    assert harness.cursors.slowest(LOG) == end_of(batches[1])
    harness.read(harness.log_end)
    assert harness.cursors.slowest(LOG) == end_of(batches[1]), "a second reader waits at the end"
