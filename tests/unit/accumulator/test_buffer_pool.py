"""The buffer pool, one step at a time: sizes, reuse, refusals, waits. Ids (tests/ids.md): BP."""

from __future__ import annotations

import socket
import time

import numpy as np
import pyarrow as pa
import pytest

from spark_producer.accumulator.pool import BufferPool
from spark_producer.errors import BufferExhausted, KafkaTimeout, ProducerClosed, PyProducerError, RecordTooLarge
from tests.fakes.fake_clock import FakeClock
from tests.fakes.pool_fakes import POOLABLE, TOTAL, Sleepers, blocked, free_buffers, gathered, pool_of
from tests.support.waiting import wait_until


@pytest.mark.covers("BP1")
def test_a_poolable_buffer_is_kept_and_handed_out_again() -> None:
    pool = pool_of()
    first = pool.allocate(POOLABLE, 0)
    assert (len(first), pool.available, free_buffers(pool)) == (100, 900, 0)
    pool.release(first)
    assert (pool.available, free_buffers(pool)) == (1000, 1)
    again = pool.allocate(POOLABLE, 0)
    assert again is first
    assert (pool.available, free_buffers(pool)) == (900, 0)


@pytest.mark.covers("BP1")
def test_a_buffer_of_another_size_is_not_kept() -> None:
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


def test_free_buffers_give_way_to_a_request_of_another_size() -> None:
    pool = pool_of()
    for buffer in [pool.allocate(POOLABLE, 0) for _ in range(10)]:
        pool.release(buffer)
    assert free_buffers(pool) == 10
    pool.allocate(250, 0)
    assert pool.available == 750
    assert free_buffers(pool) == 7, "what is kept must lie within what is available"


def test_the_buffer_that_came_back_last_goes_out_first_and_the_oldest_give_way() -> None:
    """The processor's caches hold the bytes of the last one."""
    pool = pool_of()
    buffers = [pool.allocate(POOLABLE, 0) for _ in range(3)]
    for buffer in buffers:
        pool.release(buffer)
    assert pool.allocate(POOLABLE, 0) is buffers[2]
    pool.release(buffers[2])
    pool.allocate(TOTAL - 2 * POOLABLE, 0)
    assert [pool.allocate(POOLABLE, 0) for _ in range(2)] == [buffers[2], buffers[1]]


def test_the_whole_pool_can_be_one_buffer() -> None:
    pool = pool_of()
    pool.release(pool.allocate(POOLABLE, 0))
    assert len(pool.allocate(TOTAL, 0)) == TOTAL
    assert (pool.available, free_buffers(pool)) == (0, 0)


@pytest.mark.covers("BP2")
def test_more_than_the_pool_is_refused_at_once() -> None:
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
    assert pool.try_allocate(POOLABLE) is None, "memory is free, but an earlier request waits"
    pool.release(held)
    assert len(head.result()) == 500
    assert pool.try_allocate(POOLABLE) is not None


@pytest.mark.covers("BP3")
def test_a_waiting_request_ends_with_a_release_and_takes_the_released_buffer() -> None:
    pool = pool_of()
    held = [pool.allocate(POOLABLE, 0) for _ in range(10)]
    waiter = blocked(pool, POOLABLE)
    assert pool.waiting == 1
    pool.release(held[3])
    assert waiter.result() is held[3]
    assert pool.waiting == 0
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
    assert (pool.available, gathered(pool)) == (0, [400])
    pool.close()
    with pytest.raises(ProducerClosed):
        last.result()
    assert pool.available == 400


def test_the_oldest_request_gathers_every_byte_that_comes_back() -> None:
    """Partial accumulation: while it waits it owns all free bytes, so no later request can take them."""
    pool = pool_of()
    held = [pool.allocate(POOLABLE, 0) for _ in range(9)]
    head, second = blocked(pool, 350), blocked(pool, 70)
    seen = []
    for buffer in held[:2]:
        seen.append((pool.available, gathered(pool), pool.waiting))
        pool.release(buffer)
    assert seen == [(0, [100, 0], 2), (0, [200, 0], 2)]
    assert pool.try_allocate(1) is None
    pool.release(held[2])
    assert len(head.result()) == 350
    assert (pool.available, pool.waiting) == (0, 1), "the rest, 50 of 100, went to the next"
    pool.release(held[3])
    assert len(second.result()) == 70
    assert (pool.available, free_buffers(pool)) == (80, 0)


def test_what_was_gathered_goes_to_the_next_when_a_kept_buffer_comes() -> None:
    """Otherwise an odd rest of the memory would cost a new buffer at every wait."""
    pool = pool_of(total=230)
    held = [pool.allocate(POOLABLE, 0) for _ in range(2)]
    head, second = blocked(pool, POOLABLE), blocked(pool, 30)
    assert gathered(pool) == [30, 0]
    pool.release(held[0])
    assert head.result() is held[0]
    assert len(second.result()) == 30
    assert pool.available == 0


@pytest.mark.covers("BP5")
def test_a_wait_lasts_as_long_as_it_may_on_a_real_clock() -> None:
    pool = BufferPool(TOTAL, POOLABLE, time.monotonic)
    pool.allocate(TOTAL, 0)
    began = time.monotonic()
    with pytest.raises(BufferExhausted):
        pool.allocate(1, 0.03)
    assert time.monotonic() - began >= 0.03


@pytest.mark.covers("BP4")
def test_every_wait_is_recorded_with_its_seconds_and_its_end() -> None:
    clock, sleepers, waits = FakeClock(), Sleepers(), []
    pool = BufferPool(TOTAL, POOLABLE, clock, lambda *wait: waits.append(wait), monitor=sleepers.monitor())
    held = pool.allocate(TOTAL, 0)
    with pytest.raises(BufferExhausted):
        pool.allocate(1, 0)
    waiter = blocked(pool, 5)
    with sleepers.lock:
        clock.advance(0.25)
    pool.release(held)
    waiter.result()
    pool.allocate(5, 0)
    assert waits == [(0, True), (0.25, False)], "and what need not wait is not recorded"


def test_a_buffer_comes_back_whole_once_and_to_its_own_pool() -> None:
    pool, other = pool_of(), pool_of()
    buffer = pool.allocate(POOLABLE, 0)
    for foreign in (buffer[:50], buffer[:], other.allocate(POOLABLE, 0), memoryview(bytearray(POOLABLE))):
        with pytest.raises(PyProducerError, match=r"(100|50) bytes"):
            pool.release(foreign)
    pool.release(buffer)
    with pytest.raises(PyProducerError, match=r"a buffer of 100 bytes was released twice"):
        pool.release(buffer)
    assert (pool.available, free_buffers(pool)) == (TOTAL, 1)


@pytest.mark.parametrize("size", [0, -1])
def test_a_buffer_has_at_least_one_byte(size: int) -> None:
    with pytest.raises(PyProducerError, match="at least 1"):
        pool_of().allocate(size, 0)


def test_a_lost_byte_is_seen_at_once() -> None:
    """The assertion that guards every step: bytes held + available = total."""
    pool = pool_of()
    pool._unpooled -= 1  # no call of a caller loses one
    with pytest.raises(AssertionError):
        pool.allocate(1, 0)


def test_numpy_pyarrow_and_sendmsg_use_a_buffer_without_a_copy() -> None:
    buffer = pool_of().allocate(POOLABLE, 0)
    array = np.frombuffer(buffer, dtype=np.uint8)
    array[:] = np.arange(100)
    assert array.flags.writeable
    assert bytes(buffer[:3]) == b"\0\1\2"
    arrow = pa.py_buffer(buffer)
    assert (arrow.address, arrow.size, arrow.is_mutable) == (array.ctypes.data, 100, True)
    left, right = socket.socketpair()
    with left, right:
        assert left.sendmsg([buffer[10:20], buffer[90:]]) == 20
        assert right.recv_into(buffer, 20) == 20
    assert bytes(array[:20]) == bytes(range(10, 20)) + bytes(range(90, 100))


@pytest.mark.covers("BP4", "BP5", "BP6")
def test_an_exhausted_pool_times_out_and_nothing_is_left() -> None:
    clock, sleepers = FakeClock(), Sleepers()
    pool = pool_of(clock=clock, sleepers=sleepers)
    held = pool.allocate(950, 0)
    waiter = blocked(pool, 60, timeout=2.0)
    with sleepers.lock:
        clock.advance(1.999)
        looks = clock.calls
        sleepers.beds[0].notify()
    wait_until(lambda: clock.calls > looks, "the waiter looks at the clock")
    assert not waiter.done.is_set()
    assert pool.waiting == 1
    with sleepers.lock:
        clock.advance(0.002)
        sleepers.beds[0].notify()
    with pytest.raises(
        BufferExhausted,
        match=r"60 bytes .* 2\.000 s \(kafka\.max\.block\.ms\).* is 1000, 50 of it free.* 0 more requests wait",
    ):
        waiter.result()
    assert pool.waiting == 0
    assert pool.available == 50
    pool.release(held)
    assert pool.available == TOTAL


def test_a_timeout_lets_the_next_request_pass() -> None:
    clock, sleepers = FakeClock(), Sleepers()
    pool = pool_of(clock=clock, sleepers=sleepers)
    held = pool.allocate(900, 0)
    head, next_one = blocked(pool, 500, timeout=1.0), blocked(pool, 100)
    with sleepers.lock:
        clock.advance(1.0)
        sleepers.beds[0].notify()
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


@pytest.mark.covers("RA30")
def test_the_longest_max_block_does_not_overflow() -> None:
    pool = pool_of()
    held = pool.allocate(TOTAL, 0)
    waiter = blocked(pool, 1, timeout=(2**63 - 1) / 1000)
    pool.release(held)
    assert len(waiter.result()) == 1


@pytest.mark.covers("BP10")
def test_sizes_beyond_32_bits_add_up() -> None:
    total = 20 * 1024**3
    pool = BufferPool(total, 2**31 - 1, FakeClock())
    buffers = [pool.allocate(2**31 - 1, 0) for _ in range(5)]
    assert pool.available == total - 5 * (2**31 - 1)
    for buffer in buffers:
        pool.release(buffer)
    assert (pool.available, free_buffers(pool)) == (total, 5)
    pool.allocate(total - 1, 0)
    assert (pool.available, free_buffers(pool)) == (1, 0)
