"""Failures that end a request for memory early lose no bytes. Ids (tests/ids.md): BP."""

from __future__ import annotations

import threading

import pytest

from spark_producer.accumulator.pool import BufferPool, new_memory
from spark_producer.errors import ProducerClosed
from tests.fakes.accumulator_fakes import Runner
from tests.fakes.fake_clock import FakeClock
from tests.fakes.pool_fakes import POOLABLE, TOTAL, Interrupted, Sleepers, blocked, free_buffers, pool_of


@pytest.mark.covers("BP7")
def test_an_interrupted_wait_leaves_the_queue_and_wakes_the_next() -> None:
    sleepers = Sleepers()
    pool = pool_of(sleepers=sleepers)
    held = pool.allocate(900, 0)
    head, next_one = blocked(pool, 500), blocked(pool, 100)
    with sleepers.lock:
        sleepers.beds[0].interrupted = True
        sleepers.beds[0].notify()
    with pytest.raises(Interrupted):
        head.result()
    assert len(next_one.result()) == 100
    pool.release(held)
    assert pool.available == 900
    assert pool.waiting == 0


@pytest.mark.covers("BP7")
@pytest.mark.parametrize("size", [POOLABLE, 70])
def test_a_wait_interrupted_after_its_grant_gives_everything_back(size: int) -> None:
    sleepers = Sleepers()
    pool = pool_of(sleepers=sleepers)
    held = [pool.allocate(POOLABLE, 0) for _ in range(10)]
    head, next_one = blocked(pool, size), blocked(pool, POOLABLE)
    sleepers.beds[0].interrupted = True
    pool.release(held[0])
    with pytest.raises(Interrupted):
        head.result()
    assert len(next_one.result()) == POOLABLE
    assert (pool.available, free_buffers(pool)) == (0, 0)
    assert pool.waiting == 0


@pytest.mark.covers("BP8")
def test_an_exception_of_the_recorder_leaks_nothing() -> None:
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


@pytest.mark.covers("BP11")
@pytest.mark.parametrize("ask", ["allocate", "try_allocate"])
def test_memory_that_the_system_refuses_is_given_back(ask: str) -> None:
    reached, go_on = threading.Event(), threading.Event()

    def memory(size: int) -> memoryview:
        if size != 600:
            return new_memory(size)
        reached.set()
        assert go_on.wait(20)
        raise MemoryError

    pool = pool_of(memory=memory)
    held = pool.allocate(400, 0)
    unlucky = Runner(lambda: pool.allocate(600, 0) if ask == "allocate" else pool.try_allocate(600))
    assert reached.wait(20)
    waiter = blocked(pool, 500)
    go_on.set()
    with pytest.raises(MemoryError):
        unlucky.result()
    assert len(waiter.result()) == 500
    pool.release(held)
    assert pool.available == 500


@pytest.mark.covers("BP12", "BP13")
def test_close_wakes_everybody_and_refuses_newcomers_but_takes_buffers_back() -> None:
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
    assert pool.waiting == 0


def test_a_closed_pool_keeps_no_memory() -> None:
    """A pool's producer may never be collected: workers freeze the objects of their first task."""
    pool = pool_of()
    kept, flying = pool.allocate(POOLABLE, 0), pool.allocate(POOLABLE, 0)
    pool.release(kept)
    assert free_buffers(pool) == 1
    pool.close()
    assert free_buffers(pool) == 0
    pool.release(flying)
    assert free_buffers(pool) == 0
    assert pool.available == TOTAL
