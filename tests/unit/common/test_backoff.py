"""EB: the pauses between attempts (KIP-580, Kafka's `ExponentialBackoff`)."""

from __future__ import annotations

import re
from pathlib import Path
from random import Random
from typing import Any, cast

import pytest

import spark_producer
from spark_producer.admin import BlockingClient
from spark_producer.common.backoff import JITTER, Backoff, exponential
from spark_producer.errors import KafkaTimeout
from spark_producer.exactly_once.cluster.broker_requests import FIRST_PAUSE_S, MAX_PAUSE_S, RetryUntil
from spark_producer.network import ConnectionSettings
from tests.fakes.scripted_client import ScriptedClient


class Midway(Random):
    """Draws the middle of any interval: as if there were no jitter."""

    def uniform(self, a: float, b: float) -> float:
        return (a + b) / 2


@pytest.mark.covers("EB")
def test_pauses_double_up_to_the_largest() -> None:
    assert [exponential(100, 400, failures, Midway()) for failures in range(4)] == [100, 200, 400, 400]
    backoff = Backoff(0.1, 0.4, Midway())
    assert [backoff.delay(attempt) for attempt in range(4)] == pytest.approx([0.1, 0.2, 0.4, 0.4])


@pytest.mark.covers("EB")
def test_jitter_is_a_fifth_and_never_beyond_the_largest() -> None:
    random = Random(7)
    for failures in range(8):
        drawn = [exponential(100, 1000, failures, random) for _ in range(500)]
        middle = min(1000, 100 * 2**failures)
        assert min(drawn) >= middle * (1 - JITTER)
        assert max(drawn) <= min(1000, middle * (1 + JITTER))
        assert max(drawn) - min(drawn) > middle * JITTER * 0.9


@pytest.mark.covers("EB")
def test_a_first_pause_beyond_the_largest_is_the_largest_without_jitter() -> None:
    assert {exponential(500, 400, failures, Random(1)) for failures in range(50)} == {400}


@pytest.mark.covers("EB")
def test_very_many_failures_do_not_overflow() -> None:
    assert exponential(100, 1000, 10**9, Midway()) == 1000


GROWS = re.compile(
    r"2(\.0)? ?\*\* ?(min\(|attempt|failure|retr|number|round)"
    r"|min\(2 ?\* ?(pause|delay|wait|backoff)|(pause|delay|wait|backoff) \*= "
)
"""The code of an exponential back-off."""


@pytest.mark.covers("EB")
def test_no_other_module_computes_pauses_between_attempts() -> None:
    root = Path(spark_producer.__file__).parent
    found = {
        str(path.relative_to(root))
        for path in sorted(root.rglob("*.py"))
        if GROWS.search(path.read_text(encoding="utf-8"))
    }
    assert found == {"common/backoff.py"}


@pytest.mark.covers("EB")
def test_attempts_of_exactly_once_writes_have_jitter() -> None:
    """Tasks that were cut off together would come back together."""
    firsts = set()
    for _ in range(5):
        client = ScriptedClient()
        with pytest.raises(KafkaTimeout):
            list(RetryUntil(cast(Any, client), "orders", 10.0, "nothing"))
        for number, pause in enumerate(client.pauses):
            usual = min(MAX_PAUSE_S, FIRST_PAUSE_S * 2**number)
            assert usual * (1 - JITTER) <= pause <= min(MAX_PAUSE_S, usual * (1 + JITTER))
        firsts.add(client.pauses[0])
    assert len(firsts) > 1


@pytest.mark.covers("EB")
def test_the_tools_pause_as_retry_backoff_says() -> None:
    settings = ConnectionSettings((("h", 1),), retry_backoff=0.02, retry_backoff_max=0.2)
    with BlockingClient(settings) as client:
        pauses = [client.retry_backoff.delay(attempt) for attempt in range(6)]
    assert all(0.8 <= pause / usual <= 1.2 for pause, usual in zip(pauses[:4], (0.02, 0.04, 0.08, 0.16), strict=True))
    assert max(pauses) <= 0.2
