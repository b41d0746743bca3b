"""Time that runs ahead where nothing more will come, but not before what must come has come.

A wait that a test wants to end in vain needs no short time then, within which a busy machine may not have got to the answers.
"""

from __future__ import annotations

import time

from spark_producer import Producer
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
