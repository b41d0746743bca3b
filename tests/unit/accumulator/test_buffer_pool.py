"""The buffer pool, one step at a time: sizes, reuse, refusals, waits. Ids: spec kafka_producer.md §6, BufferPool."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

from spark_producer.accumulator import buffer_pool
from spark_producer.accumulator.buffer_pool import BufferPool
from spark_producer.errors import BufferExhausted, KafkaTimeout, ProducerClosed, RecordTooLarge
from tests.unit.accumulator.workbench import FakeClock, Runner, until

TOTAL, POOLABLE = 1000, 100


def pool_of(total: int = TOTAL, poolable: int = POOLABLE) -> BufferPool:
    return BufferPool(total, poolable, FakeClock())


def free_buffers(pool: BufferPool) -> int:
    return len(pool._free)


def waiting(pool: BufferPool, count: int) -> None:
    until(lambda: len(pool._waiters) == count, f"{count} requests wait")


def blocked(pool: BufferPool, size: int, timeout: float = 1e6) -> Runner:
    """A thread that waits in `allocate`, behind those that wait already."""
    before = len(pool._waiters)
    runner = Runner(lambda: pool.allocate(size, timeout))
    waiting(pool, before + 1)
    return runner


def test_bp1_a_poolable_buffer_is_kept_and_handed_out_again() -> None:
    pool = pool_of()
    first = pool.allocate(POOLABLE, 0)
    assert (len(first), pool.available, free_buffers(pool)) == (100, 900, 0)
    pool.release(first)
    assert (pool.available, free_buffers(pool)) == (1000, 1)
    again = pool.allocate(POOLABLE, 0)
    assert again is first
    assert (pool.available, free_buffers(pool)) == (900, 0)


def test_bp1_a_buffer_of_another_size_is_not_kept() -> None:
    pool = pool_of()
    odd = pool.allocate(2 * POOLABLE, 0)
    assert (len(odd), pool.available, free_buffers(pool)) == (200, 800, 0)
    pool.release(odd)
    assert (pool.available, free_buffers(pool)) == (1000, 0)


def test_buffers_are_writable_bytes_and_do_not_overlap() -> None:
    pool = pool_of()
    first, second = pool.allocate(POOLABLE, 0), pool.allocate(POOLABLE, 0)
    first[:], second[:] = b"a" * 100, b"b" * 100
    assert (bytes(first), bytes(second)) == (b"a" * 100, b"b" * 100)
    assert (first.format, first.itemsize, first.readonly) == ("B", 1, False)


def test_free_buffers_make_room_for_a_request_of_another_size() -> None:
    pool = pool_of()
    for buffer in [pool.allocate(POOLABLE, 0) for _ in range(10)]:
        pool.release(buffer)
    assert free_buffers(pool) == 10
    pool.allocate(250, 0)
    assert pool.available == 750
    assert free_buffers(pool) == 7, "what is kept must lie within what is available"


def test_the_whole_pool_can_be_one_buffer() -> None:
    pool = pool_of()
    pool.release(pool.allocate(POOLABLE, 0))
    assert len(pool.allocate(TOTAL, 0)) == TOTAL
    assert (pool.available, free_buffers(pool)) == (0, 0)


def test_bp2_more_than_the_pool_is_refused_at_once() -> None:
    pool = pool_of()
    said = r"1001 bytes exceeds kafka\.buffer\.memory \(1000\)"
    with pytest.raises(RecordTooLarge, match=said):
        pool.allocate(TOTAL + 1, 1e6)
    with pytest.raises(RecordTooLarge, match=said):
        pool.try_allocate(TOTAL + 1)
    assert pool.available == TOTAL


def test_try_allocate_never_waits_and_never_overtakes() -> None:
    pool = pool_of()
    held = pool.allocate(900, 0)
    assert pool.try_allocate(200) is None
    head = blocked(pool, 500)
    assert pool.try_allocate(POOLABLE) is None, "there is room, but somebody waits"
    pool.release(held)
    assert len(head.result()) == 500
    assert pool.try_allocate(POOLABLE) is not None


def test_bp3_a_waiting_request_ends_with_a_release_and_takes_the_released_buffer() -> None:
    pool = pool_of()
    held = [pool.allocate(POOLABLE, 0) for _ in range(10)]
    waiter = blocked(pool, POOLABLE)
    assert pool.has_waiters
    pool.release(held[3])
    assert waiter.result() is held[3]
    assert not pool.has_waiters
    assert pool.available == 0


def test_a_large_request_waits_for_several_releases() -> None:
    pool = pool_of()
    held = [pool.allocate(POOLABLE, 0) for _ in range(10)]
    waiter = blocked(pool, 250)
    pool.release(held[0])
    pool.release(held[1])
    assert not waiter.done.is_set()
    pool.release(held[2])
    assert len(waiter.result()) == 250
    assert (pool.available, free_buffers(pool)) == (50, 0)


def test_the_oldest_request_is_served_first_and_a_small_one_does_not_overtake() -> None:
    pool = pool_of()
    held = [pool.allocate(POOLABLE, 0) for _ in range(10)]
    large, small = blocked(pool, 300), blocked(pool, 10)
    pool.release(held[0])
    pool.release(held[1])
    assert not small.done.is_set()
    pool.release(held[2])
    assert len(large.result()) == 300
    assert not small.done.is_set()
    pool.release(held[3])
    assert len(small.result()) == 10
    assert pool.available == 90


def test_one_release_serves_all_that_fit() -> None:
    pool = pool_of()
    held = pool.allocate(TOTAL, 0)
    waiters = [blocked(pool, size) for size in (100, 200, 300)]
    last = blocked(pool, 900)
    pool.release(held)
    assert [len(waiter.result()) for waiter in waiters] == [100, 200, 300]
    assert not last.done.is_set()
    assert pool.available == 400
    pool.close()
    with pytest.raises(ProducerClosed):
        last.result()


def test_bp4_bp5_bp6_an_exhausted_pool_times_out_and_nothing_is_left_behind() -> None:
    clock = FakeClock()
    pool = BufferPool(TOTAL, POOLABLE, clock)
    held = pool.allocate(950, 0)
    waiter = blocked(pool, 60, timeout=2.0)
    with pool._lock:
        clock.advance(1.999)
        looks = clock.calls
        pool._waiters[0].changed.notify()
    until(lambda: clock.calls > looks, "the waiter looks at the clock")
    assert not waiter.done.is_set()
    assert pool.has_waiters
    with pool._lock:
        clock.advance(0.002)
        pool._waiters[0].changed.notify()
    with pytest.raises(
        BufferExhausted, match=r"no 60 bytes .* 2\.000 s \(kafka\.max\.block\.ms\).* is 1000, 50 of it free"
    ):
        waiter.result()
    assert not pool.has_waiters
    assert pool.available == 50
    pool.release(held)
    assert pool.available == TOTAL


def test_a_timeout_lets_the_next_request_pass() -> None:
    pool = pool_of()
    held = pool.allocate(900, 0)
    head, next_one = blocked(pool, 500, timeout=1.0), blocked(pool, 100)
    clock = pool._clock
    assert isinstance(clock, FakeClock)
    with pool._lock:
        clock.advance(1.0)
        pool._waiters[0].changed.notify()
    with pytest.raises(BufferExhausted):
        head.result()
    assert len(next_one.result()) == 100
    pool.release(held)


def test_an_exhausted_pool_is_a_timeout_to_callers() -> None:
    assert issubclass(BufferExhausted, KafkaTimeout)
    pool = pool_of()
    pool.allocate(TOTAL, 0)
    with pytest.raises(BufferExhausted):
        pool.allocate(1, 0)


def test_ra30_the_longest_max_block_does_not_overflow() -> None:
    pool = pool_of()
    held = pool.allocate(TOTAL, 0)
    waiter = blocked(pool, 1, timeout=(2**63 - 1) / 1000)
    pool.release(held)
    assert len(waiter.result()) == 1


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


def test_bp10_sizes_beyond_32_bits_add_up() -> None:
    total = 20 * 1024**3
    pool = BufferPool(total, 2**31 - 1, FakeClock())
    buffers = [pool.allocate(2**31 - 1, 0) for _ in range(5)]
    assert pool.available == total - 5 * (2**31 - 1)
    for buffer in buffers:
        pool.release(buffer)
    assert (pool.available, free_buffers(pool)) == (total, 5)
    pool.allocate(total - 1, 0)
    assert (pool.available, free_buffers(pool)) == (1, 0)


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
