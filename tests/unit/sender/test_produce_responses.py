"""The effect of a response on its batches: success, retry, end. One table of error codes. Ids (tests/ids.md): SN and RA."""

from __future__ import annotations

import pytest

from spark_producer.common.cluster import Node, TopicPartition
from spark_producer.common.error_codes import Action, Code
from spark_producer.errors import BrokerError, ConnectionFailed, KafkaTimeout, RecordsRefused, TopicNotFound
from spark_producer.protocol import METADATA
from spark_producer.protocol.messages import BatchIndexAndErrorMessage, LeaderIdAndEpoch, NodeEndpoint, ProduceResponse
from tests.fakes.sender_fakes import (
    BACKOFF,
    TOPIC,
    answer_to,
    first_letters,
    in_flight,
    metadata_of,
    sender_fakes,
    sent_in,
)

NOT_LEADER, OUT_OF_ORDER, DUPLICATE, UNKNOWN_PRODUCER_ID, FENCED = 6, 45, 46, 59, 74
RETRIED = [code for code in Code if Action.RETRY in code.action and code != OUT_OF_ORDER]
FINAL = [code for code in Code if code and not code.action & (Action.RETRY | Action.SUCCESS)]
REFUSED = [code for code in FINAL if Action.FATAL not in code.action and code != UNKNOWN_PRODUCER_ID]
FATAL = [code for code in FINAL if Action.FATAL in code.action]


@pytest.mark.covers("SN45")
@pytest.mark.parametrize("code", RETRIED)
def test_a_retriable_error_sends_the_same_batch_again_after_a_backoff(code: int) -> None:
    made = sender_fakes()
    (outgoing,) = in_flight(made, b"a")
    first = sent_in(outgoing)
    made.fakes.clock.advance(1)
    made.complete(outgoing, answer_to(outgoing, code))
    assert made.error is None
    refresh = Action.REFRESH_METADATA in Code(code).action
    questions = [request for request in made.step().requests if request.api is METADATA]
    assert len(questions) == refresh
    for question in questions:
        made.complete(question, metadata_of({TOPIC: (2, 1, 2)}))
    assert made.step().wake_at == pytest.approx(made.now + BACKOFF)
    made.fakes.clock.advance(BACKOFF)
    (again,) = made.produce()
    assert again.node == (2 if refresh else 1)
    assert sent_in(again) == first, "sequence, epoch and records stay what they were"
    made.complete(again, answer_to(again))
    assert made.fakes.incomplete.idle
    assert made.sender.take_report().retries == 1


def test_an_error_says_how_many_records_it_is_about() -> None:
    made = sender_fakes()
    for _ in range(2):
        made.fakes.append_one(b"a", tp=TopicPartition(TOPIC, 2))
    (outgoing,) = made.produce()
    made.complete(outgoing, answer_to(outgoing, 29))
    with pytest.raises(BrokerError, match=r"TOPIC_AUTHORIZATION_FAILED \(29\) for 2 records of \d+ bytes"):
        made.fakes.accumulator.flush()


@pytest.mark.covers("SN44")
@pytest.mark.parametrize("code", [*REFUSED, 9999])
def test_a_final_error_fails_the_batch_alone_and_says_what_where_and_what_to_do(code: int) -> None:
    made = sender_fakes()
    future = made.fakes.append_one(b"a", tp=TopicPartition(TOPIC, 2))
    (outgoing,) = made.produce()
    made.complete(outgoing, answer_to(outgoing, code, error_message="said so"))
    error = future.exception(0)
    assert isinstance(error, BrokerError)
    assert (error.code, error.topic, error.partition) == (code, TOPIC, 2)  # type: ignore[attr-defined]
    known = code in Code.__members__.values()
    name, advice = (
        (Code(code).name, Code(code).advice) if known else ("UNKNOWN_ERROR_CODE_9999", "see the broker's log")
    )
    for part in (f"{name} ({code})", "a record of", "topic 'orders', partition 2", "said so", advice):
        assert part in str(error)
    assert made.fakes.incomplete.error is None
    assert made.fakes.pool.available == made.fakes.pool.total
    with pytest.raises(BrokerError) as raised:
        made.fakes.accumulator.flush()
    assert raised.value is error
    made.fakes.accumulator.flush()
    made.batches(b"b", partition=2)
    (outgoing,) = made.produce()
    (sent,) = sent_in(outgoing)
    assert sent.header[9:12] == (77, 1, 0), "a new epoch, since the sequence of the lost batch is missing"
    made.complete(outgoing, answer_to(outgoing))
    assert made.error is None


def test_a_topic_that_vanished_for_good_is_topic_not_found() -> None:
    made = sender_fakes(retries=0, idempotent=False)
    (outgoing,) = in_flight(made, b"a")
    made.complete(outgoing, answer_to(outgoing, 3))
    assert isinstance(made.error, TopicNotFound)


@pytest.mark.covers("SN35")
def test_the_error_message_about_a_record_is_reported() -> None:
    made = sender_fakes()
    (outgoing,) = in_flight(made, b"a")
    complaint = (BatchIndexAndErrorMessage(0, "bad timestamp"),)
    made.complete(outgoing, answer_to(outgoing, 87, record_errors=complaint))
    assert "record 0 of the batch: bad timestamp" in str(made.error)


@pytest.mark.covers("SN26")
def test_a_duplicate_is_a_success_without_an_offset() -> None:
    made = sender_fakes()
    (outgoing,) = in_flight(made, b"a")
    made.complete(outgoing, answer_to(outgoing, DUPLICATE))
    assert made.error is None
    assert made.fakes.incomplete.idle
    report = made.sender.take_report()
    assert (report.ranges, report.records) == ({}, 1)


def test_only_the_batch_that_failed_is_sent_again() -> None:
    made = sender_fakes(leaders={TOPIC: (1, 1, 1)})
    for partition, value in enumerate((b"a", b"b", b"c")):
        made.batches(value, partition=partition)
    (outgoing,) = made.produce()
    made.complete(outgoing, answer_to(outgoing, {1: 19}))
    made.fakes.clock.advance(BACKOFF)
    (again,) = made.produce()
    assert first_letters([again]) == "b"


def test_an_answer_that_lacks_a_partition_is_no_answer_to_it() -> None:
    made = sender_fakes(leaders={TOPIC: (1, 1)})
    made.batches(b"a")
    made.batches(b"b", partition=1)
    (outgoing,) = made.produce()
    whole = answer_to(outgoing)
    made.complete(outgoing, ProduceResponse(whole.responses[:1]))
    answered = whole.responses[0].partition_responses[0].index
    made.fakes.clock.advance(1)
    made.learn(metadata_of({TOPIC: (1, 1)}))
    (again,) = made.produce()
    assert [sent.tp.partition for sent in sent_in(again)] == [1 - answered]


@pytest.mark.covers("SN4")
def test_retries_exhausted_ends_with_the_last_error() -> None:
    made = sender_fakes(retries=2)
    (outgoing,) = in_flight(made, b"a")
    for attempt in range(2):
        made.complete(outgoing, answer_to(outgoing, 19))
        assert made.error is None
        made.fakes.clock.advance(BACKOFF * 2**attempt)
        (outgoing,) = made.produce()
    made.complete(outgoing, answer_to(outgoing, 19))
    assert "NOT_ENOUGH_REPLICAS (19)" in str(made.error)
    assert "attempt 3" in str(made.error)


@pytest.mark.covers("RA9")
def test_the_backoff_of_a_batch_doubles() -> None:
    made = sender_fakes()
    (outgoing,) = in_flight(made, b"a")
    pauses = []
    for _ in range(4):
        made.complete(outgoing, answer_to(outgoing, 19))
        wake_at = made.step().wake_at
        assert wake_at is not None
        pauses.append(wake_at - made.now)
        made.fakes.clock.now = wake_at
        (outgoing,) = made.produce()
    assert pauses == pytest.approx([BACKOFF, 2 * BACKOFF, 4 * BACKOFF, 8 * BACKOFF])


@pytest.mark.covers("SN4")
@pytest.mark.parametrize(
    ("error", "name"),
    [(ConnectionFailed("reset by peer"), "NETWORK_EXCEPTION"), (KafkaTimeout("no answer"), "REQUEST_TIMED_OUT")],
)
def test_a_request_without_an_answer_is_sent_again_and_leaders_are_asked_for(
    error: ConnectionFailed | KafkaTimeout, name: str
) -> None:
    made = sender_fakes(retries=1)
    (outgoing,) = in_flight(made, b"a")
    made.fakes.clock.advance(1)
    made.complete(outgoing, error=error)
    made.learn(metadata_of({TOPIC: (1, 1, 2)}))
    made.fakes.clock.advance(BACKOFF)
    (again,) = made.produce()
    made.complete(again, error=error)
    assert name in str(made.error)
    assert str(error) in str(made.error)


@pytest.mark.covers("SN5")
def test_with_one_in_flight_order_survives_a_move_of_the_leader() -> None:
    made = sender_fakes(keep_order=True, leaders={TOPIC: (1,)})
    made.batches(b"a", b"b")
    (outgoing,) = made.produce()
    assert first_letters([outgoing]) == "a"
    made.fakes.clock.advance(1)
    made.complete(outgoing, answer_to(outgoing, NOT_LEADER))
    made.learn(metadata_of({TOPIC: (2,)}, epochs=1))
    made.fakes.clock.advance(BACKOFF)
    letters = ""
    for _ in range(2):
        (outgoing,) = made.produce()
        assert outgoing.node == 2
        letters += first_letters([outgoing])
        made.complete(outgoing, answer_to(outgoing))
    assert letters == "ab"


def test_what_succeeded_in_an_answer_counts_though_another_batch_failed() -> None:
    made = sender_fakes(leaders={TOPIC: (1, 1)})
    made.batches(b"a")
    made.batches(b"b", partition=1)
    futures = [made.fakes.append_one(b"+", tp=TopicPartition(TOPIC, partition)) for partition in range(2)]
    (outgoing,) = made.produce()
    made.complete(outgoing, answer_to(outgoing, {0: 29}))
    assert isinstance(futures[0].exception(0), BrokerError)
    assert futures[1].result(0).offset == 101
    assert made.sender.take_report().ranges == {(TOPIC, 1): (100, 101, 2)}


@pytest.mark.parametrize(("codes", "first"), [({0: 29, 1: 19}, 29), ({0: 19, 1: 29}, 29), ({0: 29, 1: 17}, 29)])
def test_the_first_failure_is_what_a_flush_raises(codes: dict[int, int], first: int) -> None:
    made = sender_fakes(leaders={TOPIC: (1, 1)})
    made.batches(b"a")
    made.batches(b"b", partition=1)
    (outgoing,) = made.produce()
    made.complete(outgoing, answer_to(outgoing, codes))
    assert isinstance(made.error, BrokerError)
    assert made.error.code == first


@pytest.mark.covers("RA10", "PB11", "SN48")
def test_a_leader_of_a_newer_epoch_gets_the_batch_without_a_pause() -> None:
    made = sender_fakes()
    (outgoing,) = in_flight(made, b"a")
    made.fakes.clock.advance(1)
    made.complete(outgoing, answer_to(outgoing, NOT_LEADER))
    assert made.fakes.ready() == [], "without news it backs off"
    made.learn(metadata_of({TOPIC: (2, 1, 2)}, epochs=1))
    (again,) = made.produce()
    assert again.node == 2
    made.fakes.clock.advance(1)
    made.complete(again, answer_to(again, NOT_LEADER))
    made.learn(metadata_of({TOPIC: (2, 1, 2)}, epochs=1))
    assert made.produce() == [], "the same epoch again: it backs off"


def hint(leader: int, epoch: int) -> LeaderIdAndEpoch:
    return LeaderIdAndEpoch(leader, epoch)


@pytest.mark.covers("SN48", "MT7")
@pytest.mark.parametrize(("code", "reported"), [(NOT_LEADER, True), (FENCED, True), (19, False), (3, False)])
def test_a_refusal_that_names_the_leader_sends_the_batch_there_at_once(code: int, reported: bool) -> None:
    """KIP-951; the endpoint of a node that metadata does not know comes with the answer."""
    made = sender_fakes()
    (outgoing,) = in_flight(made, b"a")
    made.fakes.clock.advance(1)
    answer = answer_to(outgoing, code, current_leader=hint(7, 4))
    made.complete(outgoing, answer._replace(node_endpoints=(NodeEndpoint(7, "host7", 9092, "r7"),)))
    requests = made.step().requests
    assert [request.node for request in requests if request.api is not METADATA] == ([7] if reported else [])
    assert made.metadata.cluster.nodes.get(7) == (Node("host7", 9092, "r7") if reported else None)
    refresh = Action.REFRESH_METADATA in Code(code).action
    assert any(request.api is METADATA for request in requests) is refresh, "and the cluster is asked anyway"


@pytest.mark.covers("MT7")
@pytest.mark.parametrize(
    ("leader", "epoch", "moved"), [(2, 6, True), (2, 5, False), (2, 4, False), (9, 6, False), (-1, 6, False)]
)
def test_a_hint_counts_if_its_epoch_is_newer_and_its_node_is_known(leader: int, epoch: int, moved: bool) -> None:
    made = sender_fakes(ready=False)
    made.metadata.request_topics(TOPIC)
    made.learn(metadata_of({TOPIC: (1,)}, epochs=5))
    made.get_id()
    (outgoing,) = in_flight(made, b"a")
    made.complete(outgoing, answer_to(outgoing, NOT_LEADER, current_leader=hint(leader, epoch)))
    assert made.metadata.cluster.leader_of(TopicPartition(TOPIC, 0)) == ((2, 6) if moved else (1, 5))


@pytest.mark.covers("SN35", "PB10")
def test_complaints_reach_the_records_that_they_are_about() -> None:
    made = sender_fakes(leaders={TOPIC: (1,)})
    futures = [made.fakes.append_one(b"r") for _ in range(3)]
    (outgoing,) = made.produce()
    complaints = (BatchIndexAndErrorMessage(0, "no key"), BatchIndexAndErrorMessage(2, None))
    made.complete(outgoing, answer_to(outgoing, 87, record_errors=complaints, error_message="two are bad"))
    texts = [str(future.exception(0)) for future in futures]
    assert "rejected the record: no key" in texts[0]
    assert "other records of its batch" in texts[1]
    assert "rejected the record: rejected" in texts[2]
    for future in futures:
        error = future.exception(0)
        assert isinstance(error, RecordsRefused)
        assert error.records == {0: "no key", 2: "rejected"}
        assert "INVALID_RECORD (87)" in str(error)


def test_acks_0_is_written_when_it_is_sent() -> None:
    made = sender_fakes(acks=0, idempotent=False)
    future = made.fakes.append_one(b"a", 77)
    (outgoing,) = made.produce()
    assert not outgoing.expect_response
    made.complete(outgoing)
    assert future.result(0) == (TOPIC, 0, -1, 77)
    assert made.fakes.pool.available == made.fakes.pool.total
