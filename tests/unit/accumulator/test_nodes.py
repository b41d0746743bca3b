"""Partitions, their leaders and their turns: what is looked at, and what is not. Ids: RA1, RA6, RA7, RA10, RA14."""

from __future__ import annotations

import threading

import pytest

from spark_producer.accumulator import BufferPool, PartitionQueue
from spark_producer.accumulator.readiness import Readiness
from spark_producer.common.cluster import TopicPartition
from spark_producer.errors import ProducerClosed
from tests.fakes.accumulator_fakes import NODE, OTHER, TP, Bench, OneLeader, Runner, values_of, workbench

FULL = b"x" * 900


def tp(partition: int) -> TopicPartition:
    return TopicPartition("orders", partition)


def drained(bench: Bench, node: int = NODE, max_bytes: int = 1 << 30) -> list[int]:
    bench.check()
    return [batch.topic_partition.partition for batch in bench.drainer.drain(node, max_bytes, bench.clock.now)]


def test_ra1_partitions_of_a_node_take_turns_and_each_gives_one_batch_at_a_time() -> None:
    bench = workbench(linger=0)
    for partition in range(4):
        bench.append(FULL, FULL, FULL, tp=tp(partition))
    assert [drained(bench, max_bytes=2000) for _ in range(6)] == [[0, 1], [2, 3], [0, 1], [2, 3], [0, 1], [2, 3]]
    assert drained(bench) == []


def test_ra1_each_node_gives_its_own_partitions() -> None:
    bench = workbench(linger=0)
    bench.leaders = OneLeader({tp(1): (2, 0), tp(3): (2, 0), tp(4): (-1, -1)})
    for partition in range(5):
        bench.append(FULL, tp=tp(partition))
    check = bench.check()
    assert (sorted(check.nodes), check.unknown_leaders) == ([1, 2], frozenset({tp(4).topic}))
    assert (drained(bench, 2), drained(bench, 1)) == ([1, 3], [0, 2])
    assert bench.check().nodes == []
    bench.leaders = OneLeader()
    assert not bench.check().unknown_leaders
    assert drained(bench) == [4]


def test_a_blocked_partition_does_not_starve_the_following_ones() -> None:
    """Java stops the node's drain at the first one that must wait."""
    bench = workbench(linger=0, keep_order=True)
    for partition in range(3):
        bench.append(FULL, FULL, tp=tp(partition))
    first = bench.take(tp(0))
    assert drained(bench) == [1, 2]
    bench.complete(first)
    assert drained(bench) == [0]


def test_a_listed_batch_that_must_wait_meanwhile_is_left_and_comes_back_with_the_answer() -> None:
    bench = workbench(linger=0)
    bench.append(FULL, FULL, FULL)
    first, second = bench.take(), bench.take()
    assert bench.ready() == [TP]
    first.retry_at = bench.clock.now + 1
    bench.completion.remove_in_flight(first)
    bench.completion.reenqueue(first)
    assert drained(bench) == [], "the head is now one that backs off"
    bench.clock.advance(1)
    assert drained(bench) == [0]
    bench.complete(second)
    assert drained(bench) == [], "new ones wait for what is sent again"
    bench.complete(first)
    assert drained(bench) == [0]


def test_ra10_a_newer_leader_epoch_ends_a_pause_once() -> None:
    bench = workbench(linger=0)
    bench.append(FULL)
    for epoch, ready in ((1, True), (1, False), (2, True)):
        batch = bench.try_take()
        if batch is None:
            bench.clock.advance(10)
            batch = bench.take()
        bench.put_back(batch, backoff=10)
        bench.leaders = OneLeader({TP: (NODE, epoch)})
        assert bool(bench.ready()) is ready


def test_ra28_a_script_of_retries_and_leader_epochs() -> None:
    """(epoch seen, ready at once) after each failed attempt."""
    bench = workbench(linger=0)
    bench.leaders = OneLeader({TP: (NODE, 5)})
    bench.append(FULL)
    for epoch, at_once in ((5, False), (6, True), (6, False), (9, True), (8, False)):
        if not bench.ready():
            bench.clock.advance(1)
        bench.put_back(bench.take(), backoff=1)
        bench.leaders = OneLeader({TP: (NODE, epoch)})
        assert bool(bench.ready()) is at_once, epoch


@pytest.fixture
def looked(monkeypatch: pytest.MonkeyPatch) -> list[TopicPartition]:
    """Every partition that is looked at. Patched, because what a look finds tells nothing of those in vain."""
    found: list[TopicPartition] = []
    consider = Readiness.consider

    def noted(self: Readiness, queue: PartitionQueue, now: float) -> None:
        found.append(queue.topic_partition)
        consider(self, queue, now)

    monkeypatch.setattr(Readiness, "consider", noted)
    return found


def test_idle_partitions_are_not_looked_at(looked: list[TopicPartition]) -> None:
    bench = workbench(linger=0, memory=1 << 22)
    for partition in range(500):
        bench.append(b"x", tp=tp(partition))
    for partition in drained(bench):
        bench.complete(bench.queue(tp(partition)).in_flight[0])
    looked.clear()
    bench.append(b"x", tp=tp(77))
    assert drained(bench) == [77]
    assert drained(bench) == []
    assert set(looked) == {tp(77)}
    assert len(looked) < 5


def test_partitions_that_linger_are_looked_at_once_when_their_time_comes(looked: list[TopicPartition]) -> None:
    bench = workbench(linger=1, memory=1 << 22)
    for partition in range(100):
        bench.append(b"x", tp=tp(partition))
    bench.check()
    looked.clear()
    for _ in range(50):
        bench.check()
    assert looked == []
    bench.clock.advance(1)
    assert len(bench.ready()) == 100
    assert len(looked) == 100


def test_ra2_a_batch_that_another_thread_opened_meanwhile_is_filled_first() -> None:
    """Internal fragmentation: two threads that both find no open batch must not leave one of them half empty."""
    both = threading.Barrier(2, timeout=20)

    class TogetherPool(BufferPool):
        def try_allocate(self, size: int) -> memoryview | None:
            both.wait()
            return super().try_allocate(size)

    bench = workbench(linger=1000, new_pool=TogetherPool)
    writers = [Runner(lambda value=value: bench.append(value)) for value in (b"one", b"two")]  # type: ignore[misc]
    for writer in writers:
        writer.result()
    bench.incomplete.begin_close()
    assert sorted(value or b"" for value in values_of(bench.take())) == [b"one", b"two"]
    assert bench.ready() == []
    assert bench.pool.total - bench.pool.available == 1024, "the second buffer went back"


def test_ra13_ra14_an_abort_ends_what_waits_and_leaves_what_flies_its_buffer() -> None:
    bench = workbench(linger=0)
    bench.append(FULL, FULL)
    flying = bench.take()
    bench.append(b"o", tp=OTHER)
    bench.completion.abort(ProducerClosed("closed"))
    assert bench.pool.total - bench.pool.available == 1024
    assert values_of(flying) == [FULL]
    bench.completion.remove_in_flight(flying)
    assert bench.pool.available == bench.pool.total
    assert (bench.incomplete.idle, bench.ready()) == (True, [])


def test_ra16_ra17_muted_full_and_backing_off_batches_expire_alike() -> None:
    bench = workbench(linger=0, keep_order=True, delivery_timeout=10)
    bench.append(FULL, FULL)
    bench.append(FULL, tp=OTHER)
    flying, backing_off = bench.take(), bench.take(OTHER)
    bench.put_back(backing_off, backoff=1000)
    bench.clock.advance(10)
    assert len(bench.expire()) == 3
    assert bench.incomplete.idle
    bench.completion.remove_in_flight(flying)
    assert bench.pool.available == bench.pool.total
    bench.append(b"goes on")
    assert bench.ready() == [TP]
