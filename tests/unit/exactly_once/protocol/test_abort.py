"""ABORT, answer by answer."""

from __future__ import annotations

import pytest

from spark_producer.common.cluster import ProducerIdAndEpoch, TopicPartition
from spark_producer.exactly_once.protocol.abort import abort
from spark_producer.exactly_once.protocol.commands import (
    ControlIdHolder,
    ControlWritten,
    DescribeControlId,
    Ended,
    EndRefused,
    EndTasks,
    Fence,
    Fenced,
    Found,
    LogOutcomes,
    MarkersLost,
    ReadControl,
    TasksEnded,
    TransactionOutcome,
    WriteControl,
)
from spark_producer.exactly_once.protocol.control_record import ControlRecord, Status
from spark_producer.exactly_once.protocol.outcomes import (
    Failed,
    FailureKind,
    NothingToAbort,
    WriteAborted,
    WriteCommitted,
)
from tests.unit.exactly_once.script import (
    HELD,
    NEWER,
    NEWEST,
    ONE,
    TOKEN,
    TWO,
    ended,
    inline,
    prepared,
    record,
    skipped,
)

BOTH = [prepared(ONE), None, prepared(TWO), inline(0)]
DECIDED = record(Status.COMMITTING, 5, TOKEN, ONE, TWO)
ALL_ENDED = TasksEnded((Ended(), Ended()))


def test_no_command_if_no_task_has_reported_a_transaction() -> None:
    assert isinstance(abort([None, None]), NothingToAbort)
    assert isinstance(abort([None, inline(0), skipped()]), NothingToAbort)


@pytest.mark.parametrize(
    "last", [None, record(Status.DONE, 4, "old"), record(Status.INTENT), record(Status.COMMITTING, 5, "newer", TWO)]
)
def test_an_execution_that_is_not_decided_is_aborted_after_a_fence_and_a_look(last: ControlRecord | None) -> None:
    asked, outcome = ended(
        abort(BOTH), [ControlIdHolder(HELD), Fenced(NEWER), Found(last), TasksEnded((Ended(), EndRefused(90)))]
    )
    assert asked == [DescribeControlId(), Fence(), ReadControl(), EndTasks((ONE, TWO), commit=False)]
    assert outcome == WriteAborted((ONE.transactional_id,))


def test_a_decided_execution_is_carried_out_and_never_aborted() -> None:
    asked, outcome = ended(
        abort(BOTH),
        [
            ControlIdHolder(HELD),
            Fenced(NEWER),
            Found(DECIDED),
            ALL_ENDED,
            LogOutcomes((TransactionOutcome.COMMITTED,) * 2),
            ControlWritten(NEWEST),
        ],
    )
    assert EndTasks((ONE, TWO), commit=True) in asked
    assert asked[-1] == WriteControl(NEWER, record(Status.DONE))
    assert outcome == WriteCommitted(5)


@pytest.mark.parametrize("status", [Status.DONE, Status.VOID, Status.PARTIAL])
def test_an_execution_with_a_verdict_is_left_as_it_is(status: Status) -> None:
    asked, _ = ended(abort(BOTH), [ControlIdHolder(HELD), Fenced(NEWER), Found(record(status))])
    assert not any(isinstance(command, EndTasks) for command in asked)
    overtaken, outcome = ended(abort(BOTH), [ControlIdHolder(NEWER), Found(record(status))])
    assert overtaken == [DescribeControlId(), ReadControl()]
    assert isinstance(outcome, NothingToAbort)


@pytest.mark.parametrize("holder", [NEWER, ProducerIdAndEpoch(8, 1), None])
def test_an_overtaken_driver_aborts_its_own_without_fencing(holder: ProducerIdAndEpoch | None) -> None:
    asked, outcome = ended(abort(BOTH), [ControlIdHolder(holder), Found(record(Status.DONE, 4, "new")), ALL_ENDED])
    assert asked == [DescribeControlId(), ReadControl(), EndTasks((ONE, TWO), commit=False)]
    assert isinstance(outcome, WriteAborted)


def test_an_overtaken_driver_helps_with_what_is_decided_and_gives_no_verdict() -> None:
    asked, outcome = ended(abort(BOTH), [ControlIdHolder(NEWER), Found(DECIDED), ALL_ENDED])
    assert asked[2:] == [EndTasks((ONE, TWO), commit=True)]
    assert isinstance(outcome, NothingToAbort)


@pytest.mark.parametrize("fenced", [True, False])
def test_what_is_decided_is_carried_out_although_its_own_rows_hang(fenced: bool) -> None:
    begin = [ControlIdHolder(HELD), Fenced(NEWER)] if fenced else [ControlIdHolder(NEWER)]
    looks = [LogOutcomes((TransactionOutcome.COMMITTED,) * 2)] if fenced else []
    asked, outcome = ended(abort(BOTH), [*begin, MarkersLost((TopicPartition("t", 0),), DECIDED), ALL_ENDED, *looks])
    assert EndTasks((ONE, TWO), commit=True) in asked
    assert not any(isinstance(command, WriteControl) for command in asked)
    assert isinstance(outcome, Failed if fenced else NothingToAbort)


def test_an_execution_that_is_not_decided_is_aborted_although_rows_of_another_hang() -> None:
    last = record(Status.DONE, 4, "old")
    asked, _ = ended(
        abort(BOTH), [ControlIdHolder(HELD), Fenced(NEWER), MarkersLost((TopicPartition("t", 0),), last), ALL_ENDED]
    )
    assert asked[-1] == EndTasks((ONE, TWO), commit=False)


@pytest.mark.parametrize("fenced", [True, False])
def test_what_cannot_be_read_is_left_to_the_next_begin(fenced: bool) -> None:
    begin = [ControlIdHolder(HELD), Fenced(NEWER)] if fenced else [ControlIdHolder(NEWER)]
    asked, outcome = ended(abort(BOTH), [*begin, MarkersLost((TopicPartition("c", 0),))])
    assert not any(isinstance(command, EndTasks) for command in asked)
    assert isinstance(outcome, NothingToAbort)


def test_a_decided_execution_that_timed_out_is_void() -> None:
    refused, aborted = TasksEnded((EndRefused(90), EndRefused(90))), LogOutcomes((TransactionOutcome.ABORTED,) * 2)
    _, outcome = ended(
        abort(BOTH), [ControlIdHolder(HELD), Fenced(NEWER), Found(DECIDED), refused, aborted, ControlWritten(NEWEST)]
    )
    assert isinstance(outcome, Failed)
    assert outcome.kind is FailureKind.VOID
