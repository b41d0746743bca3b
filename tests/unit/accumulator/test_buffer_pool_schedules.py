"""The buffer pool against a model of requests in a queue (hypothesis), and under ten free-running threads.

After every step: bytes held + available = total, requests are served in order, and no thread sleeps that could be served.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from spark_producer.accumulator.pool import BufferPool, new_memory
from spark_producer.errors import BufferExhausted, ProducerClosed, PyProducerError
from tests.fakes.accumulator_fakes import Runner
from tests.fakes.fake_clock import FakeClock
from tests.fakes.interleavings import Actor, Interrupted, Order, Scheduler
from tests.fakes.pool_fakes import free_buffers, gathered, queued
from tests.support.campaigns import sample_and_campaign

TOTAL, POOLABLE = 1000, 100
SIZES = st.one_of(st.just(POOLABLE), st.integers(1, 400), st.integers(1, TOTAL))
ANY = st.integers(0, 1_000)


@dataclass
class Request:
    """One call of `allocate` that the model has not served yet."""

    size: int
    actor: Actor


class PoolMachine(RuleBasedStateMachine):
    """Each call runs until it ends or sleeps; the model says which."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = FakeClock()
        self.scheduler = Scheduler(self.clock, ("expire", "interrupt", "fail"))
        self.waits: list[tuple[float, bool]] = []
        self.system_is_full = False
        self.pool = BufferPool(
            TOTAL,
            POOLABLE,
            self.clock,
            lambda *wait: self.waits.append(wait),
            memory=self.memory,
            monitor=self.scheduler.monitor(),
        )
        self.queue: list[Request] = []
        self.held: list[memoryview] = []
        self.available = TOTAL
        self.ended_early = 0
        self.closed = False

    def memory(self, size: int) -> memoryview:
        if self.system_is_full:
            raise MemoryError
        return new_memory(size)

    # --- what may happen --------------------------------------------------------------------------------------------

    @precondition(lambda self: not self.closed and len(self.queue) < 6)
    @rule(size=SIZES, timeout=st.floats(0.001, 1000))
    def ask(self, size: int, timeout: float) -> None:
        actor = self.scheduler.start(f"allocate({size})", lambda: self.pool.allocate(size, timeout))
        self.scheduler.run_until_asleep(actor)
        self.queue.append(Request(size, actor))
        self.serve()

    @rule(size=SIZES)
    def ask_without_waiting(self, size: int) -> None:
        if self.closed:
            with pytest.raises(ProducerClosed):
                self.pool.try_allocate(size)
            return
        buffer = self.pool.try_allocate(size)
        assert (buffer is not None) == (not self.queue and size <= self.available)
        if buffer is not None:
            self.take(buffer, size)

    @precondition(lambda self: self.held)
    @rule(which=ANY)
    def give_back(self, which: int) -> None:
        buffer = self.held.pop(which % len(self.held))
        self.available += len(buffer)
        self.pool.release(buffer)
        with pytest.raises(PyProducerError, match="released twice"):
            self.pool.release(buffer)
        if not self.closed:
            self.serve()

    @precondition(lambda self: self.queue)
    @rule(which=ANY, order=st.sampled_from(["expire", "interrupt"]))
    def end_a_wait(self, which: int, order: Order) -> None:
        request = self.queue.pop(which % len(self.queue))
        self.scheduler.give(request.actor, order)
        self.scheduler.run_until_asleep(request.actor)
        assert isinstance(request.actor.outcome, BufferExhausted if order == "expire" else Interrupted)
        assert self.waits[-1][1] == (order == "expire")
        self.ended_early += 1
        self.serve()

    @precondition(lambda self: not self.closed)
    @rule(size=SIZES)
    def ask_a_system_without_memory(self, size: int) -> None:
        """The bytes of the request are given back, whether it fails at once or after a wait."""
        if size > self.available or self.queue or (size == POOLABLE and free_buffers(self.pool)):
            return
        self.system_is_full = True
        with pytest.raises(MemoryError):
            self.pool.try_allocate(size)
        self.system_is_full = False

    @precondition(lambda self: not self.closed and self.ended_early > 3)
    @rule()
    def close(self) -> None:
        self.closed = True
        self.pool.close()
        for request in self.queue:
            self.scheduler.run_until_asleep(request.actor)
            assert isinstance(request.actor.outcome, ProducerClosed)
        self.queue.clear()

    # --- what must follow -------------------------------------------------------------------------------------------

    def serve(self) -> None:
        """Require the pool to grant the model's requests, in that order and no more."""
        while self.queue and self.queue[0].size <= self.available:
            request = self.queue.pop(0)
            self.scheduler.run_until_asleep(request.actor)
            assert request.actor.done
            self.take(request.actor.outcome, request.size)

    def take(self, buffer: memoryview, size: int) -> None:
        assert len(buffer) == size
        self.available -= size
        self.held.append(buffer)

    @invariant()
    def every_byte_is_accounted_for(self) -> None:
        pool, parts = self.pool, gathered(self.pool)
        assert sum(map(len, self.held)) + self.available == TOTAL
        assert sum(map(len, self.held)) + sum(parts) + pool.available == TOTAL
        assert pool.available == (0 if self.queue else self.available)
        assert not any(parts[1:])
        assert len({id(buffer.obj) for buffer in self.held}) == len(self.held), "one buffer in two hands"

    @invariant()
    def the_queue_is_that_of_the_model(self) -> None:
        assert queued(self.pool) == [request.size for request in self.queue]
        assert self.pool.waiting == len(self.queue)
        assert all(request.actor.asleep for request in self.queue)

    def teardown(self) -> None:
        self.scheduler.__exit__()


TestPoolMachine = PoolMachine.TestCase
TestPoolMachine.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


@pytest.mark.covers("BP9")
@pytest.mark.usefixtures("restless", "untraced")
@pytest.mark.parametrize("rounds", sample_and_campaign([1000, 50_000]))
def test_ten_threads_allocate_and_release_and_everything_comes_back(rounds: int) -> None:
    threads = 10
    pool = BufferPool(5 * POOLABLE, POOLABLE, FakeClock())
    overdrawn = []

    def work(seed: int) -> int:
        choose = random.Random(seed)
        for _ in range(rounds):
            size = POOLABLE if choose.random() < 0.5 else choose.randint(1, 3 * POOLABLE)
            buffer = pool.allocate(size, 1e6)
            if pool.available < 0:
                overdrawn.append(pool.available)
            buffer[0] = buffer[-1] = seed
            assert buffer[0] == seed
            pool.release(buffer)
        return rounds

    runners = [Runner(lambda seed=seed: work(seed)) for seed in range(threads)]  # type: ignore[misc]
    assert all(runner.done.wait(100) for runner in runners)
    assert [runner.result() for runner in runners] == [rounds] * threads
    assert not overdrawn
    assert pool.available == pool.total
    assert pool.waiting == 0
    assert free_buffers(pool) <= 5
