"""The arithmetic of windows, intervals and merges, with Java's own vectors."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_producer.metrics.sensors import Tally, sensor_named
from spark_producer.metrics.windowed_counters import CounterValues, SingleValues, Window, merge_values

THREE = Window(seconds=30.0, samples=3)


class Sensor(SingleValues):
    """Single values, read as a sensor."""

    __slots__ = ("window",)

    def __init__(self, window: Window) -> None:
        super().__init__(window)
        self.window = window

    def tally(self, now: float) -> Tally:
        reading = self.read(now)
        return sensor_named("of its own").tally(reading, self.window.divisor(reading.since, now))

    def interval_tally(self, seconds: float) -> Tally:
        return sensor_named("of its own").tally(self.since_mark(), seconds)


def sensor_times(sensor: Sensor, value: float, *times: float) -> None:
    for now in times:
        sensor.record(value, now)


def test_rate_of_two_hundred_over_seventy_five_seconds() -> None:
    """Two records of 100 with three samples of 30 s, read 15 s into the third; idle for as long as the window, it is 0."""
    sensor = Sensor(THREE)
    sensor_times(sensor, 100, 0.0, 30.0)
    assert sensor.tally(75.0).rate == pytest.approx(200 / 75)
    assert sensor.tally(75.0).amount == 200
    idle = sensor.tally(75.0 + 90.0)
    assert (idle.rate, idle.amount, idle.total) == (0.0, 0, 200)


def test_a_young_rate_reads_low_since_all_samples_but_one_count_as_whole() -> None:
    sensor = Sensor(THREE)
    sensor.record(61, 1000.0)
    assert sensor.tally(1001.0).rate == pytest.approx(1.0)
    assert Sensor(Window(30.0, 2)).tally(5.0).rate == 0.0


def test_with_one_sample_a_rate_divides_by_a_millisecond_at_least() -> None:
    sensor = Sensor(Window(30.0, 1))
    sensor.record(1, 7.0)
    assert sensor.tally(7.0).rate == pytest.approx(1000.0)


def test_a_sample_counts_as_long_as_its_last_value_is_younger_than_the_window() -> None:
    sensor = Sensor(Window(30.0, 2))
    sensor_times(sensor, 5, 0.0, 29.0)  # one sample
    sensor.record(1, 31.0)
    assert sensor.tally(88.9).largest == 5, "29.0 is less than 60 s ago"
    assert sensor.tally(89.0).largest == 1
    assert sensor.tally(91.0).amount == 0


def test_a_value_that_comes_when_a_sample_is_complete_begins_the_next() -> None:
    sensor = Sensor(Window(30.0, 2))
    sensor.record(5, 0.0)
    sensor.record(1, 30.0)
    assert sensor.tally(60.0)[:3] == (1, 1, 1)


def test_a_window_holds_as_many_closed_samples_as_it_is_long() -> None:
    sensor = Sensor(THREE)
    sensor_times(sensor, 1, 0.0, 30.0, 60.0, 89.0)
    assert sensor.tally(89.5).amount == 4


def test_old_samples_give_way_even_if_they_are_not_idle() -> None:
    sensor = Sensor(Window(1.0, 2))
    sensor_times(sensor, 1, *range(10))
    found = sensor.tally(9.0)
    assert found.amount == 2, "one sample is full, one is being filled; the one at 7 is as old as the window"
    assert found.total == 10


def test_average_and_maximum_of_nothing() -> None:
    found = Sensor(THREE).tally(0.0)
    assert (found.weight, found.largest, found.total) == (0, 0, 0)


def test_numbers_of_several_counters_become_one() -> None:
    some, more = Sensor(THREE), Sensor(THREE)
    sensor_times(some, 5, 0.0, 30.0)
    sensor_times(more, 7, 40.0)
    whole = merge_values([some.read(40.0), more.read(40.0), Sensor(THREE).read(40.0)])
    assert whole == CounterValues({"count": 3, "amount": 17}, {"largest": 7}, {"count": 3, "amount": 17}, 0.0)
    assert more.read(40.0).since == 40.0
    assert merge_values([]) == CounterValues({}, {}, {}, math.inf)


def test_an_interval_holds_what_came_since_the_mark_and_windows_go_on() -> None:
    sensor = Sensor(Window(30.0, 2))
    sensor.record(50, 0.0)
    sensor.mark()
    sensor.record(7, 1.0)
    assert sensor.interval_tally(2.0)[:5] == (1, 7, 7, 0.5, 3.5)
    assert sensor.tally(2.0)[:3] == (2, 57, 50)
    sensor.record(8, 31.0)  # a new sample: the one that the mark divided is closed
    assert sensor.interval_tally(2.0)[:3] == (2, 15, 8)
    assert sensor.tally(31.0)[:3] == (3, 65, 50)
    sensor.mark()
    assert sensor.interval_tally(1.0)[:3] == (0, 0, 0)


def test_many_marks_within_a_sample_leave_it_one() -> None:
    sensor = Sensor(Window(30.0, 2))
    for number in range(20):
        sensor.mark()
        sensor.record(number, number / 10)
    sensor.record(1, 30.0)
    assert sensor.tally(30.0)[:3] == (21, 191, 19)
    assert sensor.read(30.0).since == 0.0


def test_the_maximum_since_the_mark_outlives_samples() -> None:
    sensor = Sensor(Window(1.0, 1))
    sensor_times(sensor, 9, 0.0)
    sensor_times(sensor, 1, 1.0, 2.0, 3.0)
    assert sensor.interval_tally(3.0).largest == 9
    assert sensor.tally(3.0).largest == 1


steps = st.lists(
    st.one_of(
        st.tuples(st.just("record"), st.integers(0, 1000)),
        st.tuples(st.just("sleep"), st.integers(0, 50)),
        st.tuples(st.just("mark"), st.just(0)),
    ),
    max_size=60,
)


@settings(max_examples=150)
@given(steps, st.integers(1, 4))
def test_windows_intervals_and_totals_agree_with_a_list_of_all_values(
    schedule: list[tuple[str, int]], samples: int
) -> None:
    sensor, now, marked, window = Sensor(Window(30.0, samples)), 0.0, 0, 30.0 * samples
    values: list[tuple[float, int]] = []
    for step, amount in schedule:
        if step == "record":
            sensor.record(amount, now)
            values.append((now, amount))
        elif step == "sleep":
            now += amount
        else:
            sensor.mark()
            marked = len(values)
    interval, found = sensor.interval_tally(1.0), sensor.tally(now)
    assert interval.amount == sum(value for _, value in values[marked:])
    assert interval.largest == max((value for _, value in values[marked:]), default=0)
    assert (found.total_weight, found.total) == (len(values), sum(value for _, value in values))
    # Samples that overlap the window count whole: at least the window's events, at most those of one sample more.
    inside = [value for at, value in values if now - at < window]
    around = [value for at, value in values if now - at < window + 30.0]
    assert len(inside) <= found.weight <= len(around)
    assert max(inside, default=0) <= found.largest <= max(around, default=0)
