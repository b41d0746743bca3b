"""The size of batches where a topic takes less than `batch.size`: halved by a refusal, tried again, at a bounded cost."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from spark_producer.accumulator import ProducerBatch
from spark_producer.accumulator.topic_limits import (
    FIRST_BETWEEN,
    MAX_BATCHES_BETWEEN_PROBES,
    MIN_LIMIT_BYTES,
    TopicLimits,
)
from spark_producer.record.codecs import Codec
from tests.fakes.accumulator_fakes import DEADLINE, AccumulatorFakes, accumulator_fakes

BATCH_SIZE = 16384


class Topic:
    """A topic whose `max.message.bytes` changes, and what a producer sends to it."""

    def __init__(self, limit: int, codec: Codec = Codec.NONE) -> None:
        self.limit = limit
        self.fakes: AccumulatorFakes = accumulator_fakes(
            memory=1 << 20, batch_size=BATCH_SIZE, linger=1000, codec=codec
        )
        self.choose = random.Random(5)
        self.taken: list[int] = []
        self.refused: list[int] = []

    def write(self, batches: int) -> None:
        """Append until this many more batches were drained."""
        until = len(self.taken) + batches
        while len(self.taken) < until:
            self.fakes.append(*(self.row() for _ in range(100)))
            while (batch := self.fakes.try_take()) is not None:
                self.judge(batch)

    def judge(self, batch: ProducerBatch) -> None:
        if batch.size > self.limit:
            self.refused.append(batch.size)
            self.fakes.split(batch)
        else:
            self.taken.append(batch.size)
            self.fakes.complete(batch)

    def row(self) -> bytes:
        return b"".join(b"%03d " % self.choose.randrange(1000) for _ in range(25))


@pytest.mark.slow
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_batches_grow_again_after_the_limit_was_raised(codec: Codec) -> None:
    topic = Topic(2500, codec)
    topic.write(100)
    assert max(topic.taken) <= 2500
    topic.limit = 1 << 20
    topic.write(8 * MAX_BATCHES_BETWEEN_PROBES)
    assert max(topic.taken) > 0.9 * BATCH_SIZE
    last = topic.taken[-FIRST_BETWEEN:]
    assert sum(last) / len(last) > 0.75 * BATCH_SIZE, "not the probes alone"


@pytest.mark.slow
@pytest.mark.parametrize("limit", [1500, 5000, 9000])
def test_a_limit_that_stays_costs_one_refused_batch_for_each_probe(limit: int) -> None:
    topic = Topic(limit)
    topic.write(2 * MAX_BATCHES_BETWEEN_PROBES)
    before = len(topic.refused)
    topic.write(10 * MAX_BATCHES_BETWEEN_PROBES)
    assert 5 <= len(topic.refused) - before <= 10


def test_a_limit_that_is_lowered_again_halves_the_batches_again() -> None:
    topic = Topic(5000)
    topic.write(100)
    topic.limit = 1 << 20
    topic.write(300)
    topic.limit = 2500
    refused = len(topic.refused)
    topic.write(300)
    assert max(topic.taken[-200:]) <= 2500
    assert len(topic.refused) - refused <= 25


def test_sizes_double_up_to_batch_size() -> None:
    limits = TopicLimits(16000)
    assert not limits
    limits.refused("t", 16000)
    limits.refused("t", 8000)
    limits.refused("t", 4000)
    assert (limits.size("t"), limits.new_size("t"), limits.size("other")) == (2000, 2000, 16000)
    found = []
    for _ in range(3):
        for _ in range(FIRST_BETWEEN):
            assert limits.new_size("t") == limits.size("t")
            limits.taken("t", limits.size("t"))
        probe = limits.new_size("t")
        assert limits.size("t") < probe, "nothing but the probe is larger"
        assert limits.new_size("t") == limits.size("t")
        limits.taken("t", probe)
        found.append(limits.size("t"))
    assert found == [4000, 8000, 16000]
    assert not limits


def test_batches_that_are_not_half_full_show_nothing() -> None:
    limits = TopicLimits(16000)
    limits.refused("t", 16000)
    for _ in range(10 * MAX_BATCHES_BETWEEN_PROBES):
        limits.taken("t", 4000)
    assert limits.new_size("t") == 8000


def test_refused_probes_come_less_often_and_leave_the_limit() -> None:
    limits = TopicLimits(16000)
    limits.refused("t", 16000)
    for size in (16000, 16000, 12000):
        limits.refused("t", size)  # they were there before
    waits = []
    for _ in range(4):
        waits.append(0)
        while (probe := limits.new_size("t")) == 8000:
            limits.taken("t", 8000)
            waits[-1] += 1
        limits.refused("t", probe)
    assert waits == [FIRST_BETWEEN, 2 * FIRST_BETWEEN, MAX_BATCHES_BETWEEN_PROBES, MAX_BATCHES_BETWEEN_PROBES]
    assert limits.size("t") == 8000


def test_a_probe_that_was_not_filled_is_tried_again() -> None:
    limits = TopicLimits(16000)
    limits.refused("t", 16000)
    for _ in range(3):
        for _ in range(FIRST_BETWEEN):
            limits.taken("t", 8000)
        assert limits.new_size("t") == 16000
        limits.taken("t", 100)


def test_a_limit_never_falls_below_the_least() -> None:
    limits = TopicLimits(16000)
    for _ in range(10):
        limits.refused("t", limits.size("t"))
    assert limits.size("t") == MIN_LIMIT_BYTES


@pytest.mark.usefixtures("restless")
def test_one_thread_gets_the_probe() -> None:
    limits, threads = TopicLimits(16000), 4
    limits.refused("t", 16000)
    barrier = Barrier(threads)

    def ask() -> int:
        barrier.wait(DEADLINE)
        return limits.new_size("t")

    with ThreadPoolExecutor(threads) as pool:
        for _ in range(50):
            for _ in range(FIRST_BETWEEN):
                limits.taken("t", 8000)
            sizes = [future.result(DEADLINE) for future in [pool.submit(ask) for _ in range(threads)]]
            assert sorted(sizes) == [8000] * (threads - 1) + [16000]
            limits.taken("t", 100)
