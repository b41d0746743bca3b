"""Recovery from a failure over several steps: other batches, another id, a close. Ids (tests/ids.md): SN9-SN32."""

from __future__ import annotations

from concurrent.futures import Future

import pytest

from spark_producer.accumulator import RecordMetadata
from spark_producer.errors import ConnectionFailed, ProducerClosed
from spark_producer.protocol import INIT_PRODUCER_ID
from spark_producer.sender.identity import LAST_EPOCH
from tests.fakes.sender_fakes import (
    BACKOFF,
    TOPIC,
    SenderFakes,
    answer_to,
    in_flight,
    metadata_of,
    sender_fakes,
    sent_in,
)

TOO_LARGE, NOT_AUTHORIZED, OUT_OF_ORDER, DUPLICATE = 10, 29, 45, 46


def stamps_until_idle(made: SenderFakes) -> list[tuple[int, int, int, int]]:
    """Return producer id, epoch, base sequence and records of all batches that are sent; each request is acknowledged alone."""
    found: list[tuple[int, int, int, int]] = []
    for _ in range(20):
        if made.fakes.incomplete.idle:
            return found
        for request in made.produce():
            found += [(*sent.header[9:12], sent.header.records_count) for sent in sent_in(request)]
            made.complete(request, answer_to(request))
    raise AssertionError("not idle after 20 rounds")


@pytest.mark.covers("SN9")
def test_a_node_that_takes_nothing_is_stalled_and_one_that_takes_something_is_not() -> None:
    made = sender_fakes(availability_timeout=0.1, leaders={TOPIC: (1, 2)})
    stalled = []
    for _ in range(3):
        made.batches(b"a")
        made.batches(b"b", partition=1)
        made.network.unready = {2}
        made.step()
        stalled.append(made.sender.stalled)
        made.fakes.clock.advance(0.06)
    assert stalled == [frozenset(), frozenset(), {2}], "ready for longer than the timeout, and nothing was drained"
    made.network.unready = set()
    made.step()
    assert made.sender.stalled == frozenset()


@pytest.mark.covers("SN10")
@pytest.mark.parametrize("keep_order", [False, True], ids=["five in flight", "one in flight"])
def test_the_id_comes_before_the_first_batch(keep_order: bool) -> None:
    made = sender_fakes(ready=False, keep_order=keep_order)
    made.metadata.request_topics(TOPIC)
    made.batches(b"a", b"b")
    made.learn(metadata_of({TOPIC: (1,)}))
    made.get_id(77, 3)
    assert stamps_until_idle(made) == [(77, 3, 0, 1), (77, 3, 1, 1)]


@pytest.mark.covers("SN11")
def test_a_node_that_is_not_ready_is_asked_for_the_id_when_it_is() -> None:
    made = sender_fakes(ready=False)
    made.metadata.request_topics(TOPIC)
    made.learn(metadata_of({TOPIC: (1,)}))
    made.batches(b"a")
    made.network.unready, made.network.pauses = {-1}, {-1: 0.4}
    step = made.step()
    assert step.requests == []
    assert step.wake_at == pytest.approx(made.now + 0.4)
    made.fakes.clock.advance(0.4)
    made.network.unready = set()
    (question,) = made.step().requests
    assert question.api is INIT_PRODUCER_ID
    made.complete(question, error=ConnectionFailed("reset"))
    assert made.step().wake_at == pytest.approx(made.now + BACKOFF)
    made.fakes.clock.advance(BACKOFF)
    made.get_id()
    assert stamps_until_idle(made) == [(77, 0, 0, 1)]


@pytest.mark.covers("SN16")
def test_batches_after_one_that_was_refused_for_good_follow_in_a_new_epoch() -> None:
    """Older Java clients shifted their sequences down instead."""
    made = sender_fakes()
    requests = in_flight(made, b"a", b"b", b"c")
    made.complete(requests[0], answer_to(requests[0], NOT_AUTHORIZED))
    for request in requests[1:]:
        made.complete(request, answer_to(request, OUT_OF_ORDER))
    made.fakes.clock.advance(1)
    assert stamps_until_idle(made) == [(77, 1, 0, 1), (77, 1, 1, 1)]


@pytest.mark.covers("SN18")
@pytest.mark.parametrize("code", [0, DUPLICATE])
def test_the_second_of_a_partition_may_succeed_first(code: int) -> None:
    """The first was written, or is written late: its sequence says which."""
    made = sender_fakes()
    first, second = in_flight(made, b"a", b"b")
    made.complete(second, answer_to(second))
    made.complete(first, error=ConnectionFailed("reset"))
    made.fakes.clock.advance(1)
    made.learn(metadata_of({TOPIC: (1, 1, 2)}))
    (again,) = made.produce()
    assert sent_in(again)[0].header[9:12] == (77, 0, 0)
    made.complete(again, answer_to(again, code))
    made.batches(b"c")
    assert stamps_until_idle(made) == [(77, 0, 2, 1)]
    assert made.error is None


def out_of_epochs() -> tuple[SenderFakes, Future[RecordMetadata]]:
    """A batch waits for another producer id: the one before it was lost in the last epoch."""
    made = sender_fakes(epoch=LAST_EPOCH)
    (lost,) = in_flight(made, b"a")
    future = made.fakes.append_one(b"b")
    (waiting,) = made.produce()
    made.complete(lost, answer_to(lost, NOT_AUTHORIZED))
    made.complete(waiting, answer_to(waiting, OUT_OF_ORDER))
    made.fakes.clock.advance(1)
    return made, future


@pytest.mark.covers("SN24")
def test_a_close_waits_for_the_new_id_and_what_follows() -> None:
    made, future = out_of_epochs()
    made.fakes.incomplete.begin_close()
    made.get_id(78, 0)
    assert stamps_until_idle(made) == [(78, 0, 0, 1)]
    assert future.result(0).offset == 100


@pytest.mark.covers("SN24")
def test_a_forced_close_does_not() -> None:
    made, future = out_of_epochs()
    made.fakes.accumulator.close(ProducerClosed("forced"))
    made.fakes.completion.abort(ProducerClosed("forced"))
    assert isinstance(future.exception(0), ProducerClosed)
    step = made.step()
    assert (step.requests, step.wake_at) == ([], None)
    assert made.fakes.pool.available == made.fakes.pool.total


@pytest.mark.covers("SN32")
def test_the_halves_of_a_batch_share_its_sequences_and_later_ones_wait() -> None:
    made = sender_fakes()
    made.fakes.append(*[b"%d" % number * 100 for number in range(5)])
    (outgoing,) = made.produce()
    made.fakes.append(b"after")
    made.complete(outgoing, answer_to(outgoing, TOO_LARGE))
    assert [stamp[2:] for stamp in stamps_until_idle(made)] in ([(0, 2), (2, 3), (5, 1)], [(0, 3), (3, 2), (5, 1)])
    assert made.error is None
    assert made.fakes.pool.available == made.fakes.pool.total
