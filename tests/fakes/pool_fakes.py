"""Fakes for the tests of the buffer pool: a small pool, and threads that wait in it.

Owns: the certainty that a request has queued before the test goes on. Must not know: what is tested.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from spark_producer.accumulator.pool import BufferPool, Monitor, new_memory
from tests.fakes.accumulator_fakes import Runner
from tests.fakes.fake_clock import FakeClock
from tests.support.waiting import wait_until

TOTAL, POOLABLE = 1000, 100


class Interrupted(BaseException):
    """The exception that a signal handler raises inside a wait."""


class Bed(threading.Condition):
    """The condition on which one request sleeps."""

    interrupted = False

    def wait(self, timeout: float | None = None) -> bool:
        woken = super().wait(timeout)
        if self.interrupted:
            raise Interrupted
        return woken


class Sleepers:
    """The lock of a pool, and what its requests sleep on, in the order in which they came."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.beds: list[Bed] = []

    def monitor(self) -> Monitor:
        return Monitor(self.lock, self._new)

    def _new(self) -> Bed:
        self.beds.append(Bed(self.lock))
        return self.beds[-1]


def pool_of(
    total: int = TOTAL,
    poolable: int = POOLABLE,
    *,
    clock: FakeClock | None = None,
    sleepers: Sleepers | None = None,
    memory: Callable[[int], memoryview] = new_memory,
) -> BufferPool:
    monitor = None if sleepers is None else sleepers.monitor()
    return BufferPool(total, poolable, clock or FakeClock(), memory=memory, monitor=monitor)


def free_buffers(pool: BufferPool) -> int:
    """The buffers that are kept, of which the pool itself says only the bytes."""
    return len(pool._free)


def gathered(pool: BufferPool) -> list[int]:
    """The bytes that each request has so far, which only the pool knows."""
    return [waiter.gathered for waiter in pool._requests]


def queued(pool: BufferPool) -> list[int]:
    """The sizes of the requests that wait, in their order."""
    return [waiter.size for waiter in pool._requests]


def waiting(pool: BufferPool, count: int) -> None:
    wait_until(lambda: pool.waiting == count, f"{count} requests wait")


def blocked(pool: BufferPool, size: int, timeout: float = 1e6) -> Runner:
    """A thread that waits in `allocate`, after those that wait already."""
    before = pool.waiting
    runner = Runner(lambda: pool.allocate(size, timeout))
    waiting(pool, before + 1)
    return runner
