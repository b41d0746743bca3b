"""COMMIT, answer by answer."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from spark_producer.common.cluster import TopicPartition
from spark_producer.exactly_once.protocol.commands import (
    Command,
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
    Vote,
    Voted,
    WriteControl,
)  # fmt: skip
from spark_producer.exactly_once.protocol.commit import ListingOrphans, commit
from spark_producer.exactly_once.protocol.control_record import NO_BATCH, ControlRecord, Status
from spark_producer.exactly_once.protocol.outcomes import (
    RUNS_AGAIN,
    AlreadyDone,
    Failed,
    FailureKind,
    Outcome,
    WriteCommitted,
)
from spark_producer.exactly_once.protocol.state_machine import Next
from spark_producer.exactly_once.protocol.task_messages import TaskOutcome
from tests.unit.exactly_once.script import (
    HELD,
    NEWER,
    NEWEST,
    ONE,
    QUERY,
    SINK,
    TOKEN,
    TWO,
    ended,
    handle,
    inline,
    prepared,
    record,
    skipped,
)  # fmt: skip

LAST = record(Status.DONE, 4, "old")
OURS = handle(LAST)
BOTH = [prepared(ONE, of=OURS), prepared(TWO, of=OURS)]
DECIDED = record(Status.COMMITTING, 5, TOKEN, ONE, TWO)._replace(rows=4)
DONE = record(Status.DONE, 5)._replace(rows=4, done_rows=4)
NOTHING = Opened(())
ALL_ENDED, COMMITTED = (
    TasksEnded((Ended(), Ended())),
    LogOutcomes((TransactionOutcome.COMMITTED, TransactionOutcome.COMMITTED)),
)


def listed(start: Next, answers: Sequence[Result], orphans: Opened = NOTHING) -> tuple[list[Command], Outcome]:
    """The commands after the other open transactions are known, and the outcome."""
    asked, outcome = ended(start, [orphans, *answers])
    assert isinstance(asked[0], ListOpen)
    return asked[1:], outcome


def test_transactions_of_tasks_are_voted_on_decided_ended_looked_at_and_done() -> None:
    asked, outcome = listed(
        commit(BOTH, 5), [Voted(), ControlWritten(NEWER), ALL_ENDED, COMMITTED, ControlWritten(NEWEST)]
    )
    assert asked == [
        Vote((ONE, TWO), HELD),
        WriteControl(HELD, DECIDED, awaits_markers=False),
        EndTasks((ONE, TWO), commit=True),
        ReadLogs((ONE, TWO), HELD),
        WriteControl(NEWER, DONE, awaits_markers=False),
    ]
    assert outcome == WriteCommitted(5)


def test_a_lost_marker_of_the_record_itself_ends_the_write_when_its_transactions_are_committed() -> None:
    """One more transaction of the control id would decide what hangs there, so the status is not written."""
    lost = TopicPartition("commits", 0)
    asked, outcome = listed(
        commit(BOTH, 5), [Voted(), ControlWritten(NEWER), ALL_ENDED, COMMITTED._replace(hanging=(lost,))]
    )
    assert asked[-1] == ReadLogs((ONE, TWO), HELD)
    assert isinstance(outcome, Failed)
    assert (outcome.kind, outcome.names) == (FailureKind.HUNG, ("commits-0",))


def test_markers_that_a_read_has_found_are_not_looked_for_again() -> None:
    again: list[Result] = [
        Indeterminate(),
        Fenced(NEWEST),
        Found(DECIDED),
        ALL_ENDED,
        COMMITTED,
        ControlWritten(NEWEST),
    ]
    asked, _ = listed(
        commit(BOTH, 5),
        [Voted(), ControlWritten(NEWER), ALL_ENDED, COMMITTED, *again],
    )
    assert [each for each in asked if isinstance(each, ReadLogs)] == [ReadLogs((ONE, TWO), HELD), ReadLogs((ONE, TWO))]


def test_inline_rows_alone_are_done_with_one_write() -> None:
    asked, outcome = listed(commit([inline(2, 0, of=OURS), inline(0, of=OURS)], 5), [ControlWritten(NEWER)])
    done = DONE._replace(inline=(TopicPartition("t", 0), TopicPartition("t", 2)), rows=3, done_rows=3)
    assert asked == [WriteControl(HELD, done, inline=True)]
    assert outcome == WriteCommitted(5)


def test_a_batch_without_rows_is_written_too() -> None:
    asked, outcome = listed(commit([inline(of=OURS)], 5), [ControlWritten(NEWER)])
    assert asked == [WriteControl(HELD, DONE._replace(rows=0, done_rows=0))]
    assert outcome == WriteCommitted(5)
    _, overtaken = listed(commit([inline(of=OURS)], 5), [FencedOff()])
    assert isinstance(overtaken, Failed)


ORPHAN = TWO._replace(transactional_id="pyproducer.orders.x.9")
SWEPT = TasksEnded((EndRefused(90),))


def test_what_dead_tasks_have_left_open_is_aborted_when_all_is_done() -> None:
    asked, outcome = listed(
        commit(BOTH, 5),
        [Voted(), ControlWritten(NEWER), ALL_ENDED, COMMITTED, ControlWritten(NEWEST), SWEPT],
        Opened((ORPHAN,)),
    )
    assert asked[-1] == EndTasks((ORPHAN,), commit=False)
    assert outcome == WriteCommitted(5)
    asked, outcome = listed(commit([inline(0, of=OURS)], 5), [ControlWritten(NEWER), SWEPT], Opened((ORPHAN,)))
    assert (asked[-1], outcome) == (EndTasks((ORPHAN,), commit=False), WriteCommitted(5))


def test_what_is_the_writes_own_is_not_asked_for() -> None:
    start = commit([*BOTH, inline(0, of=OURS)], 5)
    assert not isinstance(start, AlreadyDone | WriteCommitted | Failed)
    assert isinstance(start, ListingOrphans)
    following = WriteControl(HELD, start.record, inline=True, awaits_markers=False)
    assert start.command == ListOpen((ONE, TWO), following)
    asked, _ = ended(start, [NOTHING, Voted(("an objection",))])
    assert asked == [ListOpen((ONE, TWO), following), Vote((ONE, TWO), HELD)]


def test_the_write_that_is_sent_with_the_listing_is_the_one_that_is_continued() -> None:
    for messages in (BOTH, [inline(0, of=OURS)]):
        asked, _ = ended(commit(messages, 5), [NOTHING, *[Voted()] * (messages is BOTH), FencedOff()])
        assert isinstance(asked[0], ListOpen)
        assert asked[-1] == asked[0].following


FINDS_OUT_LATER: list[Result] = [Indeterminate(), Fenced(NEWER), Found(DONE._replace(token=OURS.token))]


def test_orphans_are_aborted_after_an_unanswered_commit_and_left_if_it_has_not_happened() -> None:
    asked, outcome = listed(commit([inline(0, of=OURS)], 5), [*FINDS_OUT_LATER, SWEPT], Opened((ORPHAN,)))
    assert (asked[-1], outcome) == (EndTasks((ORPHAN,), commit=False), WriteCommitted(5))
    ends: list[list[Result]] = [
        [FencedOff()],
        [Indeterminate(), Fenced(NEWER), Found(LAST)],
        [MarkersLost((TopicPartition("c", 0),))],
    ]
    for end in ends:
        asked, outcome = listed(commit([inline(0, of=OURS)], 5), end, Opened((ORPHAN,)))
        assert isinstance(outcome, Failed)


def test_both_kinds_of_tasks_go_into_one_decision() -> None:
    asked, outcome = listed(
        commit([inline(3, of=OURS), prepared(ONE, of=OURS)], 5),
        [
            Voted(),
            ControlWritten(HELD),
            TasksEnded((Ended(),)),
            LogOutcomes((TransactionOutcome.COMMITTED,)),
            ControlWritten(HELD),
        ],
    )
    decided = record(Status.COMMITTING, 5, TOKEN, ONE)._replace(inline=(TopicPartition("t", 3),), rows=3)
    assert asked[1] == WriteControl(HELD, decided, inline=True, awaits_markers=False)
    assert asked[4] == WriteControl(HELD, DONE._replace(rows=3, done_rows=3), awaits_markers=False)
    assert outcome == WriteCommitted(5)


def test_a_batch_write_without_a_version_leaves_the_versions_as_they_are() -> None:
    last = ControlRecord(SINK, "", Status.DONE, 8, 8, "old")
    message = inline(0, batch=NO_BATCH, of=handle(last))._replace(query="")
    asked, _ = listed(commit([message], NO_BATCH), [ControlWritten(NEWER)])
    assert isinstance(asked[0], WriteControl)
    assert (asked[0].record.batch, asked[0].record.last_done) == (NO_BATCH, 8)


def test_nothing_is_asked_for_a_batch_that_is_done() -> None:
    assert commit([skipped(4, OURS), skipped(4, OURS)], 4) == AlreadyDone(4)


NOT_ONE: list[tuple[str, Sequence[TaskOutcome], int, FailureKind]] = [
    ("no messages", [], 5, FailureKind.MIXED),
    ("another batch", BOTH, 6, FailureKind.MIXED),
    ("two executions", [BOTH[0], prepared(TWO, of=OURS._replace(token="theirs"))], 5, FailureKind.MIXED),
    ("two queries", [BOTH[0], BOTH[1]._replace(query="r")], 5, FailureKind.MIXED),
    ("skipped and written", [BOTH[0], skipped(of=OURS)], 5, FailureKind.MIXED),
    ("written although done", [prepared(ONE, 4, OURS)], 4, FailureKind.MIXED),
    ("rewound", [inline(0, batch=3, of=OURS)], 3, FailureKind.REFUSED),
    ("another query", [inline(0, of=OURS)._replace(query="r")], 5, FailureKind.REFUSED),
]


@pytest.mark.parametrize(("messages", "batch", "kind"), [row[1:] for row in NOT_ONE], ids=[row[0] for row in NOT_ONE])
def test_messages_that_do_not_belong_together_commit_nothing(
    messages: Sequence[TaskOutcome], batch: int, kind: FailureKind
) -> None:
    outcome = commit(messages, batch)
    assert isinstance(outcome, Failed)
    assert outcome.kind is kind


STOPS: list[tuple[str, list[Result], FailureKind]] = [
    ("vote", [Voted(("a timed out",))], FailureKind.VOTE),
    ("overtaken before the vote", [Voted(("a gone",), overtaken=True)], FailureKind.FENCED),
    ("overtaken", [Voted(), FencedOff()], FailureKind.FENCED),
    ("older transaction hangs", [Voted(), OlderTransactionHangs((TopicPartition("t", 1),))], FailureKind.GLUED),
    ("not written", [Voted(), Indeterminate(), Fenced(NEWER), Found(LAST)], FailureKind.NOT_WRITTEN),
    ("never written", [Voted(), Indeterminate(), Fenced(NEWER), Found(None)], FailureKind.NOT_WRITTEN),
    ("only BEGIN wrote", [Voted(), Indeterminate(), Fenced(NEWER), Found(record(Status.INTENT))], FailureKind.NOT_WRITTEN),
    ("gone on from", [Voted(), Indeterminate(), Fenced(NEWER), Found(record(Status.DONE, 6, "new"))], FailureKind.NOT_WRITTEN),
    ("unreadable", [Voted(), Indeterminate(), Fenced(NEWER), MarkersLost((TopicPartition("c", 0),))], FailureKind.HUNG),
    ("void by another", [Voted(), Indeterminate(), Fenced(NEWER), Found(record(Status.VOID))], FailureKind.VOID),
    ("partial by another", [Voted(), Indeterminate(), Fenced(NEWER), Found(record(Status.PARTIAL))], FailureKind.PARTIAL),
    (
        "timed out",
        [
            Voted(), ControlWritten(HELD), TasksEnded((EndRefused(90), EndRefused(90))),
            LogOutcomes((TransactionOutcome.ABORTED, TransactionOutcome.ABORTED)),
            ControlWritten(HELD),
        ],
        FailureKind.VOID,
    ),
    (
        "some timed out",
        [
            Voted(), ControlWritten(HELD), TasksEnded((Ended(), EndRefused(90))),
            LogOutcomes((TransactionOutcome.COMMITTED, TransactionOutcome.ABORTED)),
            ControlWritten(HELD),
        ],
        FailureKind.PARTIAL,
    ),
    ("overtaken at DONE", [Voted(), ControlWritten(HELD), ALL_ENDED, COMMITTED, FencedOff()], FailureKind.FENCED),
    (
        "taken over at DONE",
        [
            Voted(), ControlWritten(HELD), ALL_ENDED, COMMITTED, Indeterminate(), Fenced(NEWEST),
            Found(record(Status.DONE, 6, "new")),
        ],
        FailureKind.FENCED,
    ),
]  # fmt: skip


@pytest.mark.parametrize(("answers", "kind"), [row[1:] for row in STOPS], ids=[row[0] for row in STOPS])
def test_commit_stops(answers: list[Result], kind: FailureKind) -> None:
    _, outcome = listed(commit(BOTH, 5), answers)
    assert isinstance(outcome, Failed)
    assert outcome.kind is kind
    assert SINK in outcome.text


def test_a_write_without_a_number_is_not_run_again_where_it_may_be_committed() -> None:
    """No commit would skip it: its record may have been there before another one replaced it."""
    last = ControlRecord(SINK, "", Status.DONE, 8, 8, "old")
    unnumbered = handle(last)
    small = [inline(0, batch=NO_BATCH, of=unnumbered)._replace(query="")]
    large = [prepared(ONE, NO_BATCH, unnumbered)._replace(query="")]
    looked: list[Result] = [Indeterminate(), Fenced(NEWER)]
    voted: list[Result] = [
        Voted(),
        ControlWritten(HELD),
        TasksEnded((Ended(),)),
        LogOutcomes((TransactionOutcome.COMMITTED,)),
    ]
    ways: list[tuple[Sequence[TaskOutcome], list[Result], FailureKind]] = [
        (small, [*looked, Found(last)], FailureKind.NOT_WRITTEN),
        (small, [*looked, Found(last._replace(status=Status.INTENT, token=TOKEN))], FailureKind.NOT_WRITTEN),
        (small, [*looked, Found(None)], FailureKind.NOT_WRITTEN),
        (small, [*looked, Found(last._replace(token="new"))], FailureKind.UNKNOWN),
        (small, [*looked, Found(last._replace(status=Status.INTENT, token="new"))], FailureKind.UNKNOWN),
        (small, [FencedOff()], FailureKind.FENCED),
        (large, [*voted, FencedOff()], FailureKind.UNKNOWN),
        (large, [*voted, Indeterminate(), Fenced(NEWEST), Found(last._replace(token="new"))], FailureKind.UNKNOWN),
    ]
    for messages, answers, kind in ways:
        _, outcome = listed(commit(messages, NO_BATCH), answers)
        assert isinstance(outcome, Failed)
        assert outcome.kind is kind
        assert (kind in RUNS_AGAIN) == (kind is not FailureKind.UNKNOWN)


def test_who_is_fenced_hears_both_reasons_there_may_be() -> None:
    """A newer epoch is that of a newer driver, or of the brokers, which abort a transaction that is open for too long."""
    _, outcome = listed(commit([inline(0, of=OURS)], 5), [FencedOff()])
    assert isinstance(outcome, Failed)
    assert "a newer driver" in outcome.text
    assert "more than a minute" in outcome.text


def test_an_unanswered_commit_that_is_in_the_log_is_carried_out_with_the_new_fence() -> None:
    asked, outcome = listed(
        commit(BOTH, 5),
        [Voted(), Indeterminate(), Fenced(NEWER), Found(DECIDED), ALL_ENDED, COMMITTED, ControlWritten(NEWEST)],
    )
    assert asked[2:5] == [Fence(), ReadControl(), EndTasks((ONE, TWO), commit=True)]
    assert asked[-1] == WriteControl(NEWER, DONE, awaits_markers=False)
    assert outcome == WriteCommitted(5)


def test_an_unanswered_commit_of_inline_rows_that_is_in_the_log_is_done() -> None:
    _, outcome = listed(commit([inline(0, of=OURS)], 5), [Indeterminate(), Fenced(NEWER), Found(DONE)])
    assert outcome == WriteCommitted(5)


def test_a_decision_whose_own_end_hangs_is_carried_out_before_people_are_called() -> None:
    asked, outcome = listed(
        commit(BOTH, 5),
        [
            Voted(),
            MarkersLost((TopicPartition("c", 0),)),
            ALL_ENDED,
            LogOutcomes((TransactionOutcome.COMMITTED, TransactionOutcome.OPEN), (TopicPartition("t", 2),)),
        ],
    )
    assert asked[2] == EndTasks((ONE, TWO), commit=True)
    assert isinstance(outcome, Failed)
    assert (outcome.kind, outcome.names) == (FailureKind.HUNG, ("c-0", "t-2"))


def test_an_unanswered_decision_that_is_there_is_carried_out_although_its_rows_hang() -> None:
    decided = record(Status.COMMITTING, 5, OURS.token, ONE, TWO)._replace(inline=(TopicPartition("t", 9),))
    asked, outcome = listed(
        commit([*BOTH, inline(9, of=OURS)], 5),
        [
            Voted(),
            Indeterminate(),
            Fenced(NEWER),
            MarkersLost((TopicPartition("t", 9),), decided),
            ALL_ENDED,
            COMMITTED,
        ],
    )
    assert asked[4] == EndTasks((ONE, TWO), commit=True)
    assert isinstance(outcome, Failed)
    assert (outcome.kind, outcome.names) == (FailureKind.HUNG, ("t-9",))


def test_inline_rows_without_a_marker_are_reported() -> None:
    _, outcome = listed(commit([inline(0, of=OURS)], 5), [MarkersLost((TopicPartition("t", 0),))])
    assert isinstance(outcome, Failed)
    assert (outcome.kind, outcome.names) == (FailureKind.HUNG, ("t-0",))


@pytest.mark.parametrize(
    "answers",
    [
        pytest.param([Indeterminate(), Fenced(NEWER), MarkersLost((TopicPartition("c", 0),))], id="not answered"),
        pytest.param([MarkersLost((TopicPartition("c", 0),))], id="the control record hangs"),
    ],
)
def test_a_hanging_write_without_a_number_must_be_checked_by_a_person(
    answers: list[Result],
) -> None:
    def reported(batch: int) -> str:
        start = commit([inline(0, batch=batch, of=OURS._replace(last=None))._replace(query="")], batch)
        _, outcome = listed(start, answers)
        assert isinstance(outcome, Failed)
        assert (outcome.kind, outcome.names) == (FailureKind.HUNG, ("c-0",))
        return outcome.text

    assert "and start again" in reported(5)
    assert "and start again" not in reported(NO_BATCH)
    assert "Do not run it again" in reported(NO_BATCH)
    assert "`pyproducer txn describe orders`" in reported(NO_BATCH)


def test_an_unanswered_done_is_looked_for_and_carried_out_again_if_it_is_missing() -> None:
    first: list[Result] = [Voted(), ControlWritten(HELD), ALL_ENDED, COMMITTED, Indeterminate()]
    asked, outcome = listed(
        commit(BOTH, 5), [*first, Fenced(NEWER), Found(DECIDED), ALL_ENDED, COMMITTED, ControlWritten(NEWEST)]
    )
    assert [request.fencing for request in asked if isinstance(request, WriteControl)] == [HELD, HELD, NEWER]
    assert outcome == WriteCommitted(5)
    assert listed(commit(BOTH, 5), [*first, Fenced(NEWER), Found(DONE)])[1] == WriteCommitted(5)


def test_mixed_rows_are_never_void() -> None:
    refused, aborted = TasksEnded((EndRefused(90),)), LogOutcomes((TransactionOutcome.ABORTED,))
    _, outcome = listed(
        commit([inline(3, of=OURS), prepared(ONE, of=OURS)], 5),
        [Voted(), ControlWritten(HELD), refused, aborted, ControlWritten(HELD)],
    )
    assert isinstance(outcome, Failed)
    assert (outcome.kind, outcome.names) == (FailureKind.PARTIAL, (ONE.transactional_id,))


def test_the_query_of_a_sink_is_written_with_its_first_batch() -> None:
    asked, _ = listed(commit([inline(0, batch=0, of=handle(None))], 0), [ControlWritten(HELD)])
    assert isinstance(asked[0], WriteControl)
    assert (asked[0].record.query, asked[0].record.last_done) == (QUERY, 0)
