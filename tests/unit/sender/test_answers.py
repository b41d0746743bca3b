"""What an answer does to its batches: success, retry, end. One table of error codes. Ids: spec §6, SN and RA."""

from __future__ import annotations

from concurrent.futures import Future

import pytest

from spark_producer.accumulator import RecordMetadata, TopicPartition
from spark_producer.accumulator.future import PendingRecord
from spark_producer.errors import (
    ERROR_CODES,
    Action,
    BrokerError,
    ConnectionFailed,
    DeliveryTimeout,
    KafkaTimeout,
    TopicNotFound,
    UnsupportedVersion,
)
from spark_producer.protocol import METADATA
from spark_producer.protocol.messages import BatchIndexAndErrorMessage, ProduceResponse
from spark_producer.sender import Outgoing
from tests.unit.sender.stage import (
    BACKOFF,
    TOPIC,
    Stage,
    answer_to,
    batches_of,
    first_letters,
    metadata_of,
    sent_in,
    stage,
)

NOT_LEADER, OUT_OF_ORDER, DUPLICATE = 6, 45, 46
RETRIED = [code for code, row in ERROR_CODES.items() if Action.RETRY in row.action and code != OUT_OF_ORDER]
REFUSED = [code for code, row in ERROR_CODES.items() if not row.action & (Action.RETRY | Action.SUCCESS) and code]


def in_flight(made: Stage, *values: bytes, partition: int = 0) -> list[Outgoing]:
    """One request for each value, sent and not yet answered."""
    made.batches(*values, partition=partition)
    requests = made.produce()
    assert len(requests) == len(values)
    return requests


@pytest.mark.parametrize("code", RETRIED)
def test_sn45_a_retriable_error_sends_the_same_batch_again_after_a_backoff(code: int) -> None:
    made = stage()
    (outgoing,) = in_flight(made, b"a")
    first = sent_in(outgoing)
    made.bench.clock.advance(1)
    made.complete(outgoing, answer_to(outgoing, code))
    assert made.error is None
    refresh = Action.REFRESH_METADATA in ERROR_CODES[code].action
    questions = [request for request in made.step().requests if request.api is METADATA]
    assert len(questions) == refresh
    for question in questions:
        made.complete(question, metadata_of({TOPIC: (2, 1, 2)}, epochs=1))
    assert made.step().wake_at == pytest.approx(made.now + BACKOFF)
    made.bench.clock.advance(BACKOFF)
    (again,) = made.produce()
    assert again.node == (2 if refresh else 1)
    assert sent_in(again) == first, "sequence, epoch and records stay what they were"
    made.complete(again, answer_to(again))
    assert made.bench.accumulator.idle
    assert made.sender.take_report().retries == 1


@pytest.mark.parametrize("code", [*REFUSED, 9999])
def test_a_final_error_ends_the_producer_and_says_what_where_and_what_to_do(code: int) -> None:
    made = stage()
    (outgoing,) = in_flight(made, b"a", partition=2)
    made.complete(outgoing, answer_to(outgoing, code, error_message="said so"))
    error = made.error
    assert isinstance(error, BrokerError)
    assert (error.code, error.topic, error.partition) == (code, TOPIC, 2)  # type: ignore[attr-defined]
    row = ERROR_CODES.get(code)
    name, advice = (row.name, row.advice) if row else ("UNKNOWN_ERROR_CODE_9999", "look into the broker's log")
    for part in (f"{name} ({code})", "1 records of", "topic 'orders', partition 2", "said so", advice):
        assert part in str(error)
    step = made.step()
    assert (step.requests, step.wake_at) == ([], None)


def test_a_topic_that_vanished_for_good_is_topic_not_found() -> None:
    made = stage(retries=0, idempotent=False)
    (outgoing,) = in_flight(made, b"a")
    made.complete(outgoing, answer_to(outgoing, 3))
    assert isinstance(made.error, TopicNotFound)


def test_sn35_the_complaint_about_a_record_is_told() -> None:
    made = stage()
    (outgoing,) = in_flight(made, b"a")
    complaint = (BatchIndexAndErrorMessage(0, "bad timestamp"),)
    made.complete(outgoing, answer_to(outgoing, 87, record_errors=complaint))
    assert "record 0 of the batch: bad timestamp" in str(made.error)


def test_sn26_a_duplicate_is_a_success_without_an_offset() -> None:
    made = stage()
    (outgoing,) = in_flight(made, b"a")
    made.complete(outgoing, answer_to(outgoing, DUPLICATE))
    assert made.error is None
    assert made.bench.accumulator.idle
    report = made.sender.take_report()
    assert (report.ranges, report.records) == ({}, 1)


def test_only_the_batch_that_failed_is_sent_again() -> None:
    made = stage(leaders={TOPIC: (1, 1, 1)})
    for partition, value in enumerate((b"a", b"b", b"c")):
        made.batches(value, partition=partition)
    (outgoing,) = made.produce()
    made.complete(outgoing, answer_to(outgoing, {1: 19}))
    made.bench.clock.advance(BACKOFF)
    (again,) = made.produce()
    assert first_letters([again]) == "b"


def test_an_answer_that_lacks_a_partition_is_no_answer_to_it() -> None:
    made = stage(leaders={TOPIC: (1, 1)})
    made.batches(b"a")
    made.batches(b"b", partition=1)
    (outgoing,) = made.produce()
    whole = answer_to(outgoing)
    made.complete(outgoing, ProduceResponse(whole.responses[:1]))
    answered = whole.responses[0].partition_responses[0].index
    made.bench.clock.advance(1)
    made.learn(metadata_of({TOPIC: (1, 1)}))
    (again,) = made.produce()
    assert [sent.place.partition for sent in sent_in(again)] == [1 - answered]


def test_sn4_retries_exhausted_ends_with_the_last_error() -> None:
    made = stage(retries=2)
    (outgoing,) = in_flight(made, b"a")
    for attempt in range(2):
        made.complete(outgoing, answer_to(outgoing, 19))
        assert made.error is None
        made.bench.clock.advance(BACKOFF * 2**attempt)
        (outgoing,) = made.produce()
    made.complete(outgoing, answer_to(outgoing, 19))
    assert "NOT_ENOUGH_REPLICAS (19)" in str(made.error)
    assert "attempt 3" in str(made.error)


def test_ra9_the_backoff_of_a_batch_doubles() -> None:
    made = stage()
    (outgoing,) = in_flight(made, b"a")
    pauses = []
    for _ in range(4):
        made.complete(outgoing, answer_to(outgoing, 19))
        wake_at = made.step().wake_at
        assert wake_at is not None
        pauses.append(wake_at - made.now)
        made.bench.clock.now = wake_at
        (outgoing,) = made.produce()
    assert pauses == pytest.approx([BACKOFF, 2 * BACKOFF, 4 * BACKOFF, 8 * BACKOFF])


@pytest.mark.parametrize(
    ("error", "name"),
    [(ConnectionFailed("reset by peer"), "NETWORK_EXCEPTION"), (KafkaTimeout("no answer"), "REQUEST_TIMED_OUT")],
)
def test_sn4_a_request_without_an_answer_is_sent_again_and_leaders_are_asked_for(
    error: ConnectionFailed | KafkaTimeout, name: str
) -> None:
    made = stage(retries=1)
    (outgoing,) = in_flight(made, b"a")
    made.bench.clock.advance(1)
    made.complete(outgoing, error=error)
    made.learn(metadata_of({TOPIC: (1, 1, 2)}))
    made.bench.clock.advance(BACKOFF)
    (again,) = made.produce()
    made.complete(again, error=error)
    assert name in str(made.error)
    assert str(error) in str(made.error)


def test_sn14_sn15_a_disconnect_sends_all_again_in_order_one_at_a_time_with_their_sequences() -> None:
    made = stage()
    requests = in_flight(made, b"a", b"b", b"c", b"d", b"e")
    before = [sent_in(request)[0] for request in requests]
    for request in requests:
        made.complete(request, error=ConnectionFailed("reset"))
    made.sender.on_disconnect()
    made.bench.clock.advance(1)
    made.batches(b"f")
    made.learn(metadata_of({TOPIC: (1, 1, 2)}))
    after, together = [], []
    while not made.bench.accumulator.idle:
        requests = made.produce()
        assert requests
        together.append(len(requests))
        after += [sent_in(request)[0] for request in requests]
        for request in requests:
            made.complete(request, answer_to(request))
    assert together == [1] * 6
    assert after[:5] == before
    assert after[5].header.base_sequence == 5


def test_sn18_out_of_order_behind_a_failed_batch_is_retried_behind_it() -> None:
    made = stage()
    first, second = in_flight(made, b"a", b"b")
    made.complete(first, answer_to(first, 19))
    made.complete(second, answer_to(second, OUT_OF_ORDER))
    assert made.error is None
    made.bench.clock.advance(1)
    (again,) = made.produce()
    assert first_letters([again]) == "a"
    made.complete(again, answer_to(again))
    (again,) = made.produce()
    assert first_letters([again]) == "b"
    assert sent_in(again)[0].header.base_sequence == 1


def test_sn17_out_of_order_without_an_earlier_batch_is_a_gap_and_final() -> None:
    made = stage()
    first, second = in_flight(made, b"a", b"b")
    made.complete(first, answer_to(first))
    made.complete(second, answer_to(second, OUT_OF_ORDER))
    assert "OUT_OF_ORDER_SEQUENCE_NUMBER (45)" in str(made.error)


def test_sn18_answers_in_another_order_are_taken_as_they_come() -> None:
    made = stage(leaders={TOPIC: (1, 2)})
    made.batches(b"a")
    made.batches(b"b", partition=1)
    first, second = made.produce()
    made.complete(second, answer_to(second))
    made.complete(first, answer_to(first))
    assert made.bench.accumulator.idle


def test_sn5_with_one_in_flight_order_survives_a_move_of_the_leader() -> None:
    made = stage(keep_order=True, leaders={TOPIC: (1,)})
    made.batches(b"a", b"b")
    (outgoing,) = made.produce()
    assert first_letters([outgoing]) == "a"
    made.bench.clock.advance(1)
    made.complete(outgoing, answer_to(outgoing, NOT_LEADER))
    made.learn(metadata_of({TOPIC: (2,)}, epochs=1))
    made.bench.clock.advance(BACKOFF)
    letters = ""
    for _ in range(2):
        (outgoing,) = made.produce()
        assert outgoing.node == 2
        letters += first_letters([outgoing])
        made.complete(outgoing, answer_to(outgoing))
    assert letters == "ab"


def test_a_new_leader_gets_nothing_before_the_former_one_has_answered() -> None:
    """Else more than the five batches that brokers remember could be written and unacknowledged."""
    made = stage(leaders={TOPIC: (1, 1)})
    first, second = in_flight(made, b"a", b"b")
    made.batches(b"c")
    made.batches(b"x", partition=1)
    made.metadata.request_update()
    made.bench.clock.advance(1)
    made.network.unready = {1}
    made.learn(metadata_of({TOPIC: (2, 2)}, epochs=1))
    assert first_letters(made.produce()) == "x", "a partition with nothing in flight moves at once"
    made.complete(first, answer_to(first))
    assert made.produce() == []
    made.complete(second, answer_to(second))
    (outgoing,) = made.produce()
    assert (outgoing.node, first_letters([outgoing])) == (2, "c")


def test_what_succeeded_in_an_answer_counts_though_another_batch_ends_the_producer() -> None:
    made = stage(leaders={TOPIC: (1, 1)})
    made.batches(b"a")
    made.batches(b"b", partition=1)
    futures: list[Future[RecordMetadata]] = [Future(), Future()]
    for partition, future in enumerate(futures):
        made.bench.append_one(b"+", PendingRecord(future, 0, 0), TopicPartition(TOPIC, partition))
    (outgoing,) = made.produce()
    made.complete(outgoing, answer_to(outgoing, {0: 29}))
    assert isinstance(futures[0].exception(0), BrokerError)
    assert futures[1].result(0).offset == 101
    assert made.sender.take_report().ranges == {(TOPIC, 1): (100, 101, 2)}


@pytest.mark.parametrize("codes", [{0: 29, 1: 19}, {0: 19, 1: 29}, {0: 29, 1: 17}])
def test_the_first_final_error_of_an_answer_stays_and_its_other_failures_are_harmless(codes: dict[int, int]) -> None:
    made = stage(leaders={TOPIC: (1, 1)})
    made.batches(b"a")
    made.batches(b"b", partition=1)
    (outgoing,) = made.produce()
    made.complete(outgoing, answer_to(outgoing, codes))
    assert isinstance(made.error, BrokerError)
    assert made.error.code in (29, 17)
    assert made.bench.accumulator.idle


@pytest.mark.parametrize("where", ["queued", "in flight", "waiting to be sent again"])
def test_ra24_sn19_sn34_a_batch_that_is_not_acknowledged_in_time_ends_the_producer(where: str) -> None:
    made = stage(delivery_timeout=120)
    made.network.unready = {1} if where == "queued" else set()
    made.batches(b"a")
    requests = made.produce()
    if where == "waiting to be sent again":
        made.complete(requests[0], answer_to(requests[0], 19))
    made.bench.clock.advance(119.9)
    if where == "in flight":
        assert made.step().wake_at == pytest.approx(made.now + 0.1)
    held = made.bench.pool.total - made.bench.pool.available
    made.bench.clock.advance(0.1)
    step = made.step()
    assert (step.requests, step.wake_at) == ([], None), "nothing that has expired is sent"
    assert isinstance(made.error, DeliveryTimeout)
    assert made.bench.pool.total - made.bench.pool.available == held, "the network may still read the buffers"
    for request in requests:
        made.complete(request, answer_to(request))  # late, and harmless


def test_sn29_a_broker_without_the_version_ends_the_producer_at_once() -> None:
    made = stage(ready=False)
    made.metadata.want(TOPIC)
    (question,) = made.step().requests
    made.complete(question, error=UnsupportedVersion("broker 1 has no common version of Metadata"))
    assert isinstance(made.error, UnsupportedVersion)


def test_sn46_after_the_end_answers_are_ignored() -> None:
    made = stage()
    first, second = in_flight(made, b"a", b"b")
    made.complete(first, answer_to(first, 29))
    reason = made.error
    made.complete(second, answer_to(second, 17))
    made.complete(first, error=ConnectionFailed("gone"))
    assert made.error is reason
    assert "TOPIC_AUTHORIZATION_FAILED" in str(reason)


def test_sn30_sequences_grow_by_records() -> None:
    made = stage(linger=0)
    made.bench.append(b"1", b"2", b"3")
    first = batches_of(made.produce())
    made.bench.append(b"4", b"5")
    second = batches_of(made.produce())
    made.bench.append(b"6")
    third = batches_of(made.produce())
    assert [batch.base_sequence for batch in (*first, *second, *third)] == [0, 3, 5]
