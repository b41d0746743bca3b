"""Partitions, their leaders and their turns: what is looked at, and what is not. Ids: RA1, RA6, RA7, RA10, RA14."""

from __future__ import annotations

import threading

import pytest

from spark_producer.accumulator import BufferPool, PartitionQueue
from spark_producer.accumulator.readiness import Readiness
from spark_producer.common.cluster import TopicPartition
from spark_producer.errors import ProducerClosed
from tests.fakes.accumulator_fakes import (
    NODE,
    OTHER,
    TP,
    AccumulatorFakes,
    OneLeader,
    Runner,
    accumulator_fakes,
    values_of,
)

FULL = b"x" * 900


def tp(partition: int) -> TopicPartition:
    return TopicPartition("orders", partition)


def drained(fakes: AccumulatorFakes, node: int = NODE, max_bytes: int = 1 << 30) -> list[int]:
    fakes.check()
    return [batch.topic_partition.partition for batch in fakes.drainer.drain(node, max_bytes, fakes.clock.now)]


@pytest.mark.covers("RA1")
def test_partitions_of_a_node_take_turns_and_each_gives_one_batch_at_a_time() -> None:
    fakes = accumulator_fakes(linger=0)
    for partition in range(4):
        fakes.append(FULL, FULL, FULL, tp=tp(partition))
    assert [drained(fakes, max_bytes=2000) for _ in range(6)] == [[0, 1], [2, 3], [0, 1], [2, 3], [0, 1], [2, 3]]
    assert drained(fakes) == []


@pytest.mark.covers("RA1")
def test_each_node_gives_its_own_partitions() -> None:
    fakes = accumulator_fakes(linger=0)
    fakes.leaders = OneLeader({tp(1): (2, 0), tp(3): (2, 0), tp(4): (-1, -1)})
    for partition in range(5):
        fakes.append(FULL, tp=tp(partition))
    check = fakes.check()
    assert (sorted(check.nodes), check.unknown_leaders) == ([1, 2], frozenset({tp(4).topic}))
    assert (drained(fakes, 2), drained(fakes, 1)) == ([1, 3], [0, 2])
    assert fakes.check().nodes == []
    fakes.leaders = OneLeader()
    assert not fakes.check().unknown_leaders
    assert drained(fakes) == [4]


def test_a_blocked_partition_does_not_starve_the_following_ones() -> None:
    """Java stops the node's drain at the first one that must wait."""
    fakes = accumulator_fakes(linger=0, keep_order=True)
    for partition in range(3):
        fakes.append(FULL, FULL, tp=tp(partition))
    first = fakes.take(tp(0))
    assert drained(fakes) == [1, 2]
    fakes.complete(first)
    assert drained(fakes) == [0]


def test_a_listed_batch_that_must_wait_meanwhile_is_left_and_comes_back_with_the_answer() -> None:
    fakes = accumulator_fakes(linger=0)
    fakes.append(FULL, FULL, FULL)
    first, second = fakes.take(), fakes.take()
    assert fakes.ready() == [TP]
    first.retry_at = fakes.clock.now + 1
    fakes.completion.remove_in_flight(first)
    fakes.completion.reenqueue(first)
    assert drained(fakes) == [], "the head is now one that backs off"
    fakes.clock.advance(1)
    assert drained(fakes) == [0]
    fakes.complete(second)
    assert drained(fakes) == [], "new ones wait for what is sent again"
    fakes.complete(first)
    assert drained(fakes) == [0]


@pytest.mark.covers("RA10")
def test_a_newer_leader_epoch_ends_a_pause_once() -> None:
    fakes = accumulator_fakes(linger=0)
    fakes.append(FULL)
    for epoch, ready in ((1, True), (1, False), (2, True)):
        batch = fakes.try_take()
        if batch is None:
            fakes.clock.advance(10)
            batch = fakes.take()
        fakes.put_back(batch, backoff=10)
        fakes.leaders = OneLeader({TP: (NODE, epoch)})
        assert bool(fakes.ready()) is ready


@pytest.mark.covers("RA28")
def test_a_script_of_retries_and_leader_epochs() -> None:
    """(epoch seen, ready at once) after each failed attempt."""
    fakes = accumulator_fakes(linger=0)
    fakes.leaders = OneLeader({TP: (NODE, 5)})
    fakes.append(FULL)
    for epoch, at_once in ((5, False), (6, True), (6, False), (9, True), (8, False)):
        if not fakes.ready():
            fakes.clock.advance(1)
        fakes.put_back(fakes.take(), backoff=1)
        fakes.leaders = OneLeader({TP: (NODE, epoch)})
        assert bool(fakes.ready()) is at_once, epoch


@pytest.fixture
def looked(monkeypatch: pytest.MonkeyPatch) -> list[TopicPartition]:
    """Return the list of all partitions that get examined. Patched, since an examination without a result has no other trace."""
    found: list[TopicPartition] = []
    consider = Readiness.consider

    def noted(self: Readiness, queue: PartitionQueue, now: float) -> None:
        found.append(queue.topic_partition)
        consider(self, queue, now)

    monkeypatch.setattr(Readiness, "consider", noted)
    return found


def test_idle_partitions_are_not_looked_at(looked: list[TopicPartition]) -> None:
    fakes = accumulator_fakes(linger=0, memory=1 << 22)
    for partition in range(500):
        fakes.append(b"x", tp=tp(partition))
    for partition in drained(fakes):
        fakes.complete(fakes.queue(tp(partition)).in_flight[0])
    looked.clear()
    fakes.append(b"x", tp=tp(77))
    assert drained(fakes) == [77]
    assert drained(fakes) == []
    assert set(looked) == {tp(77)}
    assert len(looked) < 5


def test_partitions_that_linger_are_looked_at_once_when_their_time_comes(looked: list[TopicPartition]) -> None:
    fakes = accumulator_fakes(linger=1, memory=1 << 22)
    for partition in range(100):
        fakes.append(b"x", tp=tp(partition))
    fakes.check()
    looked.clear()
    for _ in range(50):
        fakes.check()
    assert looked == []
    fakes.clock.advance(1)
    assert len(fakes.ready()) == 100
    assert len(looked) == 100


@pytest.mark.covers("RA2")
def test_a_batch_that_another_thread_opened_meanwhile_is_filled_first() -> None:
    """Internal fragmentation: two threads that both find no open batch must not leave one of them half empty."""
    both = threading.Barrier(2, timeout=20)

    class TogetherPool(BufferPool):
        def try_allocate(self, size: int) -> memoryview | None:
            both.wait()
            return super().try_allocate(size)

    fakes = accumulator_fakes(linger=1000, new_pool=TogetherPool)
    writers = [Runner(lambda value=value: fakes.append(value)) for value in (b"one", b"two")]  # type: ignore[misc]
    for writer in writers:
        writer.result()
    fakes.incomplete.begin_close()
    assert sorted(value or b"" for value in values_of(fakes.take())) == [b"one", b"two"]
    assert fakes.ready() == []
    assert fakes.pool.total - fakes.pool.available == 1024, "the second buffer went back"


@pytest.mark.covers("RA13", "RA14")
def test_an_abort_ends_what_waits_and_leaves_what_flies_its_buffer() -> None:
    fakes = accumulator_fakes(linger=0)
    fakes.append(FULL, FULL)
    flying = fakes.take()
    fakes.append(b"o", tp=OTHER)
    fakes.completion.abort(ProducerClosed("closed"))
    assert fakes.pool.total - fakes.pool.available == 1024
    assert values_of(flying) == [FULL]
    fakes.completion.remove_in_flight(flying)
    assert fakes.pool.available == fakes.pool.total
    assert (fakes.incomplete.idle, fakes.ready()) == (True, [])


@pytest.mark.covers("RA16", "RA17")
def test_muted_full_and_backing_off_batches_expire_alike() -> None:
    fakes = accumulator_fakes(linger=0, keep_order=True, delivery_timeout=10)
    fakes.append(FULL, FULL)
    fakes.append(FULL, tp=OTHER)
    flying, backing_off = fakes.take(), fakes.take(OTHER)
    fakes.put_back(backing_off, backoff=1000)
    fakes.clock.advance(10)
    assert len(fakes.expire()) == 3
    assert fakes.incomplete.idle
    fakes.completion.remove_in_flight(flying)
    assert fakes.pool.available == fakes.pool.total
    fakes.append(b"goes on")
    assert fakes.ready() == [TP]
