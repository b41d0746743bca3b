"""Time that runs ahead where nothing more will come, but not before what must come has come.

A wait that a test wants to time out needs no short time then, within which a busy machine may not have got to the answers.
"""

from __future__ import annotations

import time

import pytest

from spark_producer import Producer
from spark_producer.admin.exchange_client import POLL_INTERVAL, ExchangeClient
from spark_producer.producer import parts_of


class RunningClock:
    """The seconds of `time.monotonic`, and those that were skipped."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def __call__(self) -> float:
        return time.monotonic() + self.ahead

    def skip(self, seconds: float) -> None:
        self.ahead += seconds


def impatient(producer: Producer) -> Producer:
    """From now on `max.block.ms` has passed for a thread that waits for a topic once the brokers have answered it."""
    topics = parts_of(producer).topics
    clock, backoff, waited = topics._clock, topics._backoff, topics._waited
    ahead = 0.0

    def answered(rounds: int) -> float:
        nonlocal ahead
        ahead += topics._config.max_block_ms / 1000
        return backoff(rounds)

    def over(seconds: float, now: float) -> None:
        nonlocal ahead
        ahead = 0.0
        waited(seconds, now)

    topics._clock, topics._backoff, topics._waited = lambda: clock() + ahead, answered, over
    return producer


def skip_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let admin clients that are made from now on skip their pauses. Requests take the time that they take."""
    clock = RunningClock()

    def pause(self: ExchangeClient, seconds: float, subject: str, began: float) -> None:
        until = clock() + seconds
        with self._closed_if_interrupted():
            while (left := until - clock()) > 0:
                if subject:
                    self._report_wait(clock() - began, subject)
                self._take(self._poll(0))
                clock.skip(min(left, POLL_INTERVAL))

    defaults = ExchangeClient.__init__.__kwdefaults__
    assert defaults is not None
    monkeypatch.setitem(defaults, "clock", clock)
    monkeypatch.setattr(ExchangeClient, "_pause", pause)
