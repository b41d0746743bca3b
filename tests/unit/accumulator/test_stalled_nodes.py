"""Who waits for memory gets it from healthy nodes, whatever flies to one that hangs; and the I/O thread wakes up for it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from spark_producer.accumulator.in_flight_bytes import STALLED_AFTER, InFlightBytes
from spark_producer.common.cluster import TopicPartition
from tests.fakes.accumulator_fakes import NODE, OTHER, TP, Bench, OneLeader, Runner, workbench
from tests.fakes.sender_fakes import TOPIC, answer_to, stage
from tests.support.waiting import wait_until

FULL = b"x" * 900
HUNG = 2
EPSILON = 1e-6


def starving(bench: Bench, append: Callable[[], None]) -> Runner:
    """A thread that appends, and waits for memory."""
    appending = Runner(append)
    wait_until(lambda: bench.pool.waiting > 0, "append waits for memory")
    return appending


def hanging(flying: int) -> Bench:
    """A pool of four batches: so many of `TP` fly to the node that hangs, the others are open for the healthy one."""
    bench = workbench(memory=4096, batch_size=1024, linger=1000, max_block=1e6)
    bench.leaders = OneLeader({TP: (HUNG, 0)})
    bench.append(*[FULL] * flying)
    bench.accumulator.close_full(TP, 1024)
    bench.check()
    for _ in range(flying):
        assert len(bench.drainer.drain(HUNG, 1 << 20, bench.clock.now)) == 1
    for partition in range(1, 5 - flying):
        bench.append(b"open", tp=TopicPartition("orders", partition))
    assert bench.pool.available == 0
    return bench


@pytest.mark.parametrize("flying", [1, 3])
def test_open_batches_of_healthy_nodes_are_hurried_once_a_node_has_not_answered_for_a_while(flying: int) -> None:
    bench = hanging(flying)
    appending = starving(bench, lambda: bench.append(FULL, tp=TopicPartition("orders", 9)))
    check = bench.check()
    assert check.nodes == [], "what flies to it may come back at any moment"
    stalled = bench.clock.now + STALLED_AFTER
    assert check.next_time == pytest.approx(stalled)
    bench.clock.now = stalled - EPSILON
    assert bench.check().nodes == []
    bench.clock.now = stalled
    check = bench.check()
    assert check.nodes == [NODE]
    assert check.next_time is None, "there is nothing more to wake up for"
    bench.complete(bench.take(OTHER))
    appending.result()


def test_a_node_that_answers_counts_from_its_answer() -> None:
    bench = hanging(2)
    first = bench.queue().in_flight[0]
    bench.clock.advance(STALLED_AFTER - EPSILON)
    bench.complete(first)
    bench.append(b"open", tp=TopicPartition("orders", 9))
    appending = starving(bench, lambda: bench.append(FULL, tp=TopicPartition("orders", 10)))
    assert bench.check().nodes == []
    bench.clock.advance(STALLED_AFTER - EPSILON)
    check = bench.check()
    assert check.nodes == []
    assert check.next_time == pytest.approx(bench.clock.now + EPSILON)
    bench.clock.advance(EPSILON)
    assert bench.check().nodes == [NODE]
    bench.complete(bench.take(OTHER))
    appending.result()


def test_the_linger_ends_before_if_it_is_shorter() -> None:
    bench = workbench(memory=2048, batch_size=1024, linger=STALLED_AFTER / 2, max_block=1e6)
    bench.append(FULL, FULL)
    flying = bench.take()
    appending = starving(bench, lambda: bench.append(FULL, tp=OTHER))
    assert bench.next_time() == pytest.approx(bench.clock.now + STALLED_AFTER / 2)
    bench.complete(flying)
    appending.result()


def test_no_wakeup_for_a_node_while_no_thread_waits_for_memory() -> None:
    bench = hanging(1)
    assert bench.next_time() == pytest.approx(bench.clock.now + 1000), "the linger of the open batches"


def test_the_sender_wakes_up_when_the_node_has_stalled_and_sends_to_the_others() -> None:
    made = stage(memory=4096, linger=1000, max_block=1e6, leaders={TOPIC: (HUNG, 1, 1, 1, 1)})
    made.batches(FULL)
    made.bench.accumulator.close_full(TopicPartition(TOPIC, 0), 1024)
    (hung,) = made.produce()
    for partition in (1, 2, 3):
        made.bench.append(b"open", tp=TopicPartition(TOPIC, partition))
    appending = starving(made.bench, lambda: made.batches(FULL, partition=4))
    step = made.step()
    assert step.requests == []
    assert step.wake_at == pytest.approx(made.now + STALLED_AFTER)
    assert step.wake_at is not None
    made.bench.clock.now = step.wake_at
    (request,) = made.produce()
    assert (hung.node, request.node, len(request.batches)) == (HUNG, 1, 3)
    made.complete(request, answer_to(request))
    appending.result()


def test_flights_are_counted_by_node() -> None:
    flights = InFlightBytes()
    flights.add(1, 100, now=0.0)
    flights.add(2, 30, now=0.2)
    assert flights.expected(0.2) == (130, STALLED_AFTER)
    assert flights.expected(STALLED_AFTER) == (30, 0.2 + STALLED_AFTER)
    flights.add(1, 50, now=0.3)
    assert flights.expected(0.3) == (30, 0.2 + STALLED_AFTER), "more of the same is no sign of life"
    flights.remove(1, 100)
    assert flights.expected(1.0) == (50, 1.0 + STALLED_AFTER)
    flights.remove(1, 50)
    assert flights.expected(1.0) == (0, None)
    flights.add(1, 70, now=5.0)
    assert flights.expected(5.0) == (70, 5.0 + STALLED_AFTER), "a node without flights owed nothing"
    assert flights.size == 100
