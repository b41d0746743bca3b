"""ABORT: aborts the tasks' open transactions, unless the execution is committed. Spark may call it in either case.

When `commit` raised an error, its record may be in the log. So nothing is aborted before the control id is fenced or has a newer
holder, and the last control record has been read. A driver that was overtaken does not fence, since that would stop the newer
one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, TypeAlias

from spark_producer.common.cluster import ProducerIdAndEpoch
from spark_producer.exactly_once.protocol import roll_forward
from spark_producer.exactly_once.protocol.commands import (
    Command,
    ControlIdHolder,
    DescribeControlId,
    Ended,
    EndTasks,
    Fence,
    Fenced,
    Missing,
    ReadControl,
    Result,
    TasksEnded,
)
from spark_producer.exactly_once.protocol.control_record import (
    DECIDED,
    UNFINISHED,
    ControlRecord,
    Status,
    TaskTransaction,
)
from spark_producer.exactly_once.protocol.final_status import void
from spark_producer.exactly_once.protocol.outcomes import (
    Failed,
    NothingToAbort,
    RolledForward,
    WriteAborted,
    WriteCommitted,
)
from spark_producer.exactly_once.protocol.state_machine import expect, read_result
from spark_producer.exactly_once.protocol.task_messages import PreparedTask, TaskOutcome, WriteHandle


class ExecutionState(NamedTuple):
    """State of an execution when it is aborted: its handle, and the transactions that its tasks have reported."""

    handle: WriteHandle
    transactions: tuple[TaskTransaction, ...]


@dataclass(frozen=True, slots=True)
class CheckingHolder:
    """Checks whether another driver has fenced the control id, or written, since this execution began."""

    failpoint: ClassVar = "abort.asking"

    execution: ExecutionState

    @property
    def command(self) -> DescribeControlId:
        return DescribeControlId()

    def on_result(self, result: Result) -> Next:
        if expect(self, result, ControlIdHolder).fencing == self.execution.handle.fencing:
            return FencingExecution(self.execution)
        return ReadingDecision(self.execution, None)


@dataclass(frozen=True, slots=True)
class FencingExecution:
    """Fences the control id, which ends the commit of this execution if one is in flight. No other driver holds the id."""

    failpoint: ClassVar = "abort.taking"

    execution: ExecutionState

    @property
    def command(self) -> Fence:
        return Fence()

    def on_result(self, result: Result) -> Next:
        return ReadingDecision(self.execution, expect(self, result, Fenced).fencing)


@dataclass(frozen=True, slots=True)
class ReadingDecision:
    """Reads whether this execution is decided. `fencing` is None if another driver holds the control id."""

    failpoint: ClassVar = "abort.reading"

    execution: ExecutionState
    fencing: ProducerIdAndEpoch | None

    @property
    def command(self) -> ReadControl:
        return ReadControl()

    def on_result(self, result: Result) -> Next:
        if isinstance(result, Missing):
            return NothingToAbort(
                f"it is unknown whether the execution was decided: its record is not in {result.topic!r}"
            )
        record, hanging = read_result(self, result)
        if hanging and record is None:
            return NothingToAbort(
                "the control record cannot be read yet: the next write of this sink continues from it"
            )
        if record is None and self.execution.handle.last is not None:
            return NothingToAbort("it is unknown whether the execution was decided: the sink's control record is gone")
        if record is None or record.token != self.execution.handle.token or record.status not in DECIDED:
            return AbortingTransactions(self.execution.transactions)
        if self.fencing is not None:
            return continue_roll_forward(roll_forward.start(roll_forward.DecidedWrite(record, self.fencing, hanging)))
        if record.status in UNFINISHED:
            return CommittingLeftovers(record)
        return NothingToAbort(f"the execution was decided: {record.status.value}")


@dataclass(frozen=True, slots=True)
class AbortingTransactions:
    """Aborts the transactions of an execution that will never be committed. A refusal means that one has ended already."""

    failpoint: ClassVar = "abort.ending"

    transactions: tuple[TaskTransaction, ...]

    @property
    def command(self) -> EndTasks:
        return EndTasks(self.transactions, commit=False)

    def on_result(self, result: Result) -> Next:
        found = expect(self, result, TasksEnded)
        ended = zip(self.transactions, found.results, strict=True)
        return WriteAborted(tuple(one.transactional_id for one, result in ended if isinstance(result, Ended)))


@dataclass(frozen=True, slots=True)
class CommittingLeftovers:
    """Commits the transactions of a committed execution before they time out. The holder of the sink writes the final status."""

    failpoint: ClassVar = "abort.helping"

    record: ControlRecord

    @property
    def command(self) -> EndTasks:
        return EndTasks(self.record.transactions, commit=True)

    def on_result(self, result: Result) -> Next:
        expect(self, result, TasksEnded)
        return NothingToAbort(
            "the execution was decided: its transactions are committed, and the next write of this sink checks them"
        )


@dataclass(frozen=True, slots=True)
class RollingForwardExecution:
    """Rolls forward a committed execution, as COMMIT does."""

    failpoint: ClassVar = "abort.finishing"

    roll_forward_state: roll_forward.RollForwardState

    @property
    def command(self) -> Command:
        return self.roll_forward_state.command

    def on_result(self, result: Result) -> Next:
        return continue_roll_forward(self.roll_forward_state.on_result(result))


AbortState: TypeAlias = (
    CheckingHolder
    | FencingExecution
    | ReadingDecision
    | AbortingTransactions
    | CommittingLeftovers
    | RollingForwardExecution
)
Next: TypeAlias = AbortState | WriteAborted | WriteCommitted | NothingToAbort | Failed


def abort(messages: Sequence[TaskOutcome | None]) -> Next:
    """Return the first state of ABORT, or the outcome if there is nothing to do. `messages` has None for a task without a report.

    The transactions of such tasks are unknown here; the next BEGIN finds and aborts them.
    """
    prepared = [one for one in messages if isinstance(one, PreparedTask)]
    if not prepared:
        return NothingToAbort("no task has reported a transaction")
    handle = prepared[0].handle
    return CheckingHolder(ExecutionState(handle, tuple(one.transaction for one in prepared if one.handle == handle)))


def continue_roll_forward(roll_forward_state: roll_forward.Next) -> Next:
    """Return the state of ABORT after a state of its roll-forward."""
    match roll_forward_state:
        case Failed():
            return roll_forward_state
        case RolledForward(record, _):
            return WriteCommitted(record.batch) if record.status is Status.DONE else void(record)
        case _:
            return RollingForwardExecution(roll_forward_state)
