"""The pauses of a batch between its attempts. Ids (tests/ids.md): RA8, RA9."""

from __future__ import annotations

from random import Random

import pytest

from spark_producer.common.backoff import JITTER, Backoff
from tests.fakes.sender_fakes import answer_to, in_flight, sender_fakes

NOT_ENOUGH_REPLICAS = 19


@pytest.mark.covers("RA8")
@pytest.mark.parametrize(("first", "most"), [(100, 100), (100, 40)])
def test_a_first_pause_that_is_not_below_the_maximum_stays_the_maximum(first: float, most: float) -> None:
    assert {Backoff(first, most).delay(attempt) for attempt in range(50)} == {most}


@pytest.mark.covers("RA9")
def test_the_pauses_of_a_batch_double_with_one_jitter_each_and_end_at_the_maximum() -> None:
    draws: list[float] = []

    class Counted(Random):
        def uniform(self, a: float, b: float) -> float:
            draws.append(super().uniform(a, b))
            return draws[-1]

    made = sender_fakes(delivery_timeout=1e9, backoff=Backoff(0.1, 1.0, Counted(5)).delay)
    draws.clear()
    (outgoing,) = in_flight(made, b"a")
    for attempt in range(8):
        made.complete(outgoing, answer_to(outgoing, NOT_ENOUGH_REPLICAS))
        assert len(draws) == attempt + 1
        pause = min(1.0, min(1.0, 0.1 * 2**attempt) * draws[-1])
        for share in (0.0, 0.5, 0.4999):
            made.fakes.clock.now += share * pause
            assert made.produce() == [], "however often it is looked at, the pause is as long as it was drawn"
        assert len(draws) == attempt + 1
        made.fakes.clock.now += 0.0001 * pause + 1e-9
        (outgoing,) = made.produce()
    assert len(set(draws)) == 8
    assert all(1 - JITTER <= draw <= 1 + JITTER for draw in draws)
