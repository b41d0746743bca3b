"""The write cache: slots, order, and the change of places under a writer and a reader."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from spark_producer.broker.storage.tiered.interfaces import ReadLimits
from spark_producer.broker.storage.tiered.ledgers import Ledger
from spark_producer.broker.storage.tiered.write_cache import WriteCache
from spark_producer.broker.storage.tiered.write_cache_half import SLOT_ALIGNMENT, CachedBatch, WriteCacheHalf

LEDGER = Ledger(0, 0, 0, 0)
ONE = ReadLimits(1_000_000, 0, at_least_one=True)


def cached(base: int, size: int = 10, count: int = 1) -> CachedBatch:
    return CachedBatch(base, base + count, 0, size, base * size, LEDGER)


def content(base: int, size: int = 10) -> bytes:
    return bytes([base % 251]) * size


def put(half: WriteCacheHalf, log_id: int, base: int, data: bytes | None = None, count: int = 1) -> memoryview | None:
    data = content(base) if data is None else data
    return half.put(log_id, cached(base, len(data), count), [data[:3], data[3:]])


@pytest.mark.covers("W4")
def test_a_batch_takes_the_place_of_one_with_its_offset() -> None:
    half = WriteCacheHalf(1024)
    put(half, 7, 0, b"older")
    put(half, 7, 0, b"newer!")
    (slot,) = half.slots(7)
    assert bytes(half.view(slot)) == b"newer!"
    assert (half.entries, half.bytes, half.used) == (1, 6, 2 * SLOT_ALIGNMENT)


@pytest.mark.covers("W5")
def test_batches_in_any_order_come_out_sorted_by_log_and_offset() -> None:
    half = WriteCacheHalf(4096)
    for log_id, base in [(2, 5), (1, 9), (2, 1), (1, 3), (2, 3)]:
        put(half, log_id, base)
    assert half.log_ids() == [1, 2]
    assert [slot.batch.base_offset for log_id in half.log_ids() for slot in half.slots(log_id)] == [3, 9, 1, 3, 5]


class Poor(list[Any]):
    """A list without memory for one more."""

    def insert(self, *_: object) -> None:
        raise MemoryError


@pytest.mark.parametrize("which", ["_slots", "_bases"])
def test_a_batch_for_which_there_is_no_memory_leaves_the_half_as_it_was(which: str) -> None:
    half = WriteCacheHalf(4096)
    put(half, 1, 0)
    before = getattr(half, which)[1]
    getattr(half, which)[1] = Poor(before)
    with pytest.raises(MemoryError):
        put(half, 1, 1)
    getattr(half, which)[1] = before
    assert (half.entries, half.bytes, half.used) == (1, 10, SLOT_ALIGNMENT)
    put(half, 1, 2)
    found = [half.find(1, offset) for offset in range(4)]
    assert [slot and slot.batch.base_offset for slot in found] == [0, None, 2, None]


def test_every_offset_of_a_batch_finds_it_and_no_other() -> None:
    half = WriteCacheHalf(4096)
    put(half, 1, 10, count=3)
    put(half, 1, 13, count=2)
    bases = [slot.batch.base_offset if (slot := half.find(1, offset)) else None for offset in range(9, 16)]
    assert bases == [None, 10, 10, 10, 13, 13, None]
    assert half.find(2, 10) is None


def test_batches_that_follow_each_other_are_returned_together() -> None:
    """Up to the limits of the reader, and to a gap."""
    half = WriteCacheHalf(4096)
    for base in (0, 1, 2, 3, 5):
        put(half, 1, base)

    def run(offset: int, wanted: ReadLimits) -> tuple[list[bytes], int] | None:
        found = half.read(1, offset, wanted)
        return None if found is None else ([bytes(view) for view in found[0]], found[1])

    assert run(1, ReadLimits(100, 1000)) == ([content(base) for base in (1, 2, 3)], 4)
    assert run(1, ReadLimits(3, 1000)) == ([content(1), content(2)], 3)
    assert run(1, ReadLimits(100, 29)) == ([content(1), content(2)], 3)
    assert run(1, ReadLimits(100, 9, at_least_one=True)) == ([content(1)], 2)
    assert run(1, ReadLimits(100, 9)) == ([], 1)
    assert run(4, ReadLimits(100, 1000)) is None


def test_a_half_is_full_at_its_last_byte_and_takes_small_batches_after_a_refusal() -> None:
    half = WriteCacheHalf(3 * SLOT_ALIGNMENT)
    assert put(half, 1, 0, bytes(SLOT_ALIGNMENT + 1)) is not None
    assert put(half, 1, 1, bytes(SLOT_ALIGNMENT + 1)) is None
    assert put(half, 1, 1, bytes(SLOT_ALIGNMENT)) is not None
    assert put(half, 1, 2, b"x") is None
    half.clear()
    assert put(half, 1, 0, bytes(half.size)) is not None


@pytest.mark.covers("W2", "RO2")
def test_swaps_under_a_writer_lose_nothing_and_a_reader_finds_everything() -> None:
    """One thread flushes all the time. Each batch is in a half, or in the dictionary that replaces the index."""
    write_cache: WriteCache[int] = WriteCache(SLOT_ALIGNMENT * 50, lambda: 0)
    flushed: dict[int, bytes] = {}
    written = threading.Event()

    def flush() -> None:
        while not written.is_set() or not write_cache.is_empty:
            if write_cache.flushing is not None or write_cache.swap():
                waiting = write_cache.flushing
                assert waiting is not None
                for _, slots in write_cache.contents():
                    flushed.update({slot.batch.base_offset: bytes(waiting[0].view(slot)) for slot in slots})
                write_cache.clear()

    thread = threading.Thread(target=flush)
    thread.start()
    for base in range(5000):
        while not write_cache.put(1, cached(base), [content(base)], lambda _: 1):
            continue
        for offset in (base, base // 2):
            found = write_cache.read(1, offset, ONE)
            assert (found.data if found is not None else flushed[offset]) == content(offset)
    written.set()
    thread.join(30)
    assert flushed == {base: content(base) for base in range(5000)}
