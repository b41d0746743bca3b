"""Random answers to begin, commit and abort: whatever a cluster says, some things are never done, and every way ends."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise, product
from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from spark_producer.common.cluster import ProducerIdAndEpoch, TopicPartition
from spark_producer.exactly_once.protocol.abort import abort
from spark_producer.exactly_once.protocol.begin import begin
from spark_producer.exactly_once.protocol.commands import (
    Command,
    ControlIdHolder,
    ControlWritten,
    DescribeControlId,
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
    Missing,
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
)
from spark_producer.exactly_once.protocol.commit import commit
from spark_producer.exactly_once.protocol.control_record import UNFINISHED, Status, TaskTransaction
from spark_producer.exactly_once.protocol.outcomes import (
    AlreadyDone,
    Begun,
    Failed,
    NothingToAbort,
    Outcome,
    WriteAborted,
    WriteCommitted,
)
from spark_producer.exactly_once.protocol.state_machine import MAX_TRIES, Next
from tests.unit.exactly_once.script import SINK, TOKEN, handle, inline, prepared, record, task

TASKS = [task(number) for number in range(3)]
LAST = record(Status.DONE, 4, "old")
PARTITION_0 = ((TopicPartition("commits", 0),), (TopicPartition("t", 1), TopicPartition("t", 2)))
FENCINGS = [ProducerIdAndEpoch(7, epoch) for epoch in (1, 2, 3)]
SOME = [TASKS[:1], TASKS[1:3], TASKS]
RECORDS = [
    record(status, 5, token, *transactions)._replace(inline=rows)
    for status, token, transactions, rows in product(
        Status, (TOKEN, "old", "newer"), SOME, ((), (TopicPartition("t", 9),))
    )
]
RESULTS: tuple[Ended | EndRefused, ...] = (Ended(), EndRefused(90))
MAX_COMMANDS = 8 * (MAX_TRIES + 1)
"""BEGIN takes eight asks at most, and starts over a few times."""


def answers(command: Command) -> list[Result]:
    """Return all results that `command` may have."""
    match command:
        case Fence():
            return [Fenced(fencing) for fencing in FENCINGS]
        case DescribeControlId():
            return [ControlIdHolder(None), *map(ControlIdHolder, FENCINGS)]
        case ReadControl():
            return [Found(None), *map(Found, RECORDS), Missing("commits"), *map(MarkersLost, PARTITION_0)]
        case ListOpen(excluding):
            return [Opened(()), *(Opened(tuple(some)) for some in SOME if not set(excluding) & set(some))]
        case WriteControl():
            refusals: list[Result] = [FencedOff(), FencedOff(expired=True), Indeterminate()]
            return [
                *map(ControlWritten, FENCINGS),
                *map(MarkersLost, PARTITION_0),
                *refusals,
                *map(OlderTransactionHangs, PARTITION_0),
            ]
        case Vote():
            return [Voted(), Voted(("too old",))]
        case EndTasks(transactions):
            return [TasksEnded(results) for results in product(RESULTS, repeat=len(transactions))]
        case ReadLogs(transactions):
            return [
                LogOutcomes(fates, PARTITION_0[1]) for fates in product(TransactionOutcome, repeat=len(transactions))
            ]


class Reports(NamedTuple):
    """An ask and its answer."""

    command: Command
    answer: Result


def play(start: Next, data: st.DataObject) -> tuple[list[Reports], Outcome | None]:
    """A whole way with random answers; without an outcome if it is too long."""
    reported: list[Reports] = []
    now = start
    while not isinstance(now, Begun | WriteCommitted | AlreadyDone | WriteAborted | NothingToAbort | Failed):
        if len(reported) == MAX_COMMANDS:
            return reported, None
        choices = answers(now.command)
        answer = choices[data.draw(st.integers(0, len(choices) - 1))]
        reported.append(Reports(now.command, answer))
        now = now.on_result(answer)
    return reported, now


STARTS: dict[str, Callable[[], Next]] = {
    "begin": lambda: begin(SINK, "new"),
    "commit": lambda: commit([prepared(TASKS[0], of=handle(LAST)), inline(3, of=handle(LAST))], 5),
    "commit inline": lambda: commit([inline(0, of=handle(LAST))], 5),
    "abort": lambda: abort([prepared(TASKS[0]), prepared(TASKS[1]), None]),
}
starts = st.sampled_from(sorted(STARTS))
few = settings(max_examples=150, deadline=None)


@few
@given(start=starts, data=st.data())
def test_every_way_ends(start: str, data: st.DataObject) -> None:
    reported, outcome = play(STARTS[start](), data)
    assert outcome is not None, reported


@few
@given(start=starts, data=st.data())
def test_after_an_unanswered_write_comes_a_fence_and_never_the_same_write(start: str, data: st.DataObject) -> None:
    reported, _ = play(STARTS[start](), data)
    for one, following in pairwise(reported):
        if isinstance(one.answer, Indeterminate):
            assert following.command == Fence()
            assert isinstance(one.command, WriteControl)
    for index, one in enumerate(reported):
        if isinstance(one.command, WriteControl) and one.command.fencing != handle().fencing:
            givers = [
                before.answer for before in reported[:index] if isinstance(before.answer, Fenced | ControlWritten)
            ]
            assert givers, "an unknown epoch"
            assert givers[-1].fencing == one.command.fencing, "not the newest epoch"


@few
@given(start=starts, data=st.data())
def test_what_is_decided_is_never_aborted(start: str, data: st.DataObject) -> None:
    reported, _ = play(STARTS[start](), data)
    decided: set[TaskTransaction] = set()
    for command, answer in reported:
        if isinstance(answer, Found):
            unfinished = answer.record is not None and answer.record.status in UNFINISHED
            decided = set(answer.record.transactions) if answer.record is not None and unfinished else set()
            if start == "abort" and answer.record is not None and answer.record.token != TOKEN:
                decided = set()  # a record of another execution names none of this one's transactions
        elif isinstance(command, WriteControl) and isinstance(answer, ControlWritten):
            decided = set(command.record.transactions) if command.record.status is Status.COMMITTING else set()
        elif isinstance(command, EndTasks) and not command.commit:
            assert not decided & set(command.transactions)


@few
@given(data=st.data())
def test_orphans_are_aborted_only_after_they_were_named_in_a_fenced_write(data: st.DataObject) -> None:
    reported, _ = play(STARTS["begin"](), data)
    for index, (command, _) in enumerate(reported):
        if isinstance(command, EndTasks) and not command.commit:
            before = reported[index - 1]
            assert isinstance(before.command, WriteControl)
            assert isinstance(before.answer, ControlWritten)
            assert before.command.record.status is Status.INTENT
            assert before.command.record.transactions == command.transactions


@few
@given(data=st.data())
def test_begin_fences_and_reads_before_it_does_anything_else(data: st.DataObject) -> None:
    reported, outcome = play(STARTS["begin"](), data)
    assert [one.command for one in reported[:2]] == [Fence(), ReadControl()]
    if isinstance(outcome, Begun):
        givers = [one.answer for one in reported if isinstance(one.answer, Fenced | ControlWritten)]
        assert givers[-1].fencing == outcome.fencing


@few
@given(start=st.sampled_from(["commit", "commit inline"]), data=st.data())
def test_committed_means_that_the_record_is_known_to_be_there_and_all_of_it_is_done(
    start: str, data: st.DataObject
) -> None:
    reported, outcome = play(STARTS[start](), data)
    if isinstance(outcome, WriteCommitted):
        done = [
            one for one in reported
            if (isinstance(one.command, WriteControl) and one.command.record.status is Status.DONE
                and isinstance(one.answer, ControlWritten))
            or (isinstance(one.answer, Found) and one.answer.record and one.answer.record.status is Status.DONE
                and one.answer.record.token == TOKEN)
        ]  # fmt: skip
        assert done, "committed, but invisible"
        assert done[-1] in reported[-2:]
        assert done[-1] == reported[-1] or reported[-1].command == EndTasks(orphans_of(reported), commit=False)


def orphans_of(reported: list[Reports]) -> tuple[TaskTransaction, ...]:
    """Open transactions before the commit point are looked up first."""
    assert isinstance(reported[0].answer, Opened)
    return reported[0].answer.transactions


@few
@given(start=st.sampled_from(["commit", "commit inline"]), data=st.data())
def test_a_commit_aborts_nothing_but_orphans_and_these_last_of_all(start: str, data: st.DataObject) -> None:
    reported, outcome = play(STARTS[start](), data)
    aborted = [
        index for index, (command, _) in enumerate(reported) if isinstance(command, EndTasks) and not command.commit
    ]
    assert aborted in ([], [len(reported) - 1])
    if isinstance(outcome, WriteCommitted):
        assert bool(aborted) == bool(orphans_of(reported))
