"""A thread that waits for memory gets it from healthy nodes while another node hangs; the I/O thread wakes up for it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from spark_producer.accumulator.in_flight_bytes import STALLED_AFTER, InFlightBytes
from spark_producer.common.cluster import TopicPartition
from tests.fakes.accumulator_fakes import NODE, OTHER, TP, AccumulatorFakes, OneLeader, Runner, accumulator_fakes
from tests.fakes.sender_fakes import TOPIC, answer_to, sender_fakes
from tests.support.waiting import wait_until

FULL = b"x" * 900
HUNG = 2
EPSILON = 1e-6


def starving(fakes: AccumulatorFakes, append: Callable[[], None]) -> Runner:
    """A thread that appends, and waits for memory."""
    appending = Runner(append)
    wait_until(lambda: fakes.pool.waiting > 0, "append waits for memory")
    return appending


def hanging(flying: int) -> AccumulatorFakes:
    """Return a pool of four batches: `flying` of `TP` are at the node that hangs, the others are open for the healthy one."""
    fakes = accumulator_fakes(memory=4096, batch_size=1024, linger=1000, max_block=1e6)
    fakes.leaders = OneLeader({TP: (HUNG, 0)})
    fakes.append(*[FULL] * flying)
    fakes.accumulator.close_full(TP, 1024)
    fakes.check()
    for _ in range(flying):
        assert len(fakes.drainer.drain(HUNG, 1 << 20, fakes.clock.now)) == 1
    for partition in range(1, 5 - flying):
        fakes.append(b"open", tp=TopicPartition("orders", partition))
    assert fakes.pool.available == 0
    return fakes


@pytest.mark.parametrize("flying", [1, 3])
def test_open_batches_of_healthy_nodes_are_hurried_once_a_node_has_not_answered_for_a_while(flying: int) -> None:
    fakes = hanging(flying)
    appending = starving(fakes, lambda: fakes.append(FULL, tp=TopicPartition("orders", 9)))
    check = fakes.check()
    assert check.nodes == [], "what flies to it may come back at any moment"
    stalled = fakes.clock.now + STALLED_AFTER
    assert check.next_time == pytest.approx(stalled)
    fakes.clock.now = stalled - EPSILON
    assert fakes.check().nodes == []
    fakes.clock.now = stalled
    check = fakes.check()
    assert check.nodes == [NODE]
    assert check.next_time is None, "there is nothing more to wake up for"
    fakes.complete(fakes.take(OTHER))
    appending.result()


def test_a_node_that_answers_counts_from_its_answer() -> None:
    fakes = hanging(2)
    first = fakes.queue().in_flight[0]
    fakes.clock.advance(STALLED_AFTER - EPSILON)
    fakes.complete(first)
    fakes.append(b"open", tp=TopicPartition("orders", 9))
    appending = starving(fakes, lambda: fakes.append(FULL, tp=TopicPartition("orders", 10)))
    assert fakes.check().nodes == []
    fakes.clock.advance(STALLED_AFTER - EPSILON)
    check = fakes.check()
    assert check.nodes == []
    assert check.next_time == pytest.approx(fakes.clock.now + EPSILON)
    fakes.clock.advance(EPSILON)
    assert fakes.check().nodes == [NODE]
    fakes.complete(fakes.take(OTHER))
    appending.result()


def test_the_linger_ends_before_if_it_is_shorter() -> None:
    fakes = accumulator_fakes(memory=2048, batch_size=1024, linger=STALLED_AFTER / 2, max_block=1e6)
    fakes.append(FULL, FULL)
    flying = fakes.take()
    appending = starving(fakes, lambda: fakes.append(FULL, tp=OTHER))
    assert fakes.next_time() == pytest.approx(fakes.clock.now + STALLED_AFTER / 2)
    fakes.complete(flying)
    appending.result()


def test_no_wakeup_for_a_node_while_no_thread_waits_for_memory() -> None:
    fakes = hanging(1)
    assert fakes.next_time() == pytest.approx(fakes.clock.now + 1000), "the linger of the open batches"


def test_the_sender_wakes_up_when_the_node_has_stalled_and_sends_to_the_others() -> None:
    made = sender_fakes(memory=4096, linger=1000, max_block=1e6, leaders={TOPIC: (HUNG, 1, 1, 1, 1)})
    made.batches(FULL)
    made.fakes.accumulator.close_full(TopicPartition(TOPIC, 0), 1024)
    (hung,) = made.produce()
    for partition in (1, 2, 3):
        made.fakes.append(b"open", tp=TopicPartition(TOPIC, partition))
    appending = starving(made.fakes, lambda: made.batches(FULL, partition=4))
    step = made.step()
    assert step.requests == []
    assert step.wake_at == pytest.approx(made.now + STALLED_AFTER)
    assert step.wake_at is not None
    made.fakes.clock.now = step.wake_at
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
