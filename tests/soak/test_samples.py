"""What samples of processes say: the longest life of a driver, and whether it is flat."""

from __future__ import annotations

import pytest

from tests.soak.samples import JUDGED_SECONDS, Sample, Trend, growth, per_minute, trend


def life(driver: int, begin: float, mebibytes: list[float], pause: float = 1.0) -> list[Sample]:
    """Samples of a JVM."""
    return [Sample(begin + pause * i, "s", driver, "JVM", 1, size, 5, 7) for i, size in enumerate(mebibytes)]


def test_the_trend_is_that_of_the_longest_life() -> None:
    samples = [*life(1, 0.0, [100.0 + moment for moment in range(100)]), *life(2, 100.0, [900.0] * 3)]
    assert trend(samples, "s", "JVM", "MiB") == Trend(137.0, 187.0, 99.0, 900.0)
    assert trend(samples, "s", "JVM", "threads") == Trend(5, 5, 99.0, 5)
    assert trend(samples, "s", "workers", "MiB") is None


@pytest.mark.parametrize(("last", "flat"), [(407.0, True), (408.0, False)])
def test_flat_is_at_most_a_quarter_and_some_more_than_before(last: float, flat: bool) -> None:
    sizes = [900.0] * 30 + [300.0] * 60 + [last] * 30
    grown = growth(life(1, 0.0, sizes, pause=60.0), "s")
    assert grown == ([] if flat else ["s: MiB of JVM have grown from 300 to 408"])


def test_a_short_life_is_not_judged() -> None:
    assert growth(life(1, 0.0, [1.0, 9000.0], pause=JUDGED_SECONDS - 1), "s") is None


def test_a_minute_has_the_medians_of_its_samples() -> None:
    samples = [*life(1, 0.0, [1.0, 2.0, 300.0], pause=20.0), *life(1, 60.0, [8.0]), *life(2, 61.0, [9.0])]
    assert [(each.moment, each.driver, each.mebibytes) for each in per_minute(samples)] == [
        (0.0, 1, 2.0),
        (60.0, 1, 8.0),
        (61.0, 2, 9.0),
    ]
