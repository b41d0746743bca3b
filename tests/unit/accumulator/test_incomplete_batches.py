"""The state that all threads share: the ages of batches, and the rest of queues that were dropped."""

from __future__ import annotations

import pytest

from spark_producer.accumulator import ProducerIdAndEpoch
from spark_producer.accumulator.incomplete_batches import IncompleteBatches
from spark_producer.errors import ProducerClosed
from tests.fakes.accumulator_fakes import OTHER, TP, accumulator_fakes


def test_a_half_is_as_old_as_its_whole_and_comes_right_after_it() -> None:
    fakes = accumulator_fakes()
    fakes.append(b"a", b"b")
    fakes.append(b"c", tp=OTHER)
    fakes.incomplete.begin_close()
    first = fakes.take()
    fakes.split(first)
    ages = fakes.incomplete.remaining()
    assert [(batch.topic_partition, batch.number) for batch in ages] == [(TP, 0), (TP, 0), (OTHER, 1)]
    assert ages[0] is first, "a flush that waits for the oldest waits for both"
    expired = fakes.incomplete.expired(fakes.clock.now + 120)
    assert expired == ages


def test_sequences_of_a_queue_that_was_given_up_are_kept_for_their_identity_alone() -> None:
    fakes = accumulator_fakes()
    older, newer = ProducerIdAndEpoch(7, 0), ProducerIdAndEpoch(7, 1)
    fakes.drainer.current_identity = older
    for tp in (TP, OTHER):
        queue = fakes.incomplete.queue_of(tp)
        queue.begin(older)
        queue.next_sequence = 5
    fakes.drainer.forget({TP.topic})
    assert not fakes.incomplete.queues
    found = fakes.incomplete.queue_of(TP)
    assert (found.identity, found.next_sequence) == (older, 5)
    fakes.drainer.current_identity = newer
    found = fakes.incomplete.queue_of(OTHER)
    assert (found.identity is older, found.next_sequence) == (False, 0)


def test_a_producer_that_closes_takes_no_more_and_says_first_that_it_is_closed() -> None:
    fakes = accumulator_fakes()
    fakes.incomplete.check_open()
    fakes.incomplete.end(ValueError("what ended it"))
    with pytest.raises(ValueError, match="what ended it"):
        fakes.incomplete.check_open()
    fakes.incomplete.begin_close()
    with pytest.raises(ProducerClosed, match="this producer is closed"):
        fakes.incomplete.check_open()


def test_a_wait_for_memory_that_is_interrupted_as_it_begins_is_over() -> None:
    """Otherwise every batch would be ready, however few rows it has, until the producer is closed."""

    def interrupted() -> None:
        raise KeyboardInterrupt

    backlog = IncompleteBatches(delivery_timeout=120.0, clock=lambda: 0.0, wakeup=interrupted)
    with pytest.raises(KeyboardInterrupt), backlog.starve():
        pass
    assert backlog.starving == 0
