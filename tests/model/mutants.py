"""Drivers with one rule of the design broken: states around the product's own, so that searches show the purpose of each rule."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from spark_producer.exactly_once.protocol import abort, begin, commit, roll_forward
from spark_producer.exactly_once.protocol.commands import (
    Fence,
    Fenced,
    Found,
    Indeterminate,
    ListOpen,
    LogOutcomes,
    Opened,
    ReadControl,
    Result,
    WriteControl,
)
from spark_producer.exactly_once.protocol.control_record import UNFINISHED, Status
from spark_producer.exactly_once.protocol.final_status import final_status, with_final_status
from spark_producer.exactly_once.protocol.outcomes import (
    AlreadyDone,
    Failed,
    FailureKind,
    RolledForward,
    WriteCommitted,
)
from spark_producer.exactly_once.protocol.state_machine import Next, WriteState
from spark_producer.exactly_once.protocol.task_messages import PreparedTask, TaskOutcome

Change = Callable[[object, Result], Any]
"""The next state instead, from the innermost state and a result; None where nothing is changed."""


def changed(change: Change) -> Callable[[WriteState, Result], Next]:
    """The product's states with `change`, also in a roll forward."""

    def on_result(step: WriteState, answer: Result) -> Next:
        match step:
            case begin.RollingForwardEarlierWrite(parameters, roll_forward_state):
                instead = change(roll_forward_state, answer)
                return step.on_result(answer) if instead is None else begin.continue_roll_forward(parameters, instead)
            case commit.RollingForwardWrite(roll_forward_state, orphans):
                instead = change(roll_forward_state, answer)
                return (
                    step.on_result(answer)
                    if instead is None
                    else commit.continue_roll_forward(instead, orphans, roll_forward_state.write.record)
                )
            case abort.RollingForwardExecution(roll_forward_state):
                instead = change(roll_forward_state, answer)
                return step.on_result(answer) if instead is None else abort.continue_roll_forward(instead)
        instead = change(step, answer)
        return step.on_result(answer) if instead is None else instead

    return on_result


# --- whole machines -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FreshEpoch:
    """A commit that takes its own epoch of the control id, instead of that of BEGIN."""

    failpoint: ClassVar = "freshepoch"

    messages: tuple[TaskOutcome, ...]
    batch: int

    @property
    def command(self) -> Fence:
        return Fence()

    def on_result(self, answer: Result) -> Next:
        assert isinstance(answer, Fenced)
        handle = self.messages[0].handle._replace(fencing=answer.fencing)
        return commit.commit([one._replace(handle=handle) for one in self.messages], self.batch)


def commit_with_a_fresh_epoch(messages: Sequence[TaskOutcome], batch: int) -> Next:
    return FreshEpoch(tuple(messages), batch)


@dataclass(frozen=True)
class ReadsFirst:
    """A BEGIN that reads before it fences."""

    failpoint: ClassVar = "readsfirst"

    parameters: begin.BeginParameters

    @property
    def command(self) -> ReadControl:
        return ReadControl()

    def on_result(self, answer: Result) -> Next:
        return FencesThen(self.parameters, answer)


@dataclass(frozen=True)
class FencesThen:
    """The fence after the read."""

    failpoint: ClassVar = "fencesthen"

    parameters: begin.BeginParameters
    read: Result

    @property
    def command(self) -> Fence:
        return Fence()

    def on_result(self, answer: Result) -> Next:
        assert isinstance(answer, Fenced)
        return begin.ReadingControlRecord(self.parameters, answer.fencing).on_result(self.read)


@dataclass(frozen=True)
class ListsLate:
    """A commit that lists open transactions after DONE, when a newer driver's may be among them."""

    failpoint: ClassVar = "listslate"

    batch: int

    @property
    def command(self) -> ListOpen:
        return ListOpen()

    def on_result(self, answer: Result) -> Next:
        assert isinstance(answer, Opened)
        return (
            commit.AbortingLeftovers(self.batch, answer.transactions)
            if answer.transactions
            else WriteCommitted(self.batch)
        )


def commit_that_lists_late(step: WriteState, answer: Result) -> Next:
    following = step.on_result(answer)
    before = isinstance(
        step, commit.WritingControlRecord | commit.RollingForwardWrite | commit.ReadingControlRecordAfterFence
    )
    return ListsLate(following.batch) if before and isinstance(following, WriteCommitted) else following


def commit_that_knows_too_much(step: WriteState, answer: Result) -> Next:
    """A commit without a number reports that it may run again, although its outcome is unknown."""
    following = step.on_result(answer)
    if isinstance(following, Failed) and following.kind is FailureKind.UNKNOWN:
        return Failed(
            FailureKind.NOT_WRITTEN if isinstance(step, commit.ReadingControlRecordAfterFence) else FailureKind.FENCED,
            following.text,
        )
    return following


def begin_that_reads_first(sink: str, token: str) -> Next:
    return ReadsFirst(begin.BeginParameters(sink, token))


def commit_of_what_is_done(messages: Sequence[TaskOutcome], batch: int) -> Next:
    """A commit that does not check whether its batch is done."""
    handle = messages[0].handle._replace(last=None)
    return commit.commit([one._replace(handle=handle) for one in messages], batch)


def commit_that_counts_no_transactions(messages: Sequence[TaskOutcome], batch: int) -> Next:
    """A commit that does not count the rows in transactions of tasks."""
    return commit.commit([one._replace(rows=0) if isinstance(one, PreparedTask) else one for one in messages], batch)


def commit_that_notes_nothing(messages: Sequence[TaskOutcome], batch: int) -> Next:
    """A run that finds a number done does not record it."""
    start = commit.commit(messages, batch)
    return AlreadyDone(batch) if isinstance(start, commit.RecordingRun) else start


def commit_that_notes_lower_numbers(messages: Sequence[TaskOutcome], batch: int) -> Next:
    """A run that finds numbers done in a repeated micro-batch records the lower ones too."""
    start, handle, origin = commit.commit(messages, batch), messages[0].handle, messages[0].origin
    if not isinstance(start, AlreadyDone) or handle.last is None or not origin.run:
        return start
    return commit.RecordingRun(handle.fencing, handle.last._replace(run=origin.run), batch)


def abort_without_a_look(messages: Sequence[TaskOutcome | None]) -> Next:
    """An abort that aborts without a check."""
    return abort.AbortingTransactions(tuple(one.transaction for one in messages if isinstance(one, PreparedTask)))


# --- single steps -------------------------------------------------------------------------------------------------------


def no_intent(step: object, answer: Result) -> Any:
    """Orphans are aborted without a fenced write that names them."""
    if isinstance(step, begin.ListingOpenTransactions) and isinstance(answer, Opened) and answer.transactions:
        return begin.AbortingOrphans(step.fencing, begin.intent(step.parameters, step.last, answer.transactions))
    return None


def no_redrive(step: object, answer: Result) -> Any:
    """BEGIN takes the transactions of a decided write for orphans."""
    if not isinstance(step, begin.ReadingControlRecord) or not isinstance(answer, Found) or answer.record is None:
        return None
    return (
        begin.ListingOpenTransactions(step.parameters, step.fencing, answer.record)
        if answer.record.status in UNFINISHED
        else None
    )


def verdict_at_once(step: object, answer: Result) -> Any:
    """A driver calls a write partial without a fenced write that says so."""
    if isinstance(step, roll_forward.ReadingLogs) and isinstance(answer, LogOutcomes):
        following = step.on_result(answer)
        if isinstance(following, roll_forward.WritingStatus) and isinstance(following.outcome, Failed):
            return following.outcome
    return None


def no_done(step: object, answer: Result) -> Any:
    """The record does not become DONE after a roll forward."""
    if isinstance(step, roll_forward.ReadingLogs) and isinstance(answer, LogOutcomes):
        following = step.on_result(answer)
        if isinstance(following, roll_forward.WritingStatus) and isinstance(following.outcome, RolledForward):
            return RolledForward(step.write.record._replace(status=Status.DONE), step.write.fencing)
    return None


def void_with_inline_rows(step: object, answer: Result) -> Any:
    """A write whose inline rows are visible is called void."""
    if isinstance(step, roll_forward.ReadingLogs) and isinstance(answer, LogOutcomes):
        record = step.write.record
        if final_status(record._replace(inline=()), step.refused, answer.outcomes) is Status.VOID:
            void = with_final_status(record, Status.VOID)
            return roll_forward.WritingStatus(step.write, void, RolledForward(void, step.write.fencing))
    return None


def resend(step: object, answer: Result) -> Any:
    """A commit without a response is sent again."""
    return step if isinstance(step, commit.WritingControlRecord) and isinstance(answer, Indeterminate) else None


def token_alone(step: object, answer: Result) -> Any:
    """BEGIN's own INTENT counts as a commit, because it has the same token."""
    if (
        not isinstance(step, commit.ReadingControlRecordAfterFence)
        or not isinstance(answer, Found)
        or answer.record is None
    ):
        return None
    return WriteCommitted(step.record.batch) if answer.record.token == step.record.token else None


def abort_without_a_fence(step: object, answer: Result) -> Any:
    """An abort that checks, but does not fence, so a late EndTxn may change the state that it read."""
    return abort.ReadingDecision(step.execution, None) if isinstance(step, abort.CheckingHolder) else None


def inline_markers_unseen(step: object, answer: Result) -> Any:
    """The markers of the control record's own transaction are not looked for together with those of the tasks."""
    if isinstance(step, roll_forward.ReadingLogs) and isinstance(answer, LogOutcomes) and answer.hanging:
        return step.on_result(answer._replace(hanging=()))
    return None


class LeavesItsLook(commit.WritingControlRecord):
    """A commit of inline rows that leaves the look at their markers to the next BEGIN."""

    @property
    def command(self) -> WriteControl:
        return commit.write_command(self.fencing, self.record)._replace(awaits_markers=False)


def commit_that_leaves_its_look(step: object, answer: Result) -> Any:
    """A commit of inline rows is reported before its partitions show the markers: the next BEGIN looks, if there is one."""
    if not isinstance(step, commit.ListingOrphans) or not isinstance(answer, Opened):
        return None
    return LeavesItsLook(step.fencing, step.record, answer.transactions, step.previous_token)
