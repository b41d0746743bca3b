"""Cursors: who reads near the end, and how far all of them have come (TAIL1 to TAIL3, TAIL6)."""

from __future__ import annotations

import random

import pytest

from spark_producer.broker.storage.tiered.counters import CursorCounters
from spark_producer.broker.storage.tiered.cursors import IDLE_S, MAX_ACTIVE_LAG, MAX_READERS, Cursors
from tests.fakes.fake_clock import FakeClock
from tests.unit.broker.storage.tiered.read_stage import LOG, OTHER, ReadStage, batches_from, end_of


class Bench:
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
    stage = ReadStage()
    stage.path.reader_waits(LOG, 0)  # a reader of no group
    stage.admit(*batches_from(0, 50))
    assert stage.read(0) == b"".join(batches_from(0, 50))
    stage.admit(*batches_from(100, 50))
    assert (stage.counters.tail.bytes, stage.counters.tail.insert) == (0, 0)
    assert stage.counters.write_cache.hit_active == 50


@pytest.mark.covers("TAIL1")
def test_with_a_cursor_without_a_reader_nothing_is_cached() -> None:
    stage = ReadStage()
    stage.cursors.set_durable(LOG, 1)
    stage.admit(*batches_from(0, 50))
    assert stage.counters.tail.insert == 0
    assert stage.counters.cursor.inactive == 1


@pytest.mark.covers("TAIL1")
def test_with_an_active_cursor_all_is_cached() -> None:
    stage = ReadStage()
    stage.cursors.set_durable(LOG, 1)
    stage.path.reader_waits(LOG, 0)
    stage.admit(*batches_from(0, 50))
    assert (stage.counters.tail.insert, stage.counters.tail.bytes) == (50, 5000)
    assert stage.read(0) == b"".join(batches_from(0, 50))
    assert stage.counters.tail.hit == 50


@pytest.mark.covers("TAIL1")
def test_readers_of_no_group_count_if_the_settings_say_so() -> None:
    stage = ReadStage(durable=False)
    stage.path.reader_waits(LOG, 0)
    stage.admit(*batches_from(0, 50))
    assert stage.counters.tail.insert == 50


@pytest.mark.covers("TAIL2")
def test_a_lag_of_999_entries_is_active_and_one_of_1000_is_not() -> None:
    bench = Bench()
    bench.cursors.set_durable(LOG, 1)
    bench.cursors.reader_waits(LOG, 0)
    bench.admit(999)
    assert bench.cursors.has_active(LOG)
    assert bench.counted == (1, 0)
    assert bench.admit() == [True], "when it came the lag was 999"
    assert not bench.cursors.has_active(LOG)
    assert bench.counted == (0, 1)
    assert bench.admit() == [False]


@pytest.mark.covers("TAIL2")
def test_the_lag_is_in_entries_and_an_entry_that_is_read_in_part_is_part_of_it() -> None:
    bench = Bench(threshold=3)
    bench.cursors.set_durable(LOG, 1)
    bench.cursors.reader_waits(LOG, 0)
    bench.admit(5)
    for position, is_active in ((4, False), (5, False), (6, True), (7, True), (10, True)):
        bench.cursors.reader_moved(LOG, 0, position)
        assert bench.cursors.has_active(LOG) is is_active, position
        bench.cursors.reader_moved(LOG, position, 0)


@pytest.mark.covers("TAIL3")
def test_a_reader_that_has_caught_up_is_active_again() -> None:
    bench = Bench(threshold=10)
    bench.cursors.set_durable(LOG, 1)
    bench.cursors.reader_waits(LOG, 0)
    bench.admit(100)
    assert not bench.cursors.has_active(LOG)
    bench.cursors.reader_moved(LOG, 0, 100)
    assert not bench.cursors.has_active(LOG), "a lag of 50"
    bench.cursors.reader_moved(LOG, 100, 182)
    assert bench.cursors.has_active(LOG), "a lag of 9"
    assert bench.admit() == [True]


@pytest.mark.covers("TAIL3")
def test_of_a_reader_that_is_before_all_that_is_known_the_lag_is_large() -> None:
    """The group came when the log had entries already: how many lie before the first new one is not known."""
    bench = Bench()
    bench.admit(3)
    bench.cursors.set_durable(LOG, 1)
    bench.cursors.reader_waits(LOG, 0)
    assert bench.admit() == [False]
    bench.cursors.reader_moved(LOG, 0, 6)
    assert bench.admit() == [True]


def test_the_nearest_reader_makes_a_cursor_active() -> None:
    bench = Bench(threshold=5)
    bench.cursors.set_durable(LOG, 2)
    bench.cursors.reader_waits(LOG, 0)
    bench.admit(20)
    bench.cursors.reader_waits(LOG, 40)
    assert bench.cursors.has_active(LOG)


@pytest.mark.covers("TAIL6")
def test_the_slowest_active_reader_is_what_counts() -> None:
    bench = Bench(threshold=5)
    bench.cursors.set_durable(LOG, 2)
    bench.cursors.reader_waits(LOG, 0)
    bench.admit(4)
    assert bench.cursors.slowest(LOG) is None, "only one of two groups was seen"
    bench.cursors.reader_waits(LOG, 6)
    assert bench.cursors.slowest(LOG) == 0
    bench.cursors.reader_moved(LOG, 0, 4)
    assert bench.cursors.slowest(LOG) == 4
    bench.admit(10)
    assert bench.cursors.slowest(LOG) is None, "both are far from the end"
    bench.cursors.reader_moved(LOG, 6, 24)
    assert bench.cursors.slowest(LOG) == 24, "the other is not active"


@pytest.mark.covers("TAIL6")
def test_what_the_slowest_has_read_leaves_the_cache() -> None:
    stage = ReadStage()
    stage.cursors.set_durable(LOG, 2)
    stage.path.reader_waits(LOG, 0)
    batches = batches_from(0, 10)
    stage.admit(*batches)
    assert stage.read(0, 500) == b"".join(batches[:5])
    assert stage.counters.tail.entries == 10, "the other group was not seen yet"
    assert stage.read(0, 300) == b"".join(batches[:3])
    assert stage.counters.tail.entries == 7
    assert stage.read(6, 300) == b"".join(batches[3:6])
    assert (stage.counters.tail.entries, stage.counters.tail.evict_cursor) == (5, 5), "now the first one is slower"
    assert stage.counters.tail.hit == 11


@pytest.mark.covers("TAIL6")
def test_two_readers_at_the_same_offset_are_distinguished_once_the_second_has_read() -> None:
    bench = Bench()
    bench.cursors.set_durable(LOG, 1)
    bench.cursors.reader_waits(LOG, 0)
    bench.admit(10)
    bench.cursors.reader_moved(LOG, 0, 4)
    assert bench.cursors.slowest(LOG) == 4
    bench.cursors.reader_moved(LOG, 0, 4)
    bench.cursors.reader_moved(LOG, 4, 10)
    assert bench.cursors.slowest(LOG) == 4, "the second one is still there"
    bench.cursors.reader_waits(LOG, 4)
    bench.cursors.reader_waits(LOG, 10)
    assert bench.cursors.slowest(LOG) == 4, "who waits is not another one with each look"
    bench.cursors.reader_moved(LOG, 4, 10)
    assert bench.cursors.slowest(LOG) == 10


def test_a_group_that_leaves_ends_what_is_known() -> None:
    bench = Bench()
    bench.cursors.set_durable(LOG, 1)
    bench.cursors.reader_waits(LOG, 0)
    bench.admit()
    assert bench.counted == (1, 0)
    bench.cursors.set_durable(LOG, 0)
    assert bench.counted == (0, 0)
    assert not bench.cursors.has_active(LOG)
    bench.cursors.forget(LOG)
    bench.cursors.set_durable(OTHER, 0)
    assert bench.counted == (0, 0)


def test_readers_that_are_gone_are_forgotten() -> None:
    bench = Bench()
    bench.cursors.set_durable(LOG, 1)
    bench.cursors.reader_waits(LOG, 0)
    bench.admit(5)
    bench.cursors.reader_waits(LOG, 4)
    assert bench.cursors.slowest(LOG) == 0
    bench.clock.advance(IDLE_S + 1)
    bench.cursors.reader_waits(LOG, 4)
    assert bench.cursors.slowest(LOG) == 4


def test_so_many_readers_are_known_and_no_more() -> None:
    bench = Bench()
    bench.cursors.set_durable(LOG, 1)
    bench.cursors.reader_waits(LOG, 0)
    bench.admit(MAX_READERS + 10)
    for position in range(MAX_READERS + 10):
        bench.clock.advance(0.001)
        bench.cursors.reader_waits(LOG, position)
    assert bench.cursors.slowest(LOG) == 10, "the last ones are known"


def test_the_lag_is_right_after_any_number_of_entries() -> None:
    """Beside the plain rule: entries that end after the position, counted one by one."""
    bench = Bench(threshold=20)
    chance = random.Random(3)
    bench.cursors.set_durable(LOG, 1)
    position, ends = 0, [0]
    bench.cursors.reader_waits(LOG, 0)
    for step in range(2000):
        if chance.random() < 0.55:
            assert bench.admit() == [sum(end > position for end in ends) < 20], step
            ends.append(bench.end)
        else:
            following = min(bench.end, position + chance.randrange(12))
            bench.cursors.reader_moved(LOG, position, following)
            position = following
        assert bench.cursors.has_active(LOG) is (sum(end > position for end in ends) < 20), step


def test_a_read_reports_its_end() -> None:
    stage = ReadStage()
    stage.cursors.set_durable(LOG, 1)
    stage.path.reader_waits(LOG, 0)
    batches = batches_from(0, 4)
    stage.admit(*batches)
    stage.read(0, 250)
    assert stage.cursors.slowest(LOG) == end_of(batches[1])
    stage.read(stage.log_end)
    assert stage.cursors.slowest(LOG) == end_of(batches[1]), "a second reader waits at the end"
