"""Counts of values by size, for percentiles; since the beginning, or since a mark.

Owns: the buckets. Must not know: what is counted, any clock or lock.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from math import frexp

SMALLEST = 2.0**-10
"""What is added to a value, so that 0 has a bucket: with milliseconds, about one microsecond."""

STEPS_PER_OCTAVE = 16
"""Buckets between a value and its double: a percentile is at most 1/16 too high, and `SMALLEST`."""

_STEPS = 2 * STEPS_PER_OCTAVE  # the fraction that frexp gives lies between 1/2 and 1


class Histogram:
    """Buckets that grow with the values, so that a few hundred cover microseconds to hours.

    One thread records, or several under a lock; any thread may read.
    """

    __slots__ = ("_buckets", "_mark")

    def __init__(self) -> None:
        self._buckets: dict[int, int] = {}
        self._mark: dict[int, int] = {}

    def record(self, value: float, weight: int = 1) -> None:
        """Take in a value that is not negative, `weight` times."""
        fraction, exponent = frexp(value + SMALLEST)
        bucket = exponent * STEPS_PER_OCTAVE + int(fraction * _STEPS)
        buckets = self._buckets
        buckets[bucket] = buckets.get(bucket, 0) + weight

    def counts(self) -> dict[int, int]:
        """Bucket → how many values it holds, since the beginning."""
        return dict(self._buckets)

    def mark(self) -> None:
        """Begin a lap."""
        self._mark = self.counts()

    def lap(self) -> dict[int, int]:
        """Bucket → how many values came since the mark."""
        before = self._mark
        return {
            bucket: count - before.get(bucket, 0)
            for bucket, count in self.counts().items()
            if count != before.get(bucket, 0)
        }


def percentile(counts: Mapping[int, int], share: float) -> float:
    """The value that `share` (0 to 1) of all values do not exceed, rounded up to the edge of its bucket; NaN of nothing."""
    wanted = share * sum(counts.values())
    seen = 0
    for bucket in sorted(counts):
        seen += counts[bucket]
        if seen >= wanted:
            octave, step = divmod(bucket - STEPS_PER_OCTAVE, STEPS_PER_OCTAVE)
            return math.ldexp((STEPS_PER_OCTAVE + step + 1) / _STEPS, octave)
    return math.nan
