"""EB: the pauses between attempts (KIP-580, Kafka's `ExponentialBackoff`)."""

from __future__ import annotations

from random import Random

import pytest

from spark_producer.backoff import JITTER, Backoff, exponential


class Midway(Random):
    """Draws the middle of any interval: as if there were no jitter."""

    def uniform(self, a: float, b: float) -> float:
        return (a + b) / 2


def test_eb_pauses_double_up_to_the_largest() -> None:
    assert [exponential(100, 400, failures, Midway()) for failures in range(4)] == [100, 200, 400, 400]
    backoff = Backoff(0.1, 0.4, Midway())
    assert [backoff.delay(attempt) for attempt in range(4)] == pytest.approx([0.1, 0.2, 0.4, 0.4])


def test_eb_jitter_is_a_fifth_and_never_beyond_the_largest() -> None:
    random = Random(7)
    for failures in range(8):
        drawn = [exponential(100, 1000, failures, random) for _ in range(500)]
        middle = min(1000, 100 * 2**failures)
        assert min(drawn) >= middle * (1 - JITTER)
        assert max(drawn) <= min(1000, middle * (1 + JITTER))
        assert max(drawn) - min(drawn) > middle * JITTER * 0.9


def test_eb_a_first_pause_beyond_the_largest_is_the_largest_without_jitter() -> None:
    assert {exponential(500, 400, failures, Random(1)) for failures in range(50)} == {400}


def test_eb_very_many_failures_do_not_overflow() -> None:
    assert exponential(100, 1000, 10**9, Midway()) == 1000
