"""Counts of values by size, for percentiles, since the beginning or since a mark."""

from __future__ import annotations

import math
from collections.abc import Mapping
from math import frexp

SMALLEST = 2.0**-10
"""This is added to every value, so that 0 has a bucket. For milliseconds it is about one microsecond."""

STEPS_PER_OCTAVE = 16
"""The number of buckets between a value and its double. So a percentile is at most 1/16 and `SMALLEST` too high."""

_STEPS = 2 * STEPS_PER_OCTAVE  # the fraction that frexp gives lies between 1/2 and 1


class Histogram:
    """Counts values in buckets that grow with the values, so that a few hundred cover microseconds to hours.

    One thread records, or several under a lock; any thread may read.
    """

    __slots__ = ("_buckets", "_mark")

    def __init__(self) -> None:
        self._buckets: dict[int, int] = {}
        self._mark: dict[int, int] = {}

    def record(self, value: float, weight: int = 1) -> None:
        """Record a value that is not negative, `weight` times."""
        fraction, exponent = frexp(value + SMALLEST)
        bucket = exponent * STEPS_PER_OCTAVE + int(fraction * _STEPS)
        buckets = self._buckets
        buckets[bucket] = buckets.get(bucket, 0) + weight

    def counts(self) -> dict[int, int]:
        """Return bucket → the number of values in it since the beginning."""
        return dict(self._buckets)

    def mark(self) -> None:
        """Begin an interval, which the next `since_mark` covers."""
        self._mark = self.counts()

    def since_mark(self) -> dict[int, int]:
        """Return bucket → the number of values in it since the last `mark`."""
        before = self._mark
        return {
            bucket: count - before.get(bucket, 0)
            for bucket, count in self.counts().items()
            if count != before.get(bucket, 0)
        }


def percentile(counts: Mapping[int, int], share: float) -> float:
    """Return the value that `share` (0 to 1) of all values do not exceed, rounded up to its bucket's edge; NaN if none."""
    wanted = share * sum(counts.values())
    seen = 0
    for bucket in sorted(counts):
        seen += counts[bucket]
        if seen >= wanted:
            octave, step = divmod(bucket - STEPS_PER_OCTAVE, STEPS_PER_OCTAVE)
            return math.ldexp((STEPS_PER_OCTAVE + step + 1) / _STEPS, octave)
    return math.nan
