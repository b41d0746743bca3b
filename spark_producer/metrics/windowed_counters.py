"""Counters of events: plain numbers for windows of time, since a mark, and since the beginning.

Java keeps samples for every statistic (Kafka's SampledStat). Here all statistics of one kind of event share one set of
samples, since they are recorded at the same moments, and an event costs a few additions to attributes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import ClassVar, NamedTuple, TypeAlias

Sum: TypeAlias = float
Peak: TypeAlias = float
"""The two kinds of numbers, which annotate the attributes of `WindowedCounters`."""

MIN_WINDOW_S = 0.001
"""Minimum seconds that a rate is divided by, as in Java."""


class Window(NamedTuple):
    """The options `metrics.sample.window.ms`, here in seconds, and `metrics.num.samples`."""

    seconds: float = 30.0
    samples: int = 2

    def divisor(self, since: float, now: float) -> float:
        """Return the seconds that a rate is divided by. All samples but one count as whole, so a young rate is low."""
        elapsed = max(now - since, 0.0)
        missing = self.samples - 1 - int(elapsed / self.seconds)
        return max(elapsed + max(missing, 0) * self.seconds, MIN_WINDOW_S)


class _Sample(NamedTuple):
    """A sample, or the part of it before a mark: when it began, when its last event came, and its numbers."""

    start: float
    last: float
    sums: tuple[float, ...]
    peaks: tuple[float, ...]


class CounterValues(NamedTuple):
    """Numbers by name, of a window that began at `since` or of an interval; `totals` count since the start or in the interval."""

    sums: Mapping[str, float]
    peaks: Mapping[str, float]
    totals: Mapping[str, float]
    since: float = math.inf


class WindowedCounters:
    """The numbers of one kind of event. No number is negative.

    A subclass annotates its numbers: each `Sum` adds up, each `Peak` is a maximum. Callers record an event in their own code,
    because a call for each number would cost more than the additions:

        if now >= counters.sample_end:
            counters.roll(now)
        counters.last = now
        counters.bytes += size

    One thread records, or several under a lock; the other methods need a lock that they share with `roll`. They may run while
    an event is being recorded, and then see a part of it.

    A window is `samples` whole samples and the one that is being filled. A sample ends with the first event that comes when
    the sample is as old as `Window.seconds`. It no longer counts when its last event is as old as the whole window. Reading
    changes nothing, unlike in Java, where reading an idle sensor begins a new sample.
    """

    SUMS: ClassVar[tuple[str, ...]] = ()
    PEAKS: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls) -> None:
        kinds = cls.__annotations__.items()
        cls.SUMS += tuple(name for name, kind in kinds if kind == "Sum")
        cls.PEAKS += tuple(name for name, kind in kinds if kind == "Peak")

    def __init__(self, window: Window) -> None:
        self._window = window
        self._closed: tuple[_Sample, ...] = ()
        self._start = self._complete = -math.inf
        self.sample_end = -math.inf
        """the time at which `roll` is due"""
        self.last = -math.inf
        self._past: tuple[float, ...] = (0,) * len(self.SUMS)
        self._marked: tuple[float, ...] = self._past
        self._peaks_since_mark: tuple[float, ...] = (0,) * len(self.PEAKS)
        self.changed = False
        """whether there was an event since the last mark"""
        self._clear()

    @property
    def used(self) -> bool:
        """Whether there ever was an event."""
        return self.last > -math.inf

    def roll(self, now: float) -> None:
        """Close the sample that is being filled, or continue it if only a mark has ended it."""
        if self.used:
            self._close()
        self.changed = True
        if now >= self._complete:
            self._start, self._complete = now, now + self._window.seconds
        self.sample_end = self._complete

    def mark(self) -> None:
        """Begin an interval, which the next `since_mark` covers. Windows and totals continue."""
        self._marked = self._totals()
        self._peaks_since_mark = (0,) * len(self.PEAKS)
        self.changed = False
        self.sample_end = -math.inf

    def read(self, now: float) -> CounterValues:
        """Return the window as it is at `now`, and the totals since the beginning."""
        oldest = now - self._window.seconds * self._window.samples
        live = [sample for sample in (*self._closed, self._current()) if sample.last > oldest]
        sums: tuple[float, ...] = (0,) * len(self.SUMS)
        peaks: tuple[float, ...] = (0,) * len(self.PEAKS)
        for sample in live:
            sums, peaks = _add(sums, sample.sums), _highest(peaks, sample.peaks)
        named, totals = (dict(zip(self.SUMS, each, strict=True)) for each in (sums, self._totals()))
        since = min((sample.start for sample in live), default=math.inf)
        return CounterValues(named, dict(zip(self.PEAKS, peaks, strict=True)), totals, since)

    def since_mark(self) -> CounterValues:
        """Return the numbers since the mark."""
        current = self._current()
        totals = _add(self._past, current.sums)
        sums = {name: total - before for name, total, before in zip(self.SUMS, totals, self._marked, strict=True)}
        peaks = _highest(self._peaks_since_mark, current.peaks) if self.changed else self._peaks_since_mark
        return CounterValues(sums, dict(zip(self.PEAKS, peaks, strict=True)), sums)

    def _current(self) -> _Sample:
        sums = tuple([getattr(self, name) for name in self.SUMS])
        return _Sample(self._start, self.last, sums, tuple([getattr(self, name) for name in self.PEAKS]))

    def _totals(self) -> tuple[float, ...]:
        return _add(self._past, self._current().sums)

    def _close(self) -> None:
        closed = self._current()
        self._past = _add(self._past, closed.sums)
        if self.changed:
            self._peaks_since_mark = _highest(self._peaks_since_mark, closed.peaks)
        before = self._closed
        if before and before[-1].start == closed.start:
            first, before = before[-1], before[:-1]
            closed = _Sample(
                closed.start, closed.last, _add(first.sums, closed.sums), _highest(first.peaks, closed.peaks)
            )
        self._closed = (*before, closed)[-self._window.samples - 1 :]
        self._clear()

    def _clear(self) -> None:
        for name in self.SUMS + self.PEAKS:
            setattr(self, name, 0)


class SingleValues(WindowedCounters):
    """The counters of single values, for events that are too rare to have numbers of their own."""

    count: Sum
    amount: Sum
    largest: Peak

    def record(self, value: float, now: float) -> None:
        """Record one value at `now`, in seconds of a clock that does not go back."""
        if now >= self.sample_end:
            self.roll(now)
        self.last = now
        self.count += 1
        self.amount += value
        if value > self.largest:
            self.largest = value


def merge_values(readings: Iterable[CounterValues]) -> CounterValues:
    """Add up the readings of several counters, of one kind or several; mostly there is only one reading."""
    given = list(readings)
    if len(given) == 1:
        return given[0]
    sums: dict[str, float] = {}
    peaks: dict[str, float] = {}
    totals: dict[str, float] = {}
    since = math.inf
    for reading in given:
        for into, numbers in ((sums, reading.sums), (totals, reading.totals)):
            for name, number in numbers.items():
                into[name] = into.get(name, 0) + number
        for name, peak in reading.peaks.items():
            peaks[name] = max(peaks.get(name, 0), peak)
        since = min(since, reading.since)
    return CounterValues(sums, peaks, totals, since)


def _add(some: tuple[float, ...], more: tuple[float, ...]) -> tuple[float, ...]:
    return tuple([one + other for one, other in zip(some, more, strict=True)])


def _highest(some: tuple[float, ...], more: tuple[float, ...]) -> tuple[float, ...]:
    return tuple([max(one, other) for one, other in zip(some, more, strict=True)])
