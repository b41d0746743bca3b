"""A batch that Spark runs again has the rows that were committed, or its query stops."""

from __future__ import annotations

import pytest

from spark_producer.exactly_once.protocol.commands import (
    ControlWritten,
    Ended,
    EndRefused,
    LogOutcomes,
    Opened,
    Result,
    TasksEnded,
    TransactionOutcome,
    Voted,
    WriteControl,
)
from spark_producer.exactly_once.protocol.commit import commit
from spark_producer.exactly_once.protocol.control_record import NO_BATCH, ControlRecord, Status
from spark_producer.exactly_once.protocol.outcomes import AlreadyDone, Failed, FailureKind
from spark_producer.exactly_once.protocol.task_messages import InlineRows, Skipped, TaskOutcome
from tests.unit.exactly_once.script import HELD, ONE, TWO, ended, handle, inline, prepared, record, skipped

COUNTED = record(Status.DONE, 5, "old")._replace(rows=90, done_rows=90)
VOID = record(Status.VOID, 6, "old")._replace(last_done=5, rows=7, done_rows=90)
INTENT = COUNTED._replace(status=Status.INTENT)


def again(last: ControlRecord, *counts: int | None, batch: int = 5) -> object:
    """Return the outcome of a repetition whose tasks have read `counts` rows."""
    of = handle(last)
    return commit([skipped(batch, of, count) for count in counts], batch)


@pytest.mark.parametrize("last", [COUNTED, VOID, INTENT], ids=lambda last: last.status.name)
def test_the_rows_of_all_tasks_together_are_those_that_were_committed(last: ControlRecord) -> None:
    assert again(last, 90) == AlreadyDone(5)
    assert again(last, 40, 0, 50) == AlreadyDone(5), "they may be spread otherwise"
    for counts in ((180,), (40, 49), (0,), (90, 1)):
        outcome = again(last, *counts)
        assert isinstance(outcome, Failed)
        assert outcome.kind is FailureKind.REFUSED


def test_a_difference_names_both_numbers_and_the_remedy() -> None:
    outcome = again(COUNTED, 100, 80)
    assert isinstance(outcome, Failed)
    assert "sink 'orders': batch 5 was committed with 90 rows, and now has 180" in outcome.text
    for expected in (
        "checkpoint was rewound",
        "newest checkpoint",
        "new exactlyOnceId",
        "resolve orders --accept-row-count-mismatch",
    ):
        assert expected in outcome.text
    assert "foreachBatch" not in outcome.text


@pytest.mark.parametrize(
    ("last", "counts"),
    [(COUNTED._replace(done_rows=None), (180,)), (COUNTED, (None,)), (COUNTED, (90, None))],
    ids=["a record of version 1", "a job", "a task that did not count"],
)
def test_a_batch_without_counts_is_done(last: ControlRecord, counts: tuple[int | None, ...]) -> None:
    assert again(last, *counts) == AlreadyDone(5)


def test_in_foreach_batch_only_the_last_number_is_compared() -> None:
    """The control record has no counts of a lower number any more."""

    def job(batch: int) -> object:
        of = handle(COUNTED._replace(query=""))
        return commit([Skipped(of, "", batch, 7)], batch)

    assert job(4) == AlreadyDone(4)
    outcome = job(5)
    assert isinstance(outcome, Failed)
    assert "txnVersion 5 was committed with 90 rows, and now has 7" in outcome.text
    assert "the function of foreachBatch writes twice with one id" in outcome.text


IN_TIME = (TasksEnded((Ended(),)), LogOutcomes((TransactionOutcome.COMMITTED,)))
TOO_LATE = (TasksEnded((EndRefused(90),)), LogOutcomes((TransactionOutcome.ABORTED,)))


def written(transaction_outcome: tuple[Result, Result]) -> list[ControlRecord]:
    """The control records of a write of two rows in a transaction, and of a task without rows."""
    of = handle(COUNTED)
    messages: list[TaskOutcome] = [prepared(ONE, 6, of), inline(batch=6, of=of)]
    asked, _ = ended(
        commit(messages, 6), [Opened(()), Voted(), ControlWritten(HELD), *transaction_outcome, ControlWritten(HELD)]
    )
    return [command.record for command in asked if isinstance(command, WriteControl)]


def test_the_rows_of_a_batch_become_those_of_the_last_one_when_it_is_done() -> None:
    decided, done = written(IN_TIME)
    assert [(one.rows, one.done_rows) for one in (decided, done)] == [(2, 90), (2, 2)]


def test_a_void_batch_leaves_the_number_of_the_one_before() -> None:
    decided, void = written(TOO_LATE)
    assert void.status is Status.VOID
    assert [(one.last_done, one.done_rows) for one in (decided, void)] == [(5, 90), (5, 90)]


def test_a_write_without_a_number_leaves_the_number_of_the_last_one() -> None:
    of = handle(COUNTED._replace(query=""))
    message = inline(0, 1, 2, batch=NO_BATCH, of=of)._replace(query="")
    asked, _ = ended(commit([message], NO_BATCH), [Opened(()), ControlWritten(HELD)])
    [one] = [command.record for command in asked if isinstance(command, WriteControl)]
    assert (one.last_done, one.rows, one.done_rows) == (5, 3, 90)


def test_what_the_tasks_have_taken_counts_and_not_what_the_log_has() -> None:
    """The way of a row, and how often it was sent, changes nothing."""
    of = handle(COUNTED)
    messages: list[TaskOutcome] = [InlineRows(of, "q", 6, (), 11), prepared(TWO, 6, of)._replace(rows=31)]
    asked, _ = ended(
        commit(messages, 6),
        [Opened(()), Voted(), ControlWritten(HELD), *IN_TIME, ControlWritten(HELD)],
    )
    assert [command.record.rows for command in asked if isinstance(command, WriteControl)] == [42, 42]
