"""Events that are too late to change the end of a transaction that its coordinator was asked to commit. Ids: TM."""

from __future__ import annotations

import pytest

from spark_producer.errors import (
    IllegalState,
    ProducerFenced,
    PyProducerError,
    TransactionAbortable,
    UnsupportedVersion,
)
from spark_producer.sender.transactions.states import Operation, TxnCall, TxnState
from tests.fakes.transaction_fakes import LOST, TransactionFakes
from tests.unit.sender.transactions.test_manager import in_transaction

BOTH_VERSIONS = pytest.mark.parametrize("implicit", [False, True])


def being_committed(*, implicit: bool) -> tuple[TransactionFakes, Operation]:
    """A transaction with one row, whose EndTxn has not been answered."""
    made = in_transaction(implicit=implicit)
    made.made.batches(b"a")
    made.run()
    made.holding.add("commit")
    commit = made.do(TxnCall.COMMIT)
    assert [outgoing.api.name.split()[0] for outgoing in made.held] == ["EndTxn"]
    made.sent.clear()
    return made, commit


def go_on(made: TransactionFakes) -> None:
    """The coordinator answers."""
    made.holding.clear()
    made.answer_held()
    made.run()


@pytest.mark.covers("TM20")
@BOTH_VERSIONS
def test_a_row_that_is_refused_while_the_commit_is_on_its_way_is_not_of_the_transaction(implicit: bool) -> None:
    made, commit = being_committed(implicit=implicit)
    made.do(TxnCall.MARK_ABORTABLE, ValueError("of a thread that still sent"))
    refused = made.do(TxnCall.ABORT)
    assert isinstance(refused.error, IllegalState), "it would take the commit's answer for its own"
    go_on(made)
    assert (commit.done, commit.error, made.state) == (True, None, TxnState.READY)
    made.do(TxnCall.BEGIN)
    made.made.batches(b"b")
    assert made.do(TxnCall.COMMIT).error is None


@pytest.mark.covers("TM27")
@BOTH_VERSIONS
def test_nor_is_one_that_is_refused_before_a_lost_commit_is_asked_for_again(implicit: bool) -> None:
    made, commit = being_committed(implicit=implicit)
    made.script["commit"] = [LOST]
    made.answer_held()
    made.do(TxnCall.MARK_ABORTABLE, ValueError("of a thread that still sent"))
    assert made.state is TxnState.COMMITTING
    go_on(made)
    assert (commit.done, commit.error, made.state) == (True, None, TxnState.READY)


@pytest.mark.covers("TM2")
@BOTH_VERSIONS
@pytest.mark.parametrize("lost", [False, True])
def test_a_row_that_is_queued_during_the_commit_is_not_sent_and_fails(implicit: bool, lost: bool) -> None:
    made, commit = being_committed(implicit=implicit)
    stray = made.made.fakes.append_one(b"of a thread that still sent")
    made.run()
    made.script["commit"] = [LOST] if lost else []
    go_on(made)
    assert (commit.done, commit.error) == (True, None)
    assert isinstance(stray.exception(), IllegalState)
    assert {request.split()[0] for request in made.sent} <= {"find", "commit", "raise"}


@pytest.mark.covers("TM32")
@BOTH_VERSIONS
def test_what_the_coordinator_itself_refuses_to_commit_is_to_be_aborted(implicit: bool) -> None:
    made, commit = being_committed(implicit=implicit)
    made.script["commit"] = [120]
    go_on(made)
    assert isinstance(commit.error, TransactionAbortable)
    assert made.do(TxnCall.ABORT).error is None


@pytest.mark.covers("TM27")
@pytest.mark.parametrize("answer", [UnsupportedVersion("InitProducerId 3 comes with Kafka 2.5"), 53, 90])
def test_a_commit_is_done_even_if_no_epoch_can_be_had_afterwards(answer: int | PyProducerError) -> None:
    made, commit = being_committed(implicit=False)
    made.script["commit"] = [LOST]
    made.script["raise"] = [answer]
    go_on(made)
    assert made.sent == ["find transaction", "commit", "raise 0"]
    assert (commit.done, commit.error, made.state) == (True, None, TxnState.FATAL)
    assert made.made.error is not None, "but the producer has ended"


@pytest.mark.covers("TM27")
def test_the_error_of_fencing_after_a_lost_commit_says_that_it_may_be_done() -> None:
    for lost in (False, True):
        made, commit = being_committed(implicit=False)
        made.script["commit"] = [LOST, 90] if lost else [90]
        go_on(made)
        assert isinstance(commit.error, ProducerFenced)
        assert ("check first what was written" in str(commit.error)) == lost
