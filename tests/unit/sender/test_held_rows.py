"""Rows that are held back, taken out, or released into a transaction that another process ends. Ids: TM."""

from __future__ import annotations

from typing import cast

import pytest

from spark_producer.common.cluster import Span, TopicPartition, TransactionVersion
from spark_producer.errors import IllegalState, TransactionAbortable
from spark_producer.record.batch_v2 import TRANSACTIONAL_BIT, read_header
from spark_producer.sender.transactions.partitions import PreparedResult
from spark_producer.sender.transactions.states import TxnCall, TxnState
from tests.fakes.accumulator_fakes import values_in
from tests.fakes.sender_fakes import TOPIC
from tests.fakes.transaction_fakes import LOST, TID, TransactionFakes, transaction_fakes

PLACES = [TopicPartition(TOPIC, partition) for partition in range(3)]


def held(*, implicit: bool = False, **options: object) -> TransactionFakes:
    """Three batches in two partitions, held back."""
    made = transaction_fakes(implicit=implicit, **options)
    made.do(TxnCall.DEFER)
    made.made.batches(b"a", b"b")
    made.made.batches(b"c", partition=2)
    made.run()
    return made


def prepared(made: TransactionFakes) -> PreparedResult:
    operation = made.do(TxnCall.PREPARE)
    assert operation.error is None
    return cast(PreparedResult, operation.result)


def test_what_is_held_back_makes_no_request_and_does_not_expire() -> None:
    made = held()
    made.made.fakes.clock.advance(1000.0)
    made.run()
    assert made.sent == []
    assert made.made.fakes.accumulator.waiting_bytes() == sum(
        batch.size for batch in made.made.fakes.incomplete.remaining()
    )
    assert made.made.fakes.incomplete.failure is None


def test_removed_rows_are_as_they_would_be_sent_and_leave_nothing() -> None:
    made = held()
    future = made.made.fakes.append_one(b"d")
    made.made.fakes.accumulator.close_open()
    taken = cast(list[tuple[TopicPartition, int, bytes]], made.do(TxnCall.TAKE).result)
    assert sorted((tp.partition, records) for tp, records, _ in taken) == [(0, 1), (0, 2), (2, 1)]
    assert [value[:1] for tp, _, data in taken if not tp.partition for value in values_in(data) if value] == [
        b"a", b"b", b"d",
    ]  # fmt: skip
    for _, records, data in taken:
        header = read_header(data)
        assert (header.producer_id, header.producer_epoch, header.base_sequence) == (-1, -1, -1)
        assert (header.attributes & TRANSACTIONAL_BIT, header.records_count) == (TRANSACTIONAL_BIT, records)
    assert future.done()
    assert (made.state, made.sent) == (TxnState.UNINITIALIZED, [])
    backlog = made.made.fakes.incomplete
    assert (backlog.idle, backlog.failure) == (True, None)
    assert made.made.fakes.pool.available == made.made.fakes.pool.total
    assert made.do(TxnCall.DEFER).error is None


@pytest.mark.covers("TM33")
@pytest.mark.parametrize("implicit", [False, True])
def test_every_released_transaction_has_an_epoch_of_its_own_and_says_what_is_in_it(implicit: bool) -> None:
    made = held(implicit=implicit)
    transaction_version = TransactionVersion.IMPLICIT if implicit else TransactionVersion.EXPLICIT
    made.do(TxnCall.RELEASE)
    began = made.made.now
    first = prepared(made)
    assert first == PreparedResult(
        TID, 77, 0, transaction_version, (Span(TOPIC, 0, 0, 1, 2), Span(TOPIC, 2, 0, 0, 1)), first.began_at
    )
    assert first.began_at == began
    assert made.state is TxnState.PREPARED
    with pytest.raises(IllegalState):
        made.manager.check()
    refused = [call for call in TxnCall if isinstance(made.do(call, ValueError("x")).error, IllegalState)]
    assert TxnCall.COMMIT in refused
    assert TxnCall.ABORT in refused
    made = held(implicit=implicit)
    made.do(TxnCall.RELEASE)
    prepared(made)
    made.sent.clear()
    made.do(TxnCall.DEFER)
    made.made.batches(b"e")
    made.do(TxnCall.RELEASE)
    second = prepared(made)
    assert (second.epoch, second.spans) == (1, (Span(TOPIC, 0, 2, 2, 1),))
    assert [(header.producer_epoch, header.base_sequence) for header in made.headers[-1:]] == [(1, 0)]
    assert made.sent == ["init", *([] if implicit else ["add 0"]), "produce 0"], (
        "only its owner ends a prepared transaction"
    )


@pytest.mark.covers("TM33")
def test_without_rows_there_is_nothing_to_end() -> None:
    made = transaction_fakes()
    made.do(TxnCall.DEFER)
    made.do(TxnCall.RELEASE)
    empty = prepared(made)
    assert (empty.spans, empty.began_at) == ((), None)
    assert made.sent == ["find transaction", "init"]
    assert made.do(TxnCall.RENEW).error is None
    assert made.state is TxnState.UNINITIALIZED


@pytest.mark.covers("TM33")
@pytest.mark.parametrize("code", [0, 51])
def test_without_rows_no_thread_waits_for_the_epoch(code: int) -> None:
    made = transaction_fakes()
    made.holding.add("init")
    made.do(TxnCall.DEFER)
    made.do(TxnCall.RELEASE)
    assert prepared(made).spans == ()
    assert made.do(TxnCall.RENEW).error is None
    made.script["init"] = [code]
    made.holding.clear()
    made.answer_held()
    made.run()
    made.do(TxnCall.DEFER)
    made.made.batches(b"a")
    made.do(TxnCall.RELEASE)
    later = prepared(made)
    assert [span.records for span in later.spans] == [1]
    assert made.headers[-1].producer_epoch == later.epoch == made.identity.epoch, "of the newest epoch"


def test_a_thread_that_waits_for_memory_ends_the_hold() -> None:
    made = held()
    with made.made.fakes.incomplete.starve():
        made.run()
    assert made.state is TxnState.IN_TRANSACTION
    assert [request.split()[0] for request in made.sent] == ["find", "init", "add", "produce", "produce", "produce"]
    assert (made.do(TxnCall.TAKE).error, made.do(TxnCall.TAKE).result) == (None, None), "too late to take anything out"


def test_a_hold_that_ends_while_its_rows_are_asked_for_leaves_them_in_the_transaction() -> None:
    made = held()
    made.ask(TxnCall.RELEASE)
    taken = made.do(TxnCall.TAKE)
    assert (taken.error, taken.result) == (None, None)
    assert [span.records for span in prepared(made).spans] == [2, 1]


def test_a_transaction_that_did_not_begin_as_a_hold_may_be_followed_by_the_next_at_once() -> None:
    made = transaction_fakes()
    made.do(TxnCall.DEFER)
    made.do(TxnCall.TAKE)
    made.begin()
    made.made.batches(b"a")
    made.run()
    assert made.do(TxnCall.ABORT).error is None
    assert made.do(TxnCall.BEGIN).error is None


def test_rows_that_were_held_back_for_long_have_their_whole_delivery_timeout_before_them() -> None:
    made = held()
    made.made.fakes.clock.advance(1000.0)
    made.script["produce"] = [7]
    made.do(TxnCall.RELEASE)
    assert len(prepared(made).spans) == 2


def test_a_prepared_transaction_needs_to_know_where_its_rows_are() -> None:
    made = held()
    made.script["produce"] = [0, 46]  # a duplicate: the broker does not say where
    made.do(TxnCall.RELEASE)
    refused = made.do(TxnCall.PREPARE).error
    assert isinstance(refused, TransactionAbortable)
    assert "lacks the offset of a batch" in str(refused)


def test_a_transaction_whose_topic_is_created_again_between_two_batches_is_not_prepared() -> None:
    """Without `IMPLICIT` the new log takes the second batch, and shows a transaction that begins at its offset."""
    made = held()
    made.holding.add("produce")
    made.do(TxnCall.RELEASE)
    made.answer_held()
    made.written.clear()
    made.holding.clear()
    made.run()
    refused = made.do(TxnCall.PREPARE).error
    assert isinstance(refused, TransactionAbortable)
    assert f"earlier rows in topic '{TOPIC}', partition 0 are lost" in str(refused)


def test_prepare_refuses_while_rows_are_on_their_way_and_after_a_row_was_lost() -> None:
    made = held()
    made.holding.add("produce")
    made.do(TxnCall.RELEASE)
    assert isinstance(made.do(TxnCall.PREPARE).error, IllegalState)
    made.script["produce"] = [87]
    made.answer_held()
    assert isinstance(made.do(TxnCall.PREPARE).error, TransactionAbortable)


@pytest.mark.parametrize("implicit", [False, True])
def test_giving_up_ends_a_prepared_transaction_by_its_own_epoch(implicit: bool) -> None:
    made = held(implicit=implicit)
    made.do(TxnCall.RELEASE)
    prepared(made)
    assert made.do(TxnCall.TRY_ABORT).error is None
    assert made.sent[-1] == "abort"
    assert made.state is TxnState.UNINITIALIZED


def test_giving_up_takes_the_next_epoch_if_a_batch_is_in_doubt_which_shuts_it_out_at_once() -> None:
    made = held()
    made.script["produce"] = [LOST]
    made.do(TxnCall.RELEASE)
    made.script["produce"] = [LOST]
    made.made.batches(b"e", partition=1)
    made.run(seconds=0.0)
    assert made.do(TxnCall.TRY_ABORT).error is None
    assert "abort" not in made.sent
    assert made.sent[-1] == "init"
    assert made.state is TxnState.UNINITIALIZED
    implicit = held(implicit=True)
    implicit.do(TxnCall.RELEASE)
    implicit.script["produce"] = [LOST]
    implicit.made.batches(b"e", partition=1)
    implicit.run(seconds=0.0)
    assert implicit.do(TxnCall.TRY_ABORT).error is None
    assert implicit.sent[-1] == "abort", "with this transaction version EndTxn itself takes the next epoch"


@pytest.mark.parametrize("at", ["held", "opening", "spoilt", "never held"])
def test_giving_up_leaves_a_producer_that_can_hold_again_wherever_it_was(at: str) -> None:
    made = held() if at != "never held" else transaction_fakes()
    if at == "opening":
        made.holding.add("init")
        made.do(TxnCall.RELEASE)
        made.ask(TxnCall.TRY_ABORT)
        made.run()
        made.holding.clear()
        made.answer_held()
        made.run()
    elif at == "spoilt":
        made.do(TxnCall.MARK_ABORTABLE, ValueError("bad row"))
        assert made.do(TxnCall.TRY_ABORT).error is None
    else:
        assert made.do(TxnCall.TRY_ABORT).error is None
    assert "abort" not in made.sent
    assert made.made.fakes.incomplete.idle
    assert made.do(TxnCall.DEFER).error is None
    made.made.batches(b"z")
    made.do(TxnCall.RELEASE)
    assert [span.records for span in prepared(made).spans] == [1]


def test_a_producer_that_closes_while_it_is_prepared_leaves_the_transaction_to_its_owner() -> None:
    made = held()
    made.do(TxnCall.RELEASE)
    prepared(made)
    made.made.fakes.incomplete.begin_close()
    made.run()
    assert made.manager.settled
    assert "abort" not in made.sent


def test_a_partition_that_was_ready_before_the_hold_sends_nothing_while_it_lasts() -> None:
    made = transaction_fakes()
    made.do(TxnCall.DEFER)
    made.do(TxnCall.RELEASE)
    made.made.network.unready.add(2)
    made.made.batches(b"a", partition=2)
    made.run(seconds=0.0)
    assert made.sent[-1] == "add 2"
    assert made.do(TxnCall.TRY_ABORT).error is None
    made.do(TxnCall.DEFER)
    made.made.batches(b"b", partition=2)
    made.made.network.unready.clear()
    made.run()
    assert made.headers == []
    made.do(TxnCall.RELEASE)
    assert [span.partition for span in prepared(made).spans] == [2]
