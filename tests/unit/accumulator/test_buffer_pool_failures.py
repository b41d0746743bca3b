"""What ends a request for memory early, and that nothing is lost by it. Ids (tests/ids.md): BP."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

from spark_producer.accumulator import pool as buffer_pool
from spark_producer.accumulator.pool import BufferPool
from spark_producer.errors import ProducerClosed
from tests.stages.pool_bench import POOLABLE, TOTAL, blocked, free_buffers, pool_of
from tests.stages.workbench import FakeClock, Runner


class Interrupted(BaseException):
    """What a signal handler raises inside a wait."""


@pytest.fixture
def interruptible(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The conditions of all waiters, in order; set `interrupted` on one to raise from its wait."""
    made: list[Any] = []

    class Condition(threading.Condition):
        interrupted = False

        def wait(self, timeout: float | None = None) -> bool:
            woken = super().wait(timeout)
            if self.interrupted:
                raise Interrupted
            return woken

    class Waiter(buffer_pool._Waiter):
        def __init__(self, size: int, lock: threading.Lock) -> None:
            super().__init__(size, lock)
            self.changed = Condition(lock)
            made.append(self.changed)

    monkeypatch.setattr(buffer_pool, "_Waiter", Waiter)
    return made


def test_bp7_an_interrupted_wait_leaves_the_queue_and_wakes_the_next(interruptible: list[Any]) -> None:
    pool = pool_of()
    held = pool.allocate(900, 0)
    head, next_one = blocked(pool, 500), blocked(pool, 100)
    with pool._lock:
        interruptible[0].interrupted = True
        interruptible[0].notify()
    with pytest.raises(Interrupted):
        head.result()
    assert len(next_one.result()) == 100
    pool.release(held)
    assert pool.available == 900
    assert not pool.has_waiters


@pytest.mark.parametrize("size", [POOLABLE, 70])
def test_bp7_a_wait_interrupted_after_its_grant_gives_everything_back(interruptible: list[Any], size: int) -> None:
    pool = pool_of()
    held = [pool.allocate(POOLABLE, 0) for _ in range(10)]
    head, next_one = blocked(pool, size), blocked(pool, POOLABLE)
    interruptible[0].interrupted = True
    pool.release(held[0])
    with pytest.raises(Interrupted):
        head.result()
    assert len(next_one.result()) == POOLABLE
    assert (pool.available, free_buffers(pool)) == (0, 0)
    assert not pool.has_waiters


def test_bp8_an_exception_of_the_recorder_leaks_nothing() -> None:
    def refuse(seconds: float, exhausted: bool) -> None:
        raise ZeroDivisionError

    pool = BufferPool(TOTAL, POOLABLE, FakeClock(), refuse)
    held = pool.allocate(TOTAL, 0)
    granted, next_one = blocked(pool, 600), blocked(pool, 700)
    pool.release(held)
    for waiter in (granted, next_one):
        with pytest.raises(ZeroDivisionError):
            waiter.result()
    assert (pool.available, pool.waiting) == (TOTAL, 0)
    pool.allocate(TOTAL, 0)
    with pytest.raises(ZeroDivisionError):
        pool.allocate(1, 0)
    assert (pool.available, pool.waiting) == (0, 0)


@pytest.mark.parametrize("ask", ["allocate", "try_allocate"])
def test_bp11_memory_that_the_system_refuses_is_given_back(monkeypatch: pytest.MonkeyPatch, ask: str) -> None:
    pool = pool_of()
    held = pool.allocate(400, 0)
    reached, go_on = threading.Event(), threading.Event()

    def refuse(*_: object, **__: object) -> None:
        reached.set()
        assert go_on.wait(20)
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(np, "empty", refuse)
        unlucky = Runner(lambda: pool.allocate(600, 0) if ask == "allocate" else pool.try_allocate(600))
        assert reached.wait(20)
        patch.undo()
        waiter = blocked(pool, 500)
        go_on.set()
        with pytest.raises(MemoryError):
            unlucky.result()
    assert len(waiter.result()) == 500
    pool.release(held)
    assert pool.available == 500


def test_bp12_bp13_close_wakes_everybody_and_refuses_newcomers_but_takes_buffers_back() -> None:
    pool = pool_of()
    held = pool.allocate(TOTAL, 0)
    waiters = [blocked(pool, 100) for _ in range(3)]
    pool.close()
    for waiter in waiters:
        with pytest.raises(ProducerClosed, match="closed"):
            waiter.result()
    with pytest.raises(ProducerClosed):
        pool.allocate(1, 0)
    with pytest.raises(ProducerClosed):
        pool.try_allocate(1)
    pool.release(held)
    assert pool.available == TOTAL
    assert not pool.has_waiters


def test_a_closed_pool_keeps_no_memory() -> None:
    """Its producer may never be collected: workers freeze what their first task made."""
    pool = pool_of()
    kept, flying = pool.allocate(POOLABLE, 0), pool.allocate(POOLABLE, 0)
    pool.release(kept)
    assert free_buffers(pool) == 1
    pool.close()
    assert free_buffers(pool) == 0
    pool.release(flying)
    assert free_buffers(pool) == 0
    assert pool.available == TOTAL
