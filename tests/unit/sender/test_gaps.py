"""Answers about sequences and epochs, and errors that end the producer. Ids (tests/ids.md): SN10-SN34."""

from __future__ import annotations

import pytest

from spark_producer.common.error_codes import Action, Code
from spark_producer.errors import BrokerError, ConnectionFailed, UnsupportedVersion
from tests.fakes.sender_fakes import (
    TOPIC,
    answer_to,
    batches_of,
    first_letters,
    in_flight,
    metadata_of,
    sender_fakes,
    sent_in,
)

OUT_OF_ORDER, UNKNOWN_PRODUCER_ID = Code.OUT_OF_ORDER_SEQUENCE_NUMBER, Code.UNKNOWN_PRODUCER_ID
FINAL = [code for code in Code if code and not code.action & (Action.RETRY | Action.SUCCESS)]
FATAL = [code for code in FINAL if Action.FATAL in code.action]


@pytest.mark.covers("SN28", "SN29")
@pytest.mark.parametrize("code", FATAL)
def test_a_fatal_error_ends_an_idempotent_producer(code: int) -> None:
    made = sender_fakes()
    first, second = in_flight(made, b"a", b"b")
    made.complete(first, answer_to(first, code))
    assert isinstance(made.fakes.incomplete.error, BrokerError)
    step = made.step()
    assert (step.requests, step.wake_at) == ([], None)
    held = made.fakes.pool.total - made.fakes.pool.available
    made.complete(second, answer_to(second))
    assert held == 1024
    assert made.fakes.pool.available == made.fakes.pool.total, "the last buffer came back with its answer"


@pytest.mark.covers("SN28")
def test_without_idempotence_such_an_error_is_the_batchs_own() -> None:
    made = sender_fakes(idempotent=False)
    (outgoing,) = in_flight(made, b"a")
    made.complete(outgoing, answer_to(outgoing, 31))
    assert made.fakes.incomplete.error is None
    assert isinstance(made.error, BrokerError)


@pytest.mark.covers("SN14", "SN15")
def test_a_disconnect_sends_all_again_in_order_one_at_a_time_with_their_sequences() -> None:
    made = sender_fakes()
    requests = in_flight(made, b"a", b"b", b"c", b"d", b"e")
    before = [sent_in(request)[0] for request in requests]
    for request in requests:
        made.complete(request, error=ConnectionFailed("reset"))
    made.sender.on_disconnect()
    made.fakes.clock.advance(1)
    made.batches(b"f")
    made.learn(metadata_of({TOPIC: (1, 1, 2)}))
    after, together = [], []
    while not made.fakes.incomplete.idle:
        requests = made.produce()
        assert requests
        together.append(len(requests))
        after += [sent_in(request)[0] for request in requests]
        for request in requests:
            made.complete(request, answer_to(request))
    assert together == [1] * 6
    assert after[:5] == before
    assert after[5].header.base_sequence == 5


@pytest.mark.covers("SN18")
def test_out_of_order_after_a_failed_batch_is_retried_after_it() -> None:
    made = sender_fakes()
    first, second = in_flight(made, b"a", b"b")
    made.complete(first, answer_to(first, 19))
    made.complete(second, answer_to(second, OUT_OF_ORDER))
    assert made.error is None
    made.fakes.clock.advance(1)
    (again,) = made.produce()
    assert first_letters([again]) == "a"
    made.complete(again, answer_to(again))
    (again,) = made.produce()
    assert first_letters([again]) == "b"
    assert sent_in(again)[0].header.base_sequence == 1


@pytest.mark.covers("SN17")
def test_out_of_order_without_an_earlier_batch_begins_a_new_epoch() -> None:
    made = sender_fakes()
    first, second = in_flight(made, b"a", b"b")
    made.complete(first, answer_to(first))
    made.complete(second, answer_to(second, OUT_OF_ORDER))
    assert made.error is None
    made.fakes.clock.advance(1)
    (again,) = made.produce()
    (sent,) = sent_in(again)
    assert (sent.header[9:12], sent.values[0]) == ((77, 1, 0), b"b".ljust(900, b"."))
    made.complete(again, answer_to(again))
    assert made.fakes.incomplete.idle


@pytest.mark.covers("SN27")
@pytest.mark.parametrize(("log_start", "expected"), [(-1, (77, 0, 1)), (500, (77, 1, 0)), (50, (77, 1, 0))])
def test_a_forgotten_producer_sends_again_in_a_new_epoch_if_the_log_was_cut(
    log_start: int, expected: tuple[int, int, int]
) -> None:
    """Holds also if the acknowledged batch (offset 100) is still there; without a log start the broker is asked again."""
    made = sender_fakes()
    first, second = in_flight(made, b"a", b"b")
    made.complete(first, answer_to(first))
    made.complete(second, answer_to(second, UNKNOWN_PRODUCER_ID, log_start_offset=log_start))
    made.fakes.clock.advance(1)
    (again,) = made.produce()
    assert sent_in(again)[0].header[9:12] == expected


@pytest.mark.covers("SN27")
def test_batches_after_a_forgotten_one_follow_it_into_the_new_epoch() -> None:
    made = sender_fakes()
    requests = in_flight(made, b"a", b"b", b"c")
    for request in requests:
        made.complete(request, answer_to(request, UNKNOWN_PRODUCER_ID, log_start_offset=500))
    made.fakes.clock.advance(1)
    found = []
    while not made.fakes.incomplete.idle:
        (request,) = made.produce()
        found += [sent.header[9:12] for sent in sent_in(request)]
        made.complete(request, answer_to(request))
    assert found == [(77, 1, 0), (77, 1, 1), (77, 1, 2)]


@pytest.mark.covers("SN18")
def test_answers_in_another_order_are_taken_as_they_come() -> None:
    made = sender_fakes(leaders={TOPIC: (1, 2)})
    made.batches(b"a")
    made.batches(b"b", partition=1)
    first, second = made.produce()
    made.complete(second, answer_to(second))
    made.complete(first, answer_to(first))
    assert made.fakes.incomplete.idle


def test_a_new_leader_gets_nothing_before_the_former_one_has_answered() -> None:
    """Otherwise more than the five batches that brokers remember could be written and unacknowledged."""
    made = sender_fakes(leaders={TOPIC: (1, 1)})
    first, second = in_flight(made, b"a", b"b")
    made.batches(b"c")
    made.batches(b"x", partition=1)
    made.metadata.request_update()
    made.fakes.clock.advance(1)
    made.network.unready = {1}
    made.learn(metadata_of({TOPIC: (2, 2)}, epochs=1))
    assert first_letters(made.produce()) == "x", "a partition with nothing in flight moves at once"
    made.complete(first, answer_to(first))
    assert made.produce() == []
    made.complete(second, answer_to(second))
    (outgoing,) = made.produce()
    assert (outgoing.node, first_letters([outgoing])) == (2, "c")


@pytest.mark.covers("SN29")
def test_a_broker_without_the_version_ends_the_producer_at_once() -> None:
    made = sender_fakes(ready=False)
    made.metadata.request_topics(TOPIC)
    (question,) = made.step().requests
    made.complete(question, error=UnsupportedVersion("broker 1 has no common version of Metadata"))
    assert isinstance(made.fakes.incomplete.error, UnsupportedVersion)


@pytest.mark.covers("SN30")
def test_sequences_grow_by_records() -> None:
    made = sender_fakes(linger=0)
    made.fakes.append(b"1", b"2", b"3")
    first = batches_of(made.produce())
    made.fakes.append(b"4", b"5")
    second = batches_of(made.produce())
    made.fakes.append(b"6")
    third = batches_of(made.produce())
    assert [batch.base_sequence for batch in (*first, *second, *third)] == [0, 3, 5]
