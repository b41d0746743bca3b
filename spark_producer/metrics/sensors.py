"""How one quantity is kept: in windows of time, since a mark, and since the beginning.

Owns: the arithmetic of windows. Must not know: what is counted, which names it has, any clock or lock.

A sensor keeps what Java's sampled statistics of one quantity need (spec: kafka_producer.md §5). There each statistic has
samples of its own; since all statistics of a quantity are recorded at the same moments, one set of samples serves them all.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

NOTHING = -math.inf
"""The largest of no values."""

SHORTEST_WINDOW = 0.001
"""Seconds that a rate is divided by at least, as in Java."""

SMALLEST = 2.0**-10
"""What a histogram rounds smaller values up to: with milliseconds, about one microsecond."""

STEPS_PER_OCTAVE = 16
"""Buckets of a histogram between a value and its double: a percentile is at most 1/16 too high."""


class Window(NamedTuple):
    """`metrics.sample.window.ms`, here in seconds, and `metrics.num.samples`."""

    seconds: float = 30.0
    samples: int = 2


class Tally(NamedTuple):
    """A sensor's state at one moment, as plain numbers.

    `weight` values, or as many parts, amount to `amount`; the largest is `largest`, -inf of nothing. They and the two
    rates are those of the window or lap, `total_weight` and `total` those since the beginning, or of the lap. Units are
    those of the values; rates are per second.
    """

    weight: float = 0
    amount: float = 0
    largest: float = NOTHING
    weight_rate: float = 0.0
    rate: float = 0.0
    total_weight: float = 0
    total: float = 0


class _Sample(NamedTuple):
    """One sample: when it began, when its last value came, and what it holds."""

    start: float
    last: float
    weight: float
    amount: float
    largest: float


class Sensor:
    """One quantity. Not locked: its owner records and reads under a lock of its own.

    A window is `samples` whole samples and the one that is being filled. A sample is closed by the first value that
    comes when it is as old as `Window.seconds`, and no longer counts when its last value is as old as the whole window.
    Reading changes nothing, unlike in Java, where a look at an idle sensor begins a new sample.
    """

    __slots__ = (
        "_amount", "_before_mark", "_closed", "_ends", "_largest", "_last", "_mark", "_past_amount", "_past_weight",
        "_peak", "_start", "_weight", "_window",
    )  # fmt: skip

    def __init__(self, window: Window) -> None:
        self._window = window
        self._closed: tuple[_Sample, ...] = ()
        self._start = self._ends = self._last = -math.inf
        self._weight: float = 0
        self._amount: float = 0
        self._largest: float = NOTHING
        self._past_weight: float = 0
        self._past_amount: float = 0
        self._before_mark: float = NOTHING  # the largest of this sample that came before the mark
        self._peak: float = NOTHING  # the largest of closed samples that came after the mark
        self._mark: tuple[float, float] = (0, 0)

    def record(self, value: float, now: float) -> None:
        """Take in one value at `now`, in seconds of a clock that does not go back."""
        if now >= self._ends:
            self._advance(now)
        self._last = now
        self._weight += 1
        self._amount += value
        if value > self._largest:
            self._largest = value

    def add(self, amount: float, weight: float, largest: float, now: float) -> None:
        """Take in what amounts to `amount` over `weight` parts, the largest of them `largest`: averages are weighted."""
        if now >= self._ends:
            self._advance(now)
        self._last = now
        self._weight += weight
        self._amount += amount
        if largest > self._largest:
            self._largest = largest

    def tally(self, now: float) -> Tally:
        """The windows as they are at `now`, and the totals since the beginning."""
        oldest = now - self._window.seconds * self._window.samples
        current = _Sample(self._start, self._last, self._weight, self._amount, max(self._largest, self._before_mark))
        live = [sample for sample in (*self._closed, current) if sample.last > oldest]
        totals = self._past_weight + self._weight, self._past_amount + self._amount
        if not live:
            return Tally(0, 0, NOTHING, 0.0, 0.0, *totals)
        weight, amount = sum(sample.weight for sample in live), sum(sample.amount for sample in live)
        seconds = self._seconds(now - min(sample.start for sample in live))
        return Tally(
            weight, amount, max(sample.largest for sample in live), weight / seconds, amount / seconds, *totals
        )

    def mark(self) -> None:
        """Begin a lap; windows and totals go on."""
        self._mark = self._past_weight + self._weight, self._past_amount + self._amount
        self._before_mark, self._largest, self._peak = max(self._before_mark, self._largest), NOTHING, NOTHING

    def lap(self, seconds: float) -> Tally:
        """What came since the mark, which was `seconds` ago. Its rates are those of the lap, its totals too."""
        weight = self._past_weight + self._weight - self._mark[0]
        amount = self._past_amount + self._amount - self._mark[1]
        seconds = max(seconds, SHORTEST_WINDOW)
        largest = max(self._peak, self._largest)
        return Tally(weight, amount, largest, weight / seconds, amount / seconds, weight, amount)

    def _seconds(self, elapsed: float) -> float:
        """What a rate is divided by: at least all samples but one count as whole, so a young rate reads low."""
        missing = self._window.samples - 1 - int(elapsed / self._window.seconds)
        return max(elapsed + max(missing, 0) * self._window.seconds, SHORTEST_WINDOW)

    def _advance(self, now: float) -> None:
        """Close the sample that is being filled and begin the next."""
        if self._weight:
            largest = max(self._largest, self._before_mark)
            sample = _Sample(self._start, self._last, self._weight, self._amount, largest)
            self._closed = (*self._closed, sample)[-self._window.samples :]
            self._past_weight += self._weight
            self._past_amount += self._amount
            self._peak = max(self._peak, self._largest)
        self._weight = self._amount = 0
        self._largest = self._before_mark = NOTHING
        self._start, self._ends = now, now + self._window.seconds


class Histogram:
    """Counts of values by size, for percentiles; since the beginning, or since a mark. Not locked, as `Sensor`.

    Buckets grow with the values, so a few hundred cover microseconds to hours.
    """

    __slots__ = ("_buckets", "_mark")

    def __init__(self) -> None:
        self._buckets: dict[int, int] = {}
        self._mark: dict[int, int] = {}

    def record(self, value: float, weight: int = 1) -> None:
        """Take in a value that is not negative, `weight` times."""
        fraction, exponent = math.frexp(max(value, SMALLEST))
        bucket = exponent * STEPS_PER_OCTAVE + int((fraction - 0.5) * 2 * STEPS_PER_OCTAVE)
        self._buckets[bucket] = self._buckets.get(bucket, 0) + weight

    def counts(self) -> dict[int, int]:
        """Bucket → how many values it holds, since the beginning."""
        return dict(self._buckets)

    def mark(self) -> None:
        """Begin a lap."""
        self._mark = dict(self._buckets)

    def lap(self) -> dict[int, int]:
        """Bucket → how many values came since the mark."""
        return {
            bucket: count - self._mark.get(bucket, 0)
            for bucket, count in self._buckets.items()
            if count != self._mark.get(bucket, 0)
        }


def percentile(counts: Mapping[int, int], share: float) -> float:
    """The value that `share` (0 to 1) of all values do not exceed, rounded up to the edge of its bucket; NaN of nothing."""
    wanted = share * sum(counts.values())
    seen = 0
    for bucket in sorted(counts):
        seen += counts[bucket]
        if seen >= wanted:
            exponent, step = divmod(bucket, STEPS_PER_OCTAVE)
            return math.ldexp(0.5 + (step + 1) / (2 * STEPS_PER_OCTAVE), exponent)
    return math.nan
