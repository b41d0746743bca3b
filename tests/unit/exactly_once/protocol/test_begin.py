"""BEGIN, answer by answer."""

from __future__ import annotations

import pytest

from spark_producer.common.cluster import TopicPartition
from spark_producer.exactly_once.protocol.begin import begin
from spark_producer.exactly_once.protocol.commands import (
    ControlWritten,
    Ended,
    EndRefused,
    EndTasks,
    Fence,
    Fenced,
    FencedOff,
    Found,
    Indeterminate,
    ListOpen,
    LogOutcomes,
    MarkersLost,
    OlderTransactionHangs,
    Opened,
    ReadControl,
    ReadLogs,
    Result,
    TasksEnded,
    TransactionOutcome,
    WriteControl,
)  # fmt: skip
from spark_producer.exactly_once.protocol.control_record import NO_BATCH, ControlRecord, Status
from spark_producer.exactly_once.protocol.outcomes import Begun, Failed, FailureKind
from spark_producer.exactly_once.protocol.state_machine import MAX_TRIES
from tests.unit.exactly_once.script import (
    HELD,
    NEWER,
    NEWEST,
    ONE,
    QUERY,
    SINK,
    TWO,
    ended,
    record,
    task,
)  # fmt: skip

FENCED, DONE = Fenced(HELD), record(Status.DONE, 4, "old")
ALL_ENDED = TasksEnded((Ended(), Ended()))
COMMITTED = LogOutcomes((TransactionOutcome.COMMITTED, TransactionOutcome.COMMITTED))
DECIDED = record(Status.COMMITTING, 5, "old", ONE, TWO)


def test_a_new_sink_without_orphans_is_begun_with_three_commands() -> None:
    asked, outcome = ended(begin(SINK, "new"), [FENCED, Found(None), Opened(())])
    assert asked == [Fence(), ReadControl(), ListOpen()]
    assert outcome == Begun(HELD, None)


def test_orphans_are_named_in_a_fenced_write_before_any_is_aborted() -> None:
    asked, outcome = ended(
        begin(SINK, "new"),
        [FENCED, Found(DONE), Opened((ONE, TWO)), ControlWritten(NEWER), TasksEnded((Ended(), EndRefused(90)))],
    )
    intent = ControlRecord(SINK, QUERY, Status.INTENT, 4, 4, "new", (ONE, TWO))
    assert asked[3:] == [WriteControl(HELD, intent), EndTasks((ONE, TWO), commit=False)]
    assert outcome == Begun(NEWER, intent._replace(transactions=()))


def test_the_intent_of_a_new_sink_leaves_it_open_whose_it_will_be() -> None:
    asked, outcome = ended(
        begin(SINK, "new"), [FENCED, Found(None), Opened((ONE,)), ControlWritten(HELD), TasksEnded((Ended(),))]
    )
    assert asked[3] == WriteControl(HELD, ControlRecord(SINK, None, Status.INTENT, NO_BATCH, NO_BATCH, "new", (ONE,)))
    assert isinstance(outcome, Begun)


@pytest.mark.parametrize("status", [Status.COMMITTING, Status.HUNG])
def test_what_is_decided_is_finished_before_anything_is_listed(status: Status) -> None:
    decided = DECIDED._replace(status=status, inline=(TopicPartition("t", 9),))
    asked, outcome = ended(
        begin(SINK, "new"), [FENCED, Found(decided), ALL_ENDED, COMMITTED, ControlWritten(NEWER), Opened(())]
    )
    done = record(Status.DONE, 5, "old")
    assert asked[2:] == [
        EndTasks((ONE, TWO), commit=True), ReadLogs((ONE, TWO)), WriteControl(HELD, done), ListOpen(),
    ]  # fmt: skip
    assert outcome == Begun(NEWER, done)


def test_a_write_that_turned_out_void_may_run_again_at_once() -> None:
    refused, aborted = (
        TasksEnded((EndRefused(90), EndRefused(47))),
        LogOutcomes((TransactionOutcome.ABORTED, TransactionOutcome.ABORTED)),
    )
    asked, outcome = ended(
        begin(SINK, "new"), [FENCED, Found(DECIDED), refused, aborted, ControlWritten(NEWER), Opened(())]
    )
    assert asked[4] == WriteControl(HELD, record(Status.VOID, 5, "old"))
    assert outcome == Begun(NEWER, record(Status.VOID, 5, "old"))
    assert outcome.last is not None
    assert outcome.last.last_done == 4


@pytest.mark.parametrize("status", [Status.COMMITTING, Status.HUNG])
def test_a_decision_whose_own_rows_hang_is_completed_without_another_record(status: Status) -> None:
    """One more transaction of the control id would decide what hangs."""
    decided = DECIDED._replace(status=status, inline=(TopicPartition("t", 9),))
    asked, outcome = ended(
        begin(SINK, "new"), [FENCED, MarkersLost((TopicPartition("t", 9),), decided), ALL_ENDED, COMMITTED]
    )
    assert asked[2:] == [EndTasks((ONE, TWO), commit=True), ReadLogs((ONE, TWO))]
    assert isinstance(outcome, Failed)
    assert (outcome.kind, outcome.names) == (FailureKind.HUNG, ("t-9",))


STOPS: list[tuple[str, list[Result], FailureKind, tuple[str, ...]]] = [
    ("partial", [FENCED, Found(DECIDED._replace(status=Status.PARTIAL))], FailureKind.PARTIAL, ()),
    ("control record hangs", [FENCED, MarkersLost((TopicPartition("c", 0),))], FailureKind.HUNG, ("c-0",)),
    ("rows of the last batch hang", [FENCED, MarkersLost((TopicPartition("t", 0),), DONE)], FailureKind.HUNG, ("t-0",)),
    ("overtaken while listing", [FENCED, Found(DONE), Opened((ONE,)), FencedOff()], FailureKind.FENCED, ()),
    ("intent hangs", [FENCED, Found(DONE), Opened((ONE,)), MarkersLost((TopicPartition("c", 0),))], FailureKind.HUNG, ("c-0",)),
    ("overtaken at the verdict", [FENCED, Found(DECIDED), ALL_ENDED, COMMITTED, FencedOff()], FailureKind.FENCED, ()),
    (
        "marker lost",
        [
            FENCED, Found(DECIDED), ALL_ENDED,
            LogOutcomes((TransactionOutcome.COMMITTED, TransactionOutcome.OPEN), (TopicPartition("t", 2),)), ControlWritten(HELD),
        ],
        FailureKind.HUNG,
        ("t-2",),
    ),
    (
        "only some were committed",
        [
            FENCED, Found(DECIDED), TasksEnded((Ended(), EndRefused(90))),
            LogOutcomes((TransactionOutcome.COMMITTED, TransactionOutcome.ABORTED)), ControlWritten(HELD),
        ],
        FailureKind.PARTIAL,
        (TWO.transactional_id,),
    ),
]  # fmt: skip


@pytest.mark.parametrize(("answers", "kind", "names"), [row[1:] for row in STOPS], ids=[row[0] for row in STOPS])
def test_begin_stops(answers: list[Result], kind: FailureKind, names: tuple[str, ...]) -> None:
    _, outcome = ended(begin(SINK, "new"), answers)
    assert isinstance(outcome, Failed)
    assert (outcome.kind, outcome.names) == (kind, names)
    assert all(name in outcome.text for name in (SINK, *names))


def test_a_hanging_write_is_checked_again_without_another_write() -> None:
    lost = DECIDED._replace(status=Status.HUNG)
    asked, outcome = ended(
        begin(SINK, "new"),
        [
            FENCED,
            Found(lost),
            ALL_ENDED,
            LogOutcomes((TransactionOutcome.COMMITTED, TransactionOutcome.OPEN), (TopicPartition("t", 2),)),
        ],
    )
    assert isinstance(outcome, Failed)
    assert outcome.kind is FailureKind.HUNG
    assert not any(isinstance(command, WriteControl) for command in asked)


@pytest.mark.parametrize("answer", [Indeterminate("reset"), OlderTransactionHangs((TopicPartition("c", 0),))])
def test_begin_starts_over_when_its_write_is_not_known_to_be_there(answer: Result) -> None:
    first: list[Result] = [FENCED, Found(DONE), Opened((ONE,)), answer]
    asked, outcome = ended(
        begin(SINK, "new"),
        [*first, Fenced(NEWER), Found(DONE), Opened((task(3),)), ControlWritten(NEWEST), TasksEnded((Ended(),))],
    )
    assert asked[4:7] == [Fence(), ReadControl(), ListOpen()]
    assert isinstance(asked[7], WriteControl)
    assert asked[7].record.transactions == (task(3),)
    assert isinstance(outcome, Begun)


def test_begin_does_not_start_over_for_ever() -> None:
    once: list[Result] = [FENCED, Found(DONE), Opened((ONE,)), Indeterminate("reset")]
    asked, outcome = ended(begin(SINK, "new"), once * MAX_TRIES)
    assert isinstance(outcome, Failed)
    assert outcome.kind is FailureKind.UNSURE
    assert "reset" in outcome.text
    assert sum(isinstance(command, WriteControl) for command in asked) == MAX_TRIES
