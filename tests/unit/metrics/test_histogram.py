"""Percentiles of what a histogram has counted."""

from __future__ import annotations

import math
import random

import pytest

from spark_producer.metrics.histogram import SMALLEST, Histogram, percentile


def test_percentiles_are_rounded_up_by_a_sixteenth_at_most() -> None:
    chance = random.Random(4)
    values = sorted(chance.lognormvariate(2, 2) for _ in range(5000))
    histogram = Histogram()
    for value in values:
        histogram.record(value)
    for share in (0.5, 0.99, 0.999, 1.0):
        exact = values[math.ceil(share * len(values)) - 1]
        assert exact <= percentile(histogram.counts(), share) <= (exact + SMALLEST) * (1 + 1 / 16)
    assert len(histogram.counts()) < 400


def test_percentiles_weigh_values_and_know_nothing_of_nothing() -> None:
    histogram = Histogram()
    histogram.record(1.0, 99)
    histogram.record(1000.0, 1)
    assert percentile(histogram.counts(), 0.99) == pytest.approx(1.0, rel=1 / 16)
    assert percentile(histogram.counts(), 0.999) == pytest.approx(1000.0, rel=1 / 16)
    assert math.isnan(percentile({}, 0.5))


def test_values_that_are_too_small_share_a_bucket() -> None:
    histogram = Histogram()
    for value in (0.0, 1e-9, SMALLEST / 32):
        histogram.record(value)
    assert list(histogram.counts().values()) == [3]


def test_a_histogram_since_the_mark() -> None:
    histogram = Histogram()
    histogram.record(1.0, 5)
    histogram.mark()
    histogram.record(100.0, 2)
    assert sum(histogram.counts().values()) == 7
    assert list(histogram.since_mark().values()) == [2]
