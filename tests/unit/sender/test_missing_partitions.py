"""Rows for partitions that no longer exist fail within seconds; brokers with old metadata fail no rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from spark_producer.accumulator import RejectionCollector
from spark_producer.common.cluster import TopicInfo, TopicPartition
from spark_producer.common.error_codes import Code
from spark_producer.errors import BrokerError, DeliveryTimeout, TopicNotFound, TransactionAbortable
from spark_producer.protocol import INIT_PRODUCER_ID, METADATA, PRODUCE
from spark_producer.protocol.messages import InitProducerIdResponse, MetadataResponse
from spark_producer.sender.missing_partitions import (
    CONFIRMED_AFTER,
    FEW_BROKERS_AFTER,
    FORGOTTEN_AFTER,
    MIN_RESPONSES,
    MissingPartitions,
)
from spark_producer.sender.transactions.states import TxnCall, TxnState
from tests.fakes.accumulator_fakes import rows_of
from tests.fakes.sender_fakes import TOPIC, SenderFakes, answer_to, metadata_of, sender_fakes, sent_in
from tests.fakes.transaction_fakes import Answer
from tests.unit.sender.transactions.test_manager import in_transaction

UNKNOWN = int(Code.UNKNOWN_TOPIC_OR_PARTITION)
FORMER, LATER = b"1" * 16, b"2" * 16
TWO_LEFT = metadata_of({TOPIC: (1, 1)}, topic_id=LATER)
GONE = metadata_of({TOPIC: ()}, codes={TOPIC: UNKNOWN})
THERE = metadata_of({TOPIC: (1, 1, 2)}, topic_id=FORMER)

REFUSED = metadata_of({TOPIC: ()}, codes={TOPIC: int(Code.TOPIC_AUTHORIZATION_FAILED)})

Answers = Callable[[int, float], MetadataResponse]
"""A node's response, by the seconds since the beginning."""


def play(
    made: SenderFakes, answers: Answers, refused: Sequence[int] = (), *, seconds: float = 130.0
) -> list[tuple[int, float]]:
    """Let brokers answer until no batch is left, and refuse partitions as unknown; return the nodes asked, and the times."""
    began, asked = made.now, []
    while not made.fakes.incomplete.idle and made.now - began < seconds:
        for outgoing in made.step().requests:
            if outgoing.api is METADATA:
                asked.append((outgoing.node, made.now - began))
                made.complete(outgoing, answers(outgoing.node, made.now - began))
            elif outgoing.api is INIT_PRODUCER_ID:
                made.complete(outgoing, InitProducerIdResponse(0, 0, 78, 0))
            else:
                assert outgoing.api.key == PRODUCE.key
                made.complete(outgoing, answer_to(outgoing, dict.fromkeys(refused, UNKNOWN)))
        made.fakes.clock.advance(0.05)
    return asked


@pytest.mark.parametrize("idempotent", [True, False])
@pytest.mark.parametrize(
    ("left", "refused", "said"),
    [
        (TWO_LEFT, (2,), "partition no longer exists: the topic was deleted and created again, and has only partitions 0 to 1"),
        (metadata_of({TOPIC: (1, 1)}), (2,), "and has only partitions 0 to 1 now"),
        (metadata_of({TOPIC: (1,)}), (2,), "and has only partition 0 now"),
        (GONE, (0, 1, 2), "the topic no longer exists"),
    ],
    ids=["another id", "brokers without ids", "one left", "no topic"],
)  # fmt: skip
def test_rows_for_a_partition_that_no_longer_exists_end_within_seconds(
    left: MetadataResponse, refused: Sequence[int], said: str, idempotent: bool
) -> None:
    made = sender_fakes(delivery_timeout=120, idempotent=idempotent)
    made.batches(b"a", b"b", partition=2)
    began = made.now
    play(made, lambda _node, _seconds: left, refused)
    assert made.now - began < 8
    assert isinstance(made.error, TopicNotFound)
    assert (made.error.topic, made.error.partition) == (TOPIC, 2)  # type: ignore[attr-defined]
    assert f"1 record for topic {TOPIC!r}, partition 2 were not written" in str(made.error)
    assert said in str(made.error)
    assert "What to do: " in str(made.error)
    assert made.fakes.pool.available == made.fakes.pool.total


def test_a_later_open_batch_that_lingers_fails_too() -> None:
    made = sender_fakes(delivery_timeout=120, linger=60)
    made.batches(b"a", b"b", partition=2)
    assert not made.fakes.incomplete.remaining()[-1].closed
    began = made.now
    play(made, lambda _node, _seconds: TWO_LEFT, (2,))
    assert made.now - began < 8
    assert isinstance(made.error, TopicNotFound)


def test_the_rows_of_the_other_partitions_are_written() -> None:
    made = sender_fakes(delivery_timeout=120)
    made.batches(b"a", partition=2)
    made.batches(b"b", partition=0)
    play(made, lambda _node, _seconds: TWO_LEFT, (2,))
    assert isinstance(made.error, TopicNotFound)
    assert made.sender.take_report().records == 1


@pytest.mark.parametrize(
    "answers",
    [
        lambda _node, seconds: GONE if seconds < CONFIRMED_AFTER - 0.5 else THERE,
        lambda node, seconds: GONE if node == 2 and seconds < 100 else THERE,
        lambda _node, seconds: TWO_LEFT if seconds < CONFIRMED_AFTER - 0.5 else THERE,
        lambda node, seconds: TWO_LEFT if node == 2 and seconds < 100 else THERE,
        lambda _node, seconds: (GONE, THERE)[int(seconds / 4) % 2] if seconds < 60 else THERE,
        lambda _node, seconds: metadata_of({TOPIC: (1, 1, -1)}) if seconds < 60 else THERE,
        lambda _node, seconds: metadata_of({TOPIC: ()}, codes={TOPIC: 5}) if seconds < 60 else THERE,
        lambda _node, seconds: metadata_of({}) if seconds < 60 else THERE,
    ],
    ids=[
        "none has heard of it yet", "one broker lags for long", "more partitions are not known yet",
        "one broker does not know them for long", "brokers contradict each other", "no leader", "being created", "left out",
    ],
)  # fmt: skip
def test_brokers_that_lag_and_leaders_that_are_lost_end_nobodys_rows(answers: Answers) -> None:
    made = sender_fakes(delivery_timeout=120)
    made.metadata.cluster = made.metadata.cluster.replace(topics={TOPIC: TopicInfo(0, (1, 1, -1), (0, 0, 0), FORMER)})
    made.batches(b"a", partition=2)
    play(made, answers)
    assert made.error is None
    assert made.sender.take_report().records == 1


def test_a_topic_without_a_leader_still_waits_for_the_delivery_timeout() -> None:
    made = sender_fakes(delivery_timeout=120, leaders={TOPIC: (-1,)})
    made.batches(b"a")
    play(made, lambda _node, _seconds: metadata_of({TOPIC: (-1,)}))
    assert isinstance(made.error, DeliveryTimeout)
    assert "The partition has no leader" in str(made.error)


def test_every_broker_is_asked_before_rows_are_ended() -> None:
    made = sender_fakes(delivery_timeout=120)
    made.batches(b"a", partition=2)
    gone = metadata_of({TOPIC: ()}, nodes=(1, 2, 3), codes={TOPIC: UNKNOWN})
    asked = play(made, lambda _node, _seconds: gone, (0, 1, 2))
    assert {node for node, _ in asked} >= {1, 2, 3}
    assert len(asked) >= MIN_RESPONSES


def test_a_broker_that_cannot_be_asked_delays_the_end_and_does_not_prevent_it() -> None:
    made = sender_fakes(delivery_timeout=120)
    made.network.unready = {1}
    made.network.least = 2
    made.batches(b"a", partition=2)
    began = made.now
    play(made, lambda _node, _seconds: GONE, (0, 1, 2))
    assert FEW_BROKERS_AFTER <= made.now - began < FEW_BROKERS_AFTER + 5
    assert isinstance(made.error, TopicNotFound)


def test_later_rows_for_the_same_partition_fail_too_and_requests_end() -> None:
    made = sender_fakes(delivery_timeout=120)
    for _ in range(2):
        made.batches(b"a", partition=2)
        began = made.now
        play(made, lambda _node, _seconds: TWO_LEFT, (2,))
        assert made.now - began < 8
    for _ in range(2):
        made.fakes.clock.advance(10)
        for outgoing in made.step().requests:
            assert outgoing.api is METADATA
            made.complete(outgoing, TWO_LEFT)
    made.fakes.clock.advance(10)
    assert made.step().requests == [], "no rows wait, so no question is due"


def test_a_topic_created_again_begins_with_sequence_0_in_another_epoch() -> None:
    """Batches that the new log got before this was known may have used the first sequences of the epoch."""
    made = sender_fakes(delivery_timeout=120)
    made.batches(b"a")
    (outgoing,) = made.produce()
    made.complete(outgoing, answer_to(outgoing))
    made.metadata.request_update()
    made.learn(metadata_of({TOPIC: (1, 1, 2)}, topic_id=FORMER))
    made.batches(b"b")
    (outgoing,) = made.produce()
    assert (sent_in(outgoing)[0].header.producer_epoch, sent_in(outgoing)[0].header.base_sequence) != (0, 0)
    made.complete(outgoing, answer_to(outgoing))
    made.metadata.request_update()
    made.learn(metadata_of({TOPIC: (1, 1, 2)}, topic_id=LATER))
    made.batches(b"c")
    (outgoing,) = made.produce()
    header = sent_in(outgoing)[0].header
    assert header.base_sequence == 0
    assert header.producer_epoch > 0


def test_a_batch_in_doubt_keeps_its_sequence_when_the_topic_was_created_again() -> None:
    made = sender_fakes(delivery_timeout=120)
    made.metadata.request_update()
    made.learn(metadata_of({TOPIC: (1, 1, 2)}, topic_id=FORMER))
    made.batches(b"a")
    (outgoing,) = made.produce()
    before = sent_in(outgoing)[0].header
    made.metadata.request_update()
    made.learn(metadata_of({TOPIC: (1, 1, 2)}, topic_id=LATER))
    made.complete(outgoing, answer_to(outgoing, 7))
    made.fakes.clock.advance(5)
    (again,) = made.produce()
    after = sent_in(again)[0].header
    assert (after.producer_epoch, after.base_sequence) == (before.producer_epoch, before.base_sequence)


def test_answers_of_long_ago_do_not_count() -> None:
    found = MissingPartitions()
    tp = TopicPartition("a", 2)
    found.watch({"a"})
    gone = {"a": TopicInfo(UNKNOWN, (), (), b"")}
    for number in range(5):
        found.on_response({"a"}, gone, 1, 10.0 + 2 * number)
    assert found.absence(tp, [1], 18.0) is not None
    assert found.absence(tp, [1], 18.0 + 2 * FORGOTTEN_AFTER) is None
    assert found.absence(TopicPartition("other", 0), [1], 18.0) is None


@pytest.mark.parametrize("implicit", [False, True])
@pytest.mark.parametrize(
    ("left", "said"),
    [(TWO_LEFT, "partition no longer exists"), (GONE, "topic no longer exists")],
    ids=["fewer", "gone"],
)
def test_a_transaction_that_lacks_such_rows_can_only_be_aborted_and_says_why(
    implicit: bool, left: MetadataResponse, said: str
) -> None:
    made = in_transaction(implicit=implicit, delivery_timeout=120)
    unknown: list[Answer] = [UNKNOWN] * 200
    made.script = {"add": unknown, "produce": unknown.copy()}
    made.metadata = left
    began = made.made.now
    made.made.batches(b"a", partition=2)
    commit = made.do(TxnCall.COMMIT)
    assert made.made.now - began < 8
    assert isinstance(commit.error, TransactionAbortable)
    assert said in str(commit.error)
    assert made.state is TxnState.ABORTABLE
    made.metadata, made.script = None, {"add": [], "produce": [], "abort": [], "find": [], "commit": []}
    assert made.do(TxnCall.ABORT).error is None
    assert made.do(TxnCall.BEGIN).error is None
    made.made.batches(b"a", partition=2)
    assert made.do(TxnCall.COMMIT).error is None


@pytest.mark.parametrize("left", [GONE, TWO_LEFT], ids=["the topic is gone", "the partition is gone"])
def test_rows_of_a_topic_that_is_gone_go_back_to_who_wants_them(left: MetadataResponse) -> None:
    """Where only the partition is gone they fail: a retry of the task writes them to the partitions that exist."""
    made = sender_fakes(delivery_timeout=120)
    wanted = RejectionCollector(lambda error: error.code == UNKNOWN, 1 << 20)
    rows = rows_of([b"a", b"b"])
    rows.columns.numbers = 7
    made.fakes.accumulator.append(TopicPartition(TOPIC, 2), rows, 0, len(rows), listener=wanted)
    made.fakes.accumulator.close_open()
    play(made, lambda _node, _seconds: left, (0, 1, 2))
    if left is GONE:
        (found,) = wanted.take()
        assert list(found.rows) == [7, 8]
        assert found.texts == ["the topic no longer exists"] * 2
        assert made.error is None
    else:
        assert not wanted
        assert isinstance(made.error, TopicNotFound)
    assert made.fakes.pool.available == made.fakes.pool.total


def test_the_future_of_a_single_record_has_the_error() -> None:
    made = sender_fakes(delivery_timeout=120)
    future = made.fakes.append_one(b"a", tp=TopicPartition(TOPIC, 2))
    play(made, lambda _node, _seconds: TWO_LEFT, (2,))
    assert isinstance(future.exception(0), TopicNotFound)


def test_rows_of_a_topic_that_may_not_be_used_any_more_end_within_seconds() -> None:
    """The right was taken away when the leader had just moved: brokers name no partitions then."""
    made = sender_fakes(delivery_timeout=120)
    made.batches(b"a", partition=2)
    began = made.now
    play(made, lambda _node, _seconds: REFUSED, (0, 1, 2))
    assert made.now - began < 8
    assert isinstance(made.error, BrokerError)
    assert made.error.code is Code.TOPIC_AUTHORIZATION_FAILED
    assert f"1 record for topic {TOPIC!r}, partition 2" in str(made.error)


def test_a_right_that_a_broker_does_not_know_yet_fails_no_rows() -> None:
    made = sender_fakes(delivery_timeout=120)
    made.batches(b"a", partition=2)
    play(made, lambda _node, seconds: REFUSED if seconds < 4 else THERE)
    assert made.error is None
