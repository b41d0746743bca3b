"""The pauses between attempts. Ids: spec kafka_producer.md §6, EB, RA8, RA9."""

from __future__ import annotations

from random import Random
from typing import cast

import pytest

from spark_producer import backoff
from spark_producer.backoff import JITTER, Backoff
from tests.unit.sender import stage as stages
from tests.unit.sender.stage import answer_to, in_flight, stage

NOT_ENOUGH_REPLICAS = 19


class Middle(Random):
    """Draws the middle: no jitter."""

    def uniform(self, a: float, b: float) -> float:
        return (a + b) / 2


class Edge(Random):
    """Draws the upper end."""

    def uniform(self, a: float, b: float) -> float:
        return b


def test_eb_pauses_double_up_to_the_maximum() -> None:
    assert [Backoff(100, 400, Middle()).delay(attempt) for attempt in range(4)] == [100, 200, 400, 400]
    assert Backoff(100, 400, Middle()).delay(10**6) == 400


def test_eb_the_jitter_stays_within_a_fifth_and_below_the_maximum() -> None:
    made = Backoff(100, 1000, Random(3))
    for attempt in range(8):
        exact = min(1000, 100 * 2**attempt)
        drawn = [made.delay(attempt) for _ in range(300)]
        assert (1 - JITTER) * exact <= min(drawn) < 0.9 * exact
        assert 0.95 * exact < max(drawn) <= min(1000, (1 + JITTER) * exact)
    assert Backoff(100, 1000, cast(Random, Edge())).delay(3) == pytest.approx(960)
    assert Backoff(100, 1000, cast(Random, Edge())).delay(4) == 1000
    assert 0 < JITTER < 1, "a constant here: nobody can set one that makes no sense"


@pytest.mark.parametrize(("first", "most"), [(100, 100), (100, 40)])
def test_ra8_eb_a_first_pause_that_is_not_below_the_maximum_stays_the_maximum(first: float, most: float) -> None:
    assert {Backoff(first, most).delay(attempt) for attempt in range(50)} == {most}


def test_ra9_the_pauses_of_a_batch_double_with_one_jitter_each_and_end_at_the_maximum(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    draws: list[float] = []

    class Counted(Random):
        def uniform(self, a: float, b: float) -> float:
            draws.append(super().uniform(a, b))
            return draws[-1]

    monkeypatch.setattr(stages, "backoff", Backoff(0.1, 1.0, Counted(5)).delay)
    made = stage(delivery_timeout=1e9)
    draws.clear()
    (outgoing,) = in_flight(made, b"a")
    for attempt in range(8):
        made.complete(outgoing, answer_to(outgoing, NOT_ENOUGH_REPLICAS))
        assert len(draws) == attempt + 1
        pause = min(1.0, min(1.0, 0.1 * 2**attempt) * draws[-1])
        for share in (0.0, 0.5, 0.4999):
            made.bench.clock.now += share * pause
            assert made.produce() == [], "however often it is looked at, the pause is as long as it was drawn"
        assert len(draws) == attempt + 1
        made.bench.clock.now += 0.0001 * pause + 1e-9
        (outgoing,) = made.produce()
    assert backoff.exponential(0.1, 1.0, 0, Middle()) == pytest.approx(0.1)
