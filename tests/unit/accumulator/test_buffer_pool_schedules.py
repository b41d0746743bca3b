"""The buffer pool under many threads: seeded schedules against a model, and a free-running stress.

At every step: bytes held + available = total, strictly first come first served, and nobody sleeps who could be served.
"""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest

from spark_producer.accumulator import buffer_pool
from spark_producer.accumulator.buffer_pool import BufferPool
from spark_producer.errors import BufferExhausted, ProducerClosed
from tests.unit.accumulator.workbench import FakeClock, Runner, until

TOTAL, POOLABLE = 1000, 100


@dataclass
class Request:
    """One call of `allocate` in the model; `deadline` on the fake clock."""

    size: int
    deadline: float
    runner: Runner
    interrupted: threading.Event


class Interrupted(BaseException):
    """What a signal handler raises inside a wait."""


@dataclass
class Schedule:
    """The pool, and what a queue of people would make of the same events."""

    choose: random.Random
    clock: FakeClock = field(default_factory=FakeClock)
    queue: list[Request] = field(default_factory=list)
    held: list[memoryview] = field(default_factory=list)
    available: int = TOTAL
    grants: int = 0
    failures: int = 0

    def __post_init__(self) -> None:
        self.pool = BufferPool(TOTAL, POOLABLE, self.clock)

    def step(self) -> None:
        actions = [self.ask] * 3 if len(self.queue) < 12 else []
        actions += [self.give_back] * 2 if self.held else []
        actions += [self.expire, self.interrupt] if len(self.queue) > 1 and self.choose.random() < 0.4 else []
        self.choose.choice(actions)()
        self.serve()
        self.check()

    def ask(self) -> None:
        size = self.choose.choice([POOLABLE, POOLABLE, self.choose.randint(1, 400), self.choose.randint(1, TOTAL)])
        timeout = self.choose.uniform(1, 1000)
        interrupted = threading.Event()
        before = len(self.pool._waiters)
        runner = Runner(lambda: _with_interrupt(interrupted, lambda: self.pool.allocate(size, timeout)))
        until(lambda: runner.done.is_set() or len(self.pool._waiters) > before, "the request is served or waits")
        self.queue.append(Request(size, self.clock.now + timeout, runner, interrupted))

    def give_back(self) -> None:
        buffer = self.held.pop(self.choose.randrange(len(self.held)))
        self.available += len(buffer)
        self.pool.release(buffer)

    def expire(self) -> None:
        request = min(self.queue, key=lambda waiting: waiting.deadline)
        self.clock.now = max(self.clock.now, request.deadline)
        self.end(request, BufferExhausted)

    def interrupt(self) -> None:
        request = self.choose.choice(self.queue)
        request.interrupted.set()
        self.end(request, Interrupted)

    def end(self, request: Request, kind: type[BaseException]) -> None:
        with self.pool._lock:
            self.pool._waiters[self.queue.index(request)].changed.notify()
        with pytest.raises(kind):
            request.runner.result()
        self.queue.remove(request)
        self.failures += 1

    def serve(self) -> None:
        """What the model grants, the pool must grant, in that order and no more."""
        while self.queue and self.queue[0].size <= self.available:
            request = self.queue.pop(0)
            buffer = request.runner.result()
            assert len(buffer) == request.size
            self.available -= request.size
            self.held.append(buffer)
            self.grants += 1

    def check(self) -> None:
        assert self.pool.available == self.available
        assert sum(map(len, self.held)) + self.pool.available == TOTAL
        assert [waiter.size for waiter in self.pool._waiters] == [request.size for request in self.queue]
        assert not any(request.runner.done.is_set() for request in self.queue)
        assert len(self.pool._free) * POOLABLE <= self.pool.available
        assert len({id(buffer) for buffer in self.held}) == len(self.held), "one buffer in two hands"


_interrupts = threading.local()


def _with_interrupt(interrupted: threading.Event, call: Callable[[], memoryview]) -> memoryview:
    _interrupts.event = interrupted
    return call()


class _Condition(threading.Condition):
    def wait(self, timeout: float | None = None) -> bool:
        woken = super().wait(timeout)
        if _interrupts.event.is_set():
            raise Interrupted
        return woken


@pytest.mark.parametrize("seed", range(6))
def test_bp3_bp6_bp7_seeded_schedules_agree_with_a_queue_of_people(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    class Waiter(buffer_pool._Waiter):
        def __init__(self, size: int, lock: threading.Lock) -> None:
            super().__init__(size, lock)
            self.changed = _Condition(lock)

    monkeypatch.setattr(buffer_pool, "_Waiter", Waiter)
    schedule = Schedule(random.Random(seed))
    for _ in range(500):
        schedule.step()
    assert schedule.grants > 50
    assert schedule.failures > 10
    schedule.pool.close()
    for request in schedule.queue:
        with pytest.raises(ProducerClosed):
            request.runner.result()
    for buffer in schedule.held:
        schedule.pool.release(buffer)
    assert schedule.pool.available == TOTAL


@pytest.fixture
def restless() -> Iterator[None]:
    """Threads change places a thousand times more often than usual."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(5e-6)
    yield
    sys.setswitchinterval(usual)


@pytest.mark.usefixtures("restless")
def test_bp9_ten_threads_allocate_and_release_and_everything_comes_back() -> None:
    threads, rounds = 10, 1000
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
    assert [runner.result() for runner in runners] == [rounds] * threads
    assert not overdrawn
    assert pool.available == pool.total
    assert not pool.has_waiters
    assert len(pool._free) <= 5
