"""COMMIT: the rows of all tasks become visible, as a whole. Writing the control record is the commit point.

The record is written with the epoch that BEGIN took, never with a newer one: so a driver that has been overtaken cannot commit.
The record in the log decides, not the response. If there was no response, COMMIT fences and reads the log.

Tasks that died, or that lost a speculation, leave orphans: open transactions that no control record names. They are listed before
the commit point, which still has BEGIN's epoch: so none of them can belong to a newer driver. They are aborted at the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

from spark_producer.common.cluster import ProducerIdAndEpoch, TopicPartition
from spark_producer.exactly_once.protocol import roll_forward
from spark_producer.exactly_once.protocol.batch_admission import Refuse, Skip, admit
from spark_producer.exactly_once.protocol.commands import (
    Command,
    ControlWritten,
    EndTasks,
    Fence,
    Fenced,
    FencedOff,
    Indeterminate,
    ListOpen,
    MarkersLost,
    Missing,
    OlderTransactionHangs,
    Opened,
    ReadControl,
    Result,
    TasksEnded,
    Vote,
    Voted,
    WriteControl,
)
from spark_producer.exactly_once.protocol.control_record import (
    DECIDED,
    NO_BATCH,
    ControlRecord,
    Status,
    TaskTransaction,
)
from spark_producer.exactly_once.protocol.final_status import done, void
from spark_producer.exactly_once.protocol.outcomes import (
    AlreadyDone,
    Failed,
    FailureKind,
    RolledForward,
    WriteCommitted,
    fenced_off,
    markers_lost,
    no_record,
    partition_names,
)
from spark_producer.exactly_once.protocol.repeated_batch_check import check_repeated_batch, total_content
from spark_producer.exactly_once.protocol.state_machine import expect, read_result, write_result
from spark_producer.exactly_once.protocol.task_messages import (
    ForeachBatchOrigin,
    InlineRows,
    PreparedTask,
    Skipped,
    TaskOutcome,
    WriteHandle,
)

Orphans: TypeAlias = tuple[TaskTransaction, ...]
"""Transactions that were open before the commit point, and are not part of the write."""

LEFT_TO_OTHERS = frozenset({FailureKind.FENCED, FailureKind.EXPIRED, FailureKind.UNSURE})
"""Failures after which a decided write is completed by another driver."""


@dataclass(frozen=True, slots=True)
class ListingOrphans:
    """Lists the orphans: open transactions of the sink's tasks that are not part of the write, whose rows are sent meanwhile."""

    failpoint: ClassVar = "commit.listing"

    fencing: ProducerIdAndEpoch
    record: ControlRecord
    previous_token: str
    """the token of the sink's last control record when the write began; empty if there was none"""

    @property
    def command(self) -> ListOpen:
        return ListOpen(self.record.transactions, write_command(self.fencing, self.record))

    def on_result(self, result: Result) -> Next:
        following = CheckingTransactions if self.record.transactions else WritingControlRecord
        return following(self.fencing, self.record, expect(self, result, Opened).transactions, self.previous_token)


@dataclass(frozen=True, slots=True)
class CheckingTransactions:
    """Checks that all transactions can be committed. It is the last state in which the whole write can be aborted."""

    failpoint: ClassVar = "commit.voting"

    fencing: ProducerIdAndEpoch
    record: ControlRecord
    orphans: Orphans
    previous_token: str

    @property
    def command(self) -> Vote:
        return Vote(self.record.transactions, self.fencing)

    def on_result(self, result: Result) -> Next:
        found = expect(self, result, Voted)
        if not found.objections:
            return WritingControlRecord(self.fencing, self.record, self.orphans, self.previous_token)
        if found.overtaken:
            return fenced_off(self.record.sink, "its transactions were aborted, and nothing of it is visible")
        return Failed(
            FailureKind.VOTE,
            f"{describe_write(self.record)}: transactions of its tasks must not be committed ({'; '.join(found.objections)}). "
            "Nothing of it is visible, and it can be run again. If they were open too long, raise kafka.transaction.timeout.ms",
            found.objections,
        )


@dataclass(frozen=True, slots=True)
class WritingControlRecord:
    """Writes the control record: the commit point."""

    failpoint: ClassVar = "commit.writing"

    fencing: ProducerIdAndEpoch
    record: ControlRecord
    orphans: Orphans
    previous_token: str

    @property
    def command(self) -> WriteControl:
        return write_command(self.fencing, self.record)

    def on_result(self, result: Result) -> Next:
        match write_result(self, result):
            case ControlWritten(fencing):
                written = self.fencing if self.record.transactions else None
                return decided(roll_forward.DecidedWrite(self.record, fencing, written=written), self.orphans)
            case MarkersLost(partitions):
                # It is decided all the same: the tasks' transactions are committed before the write fails with HUNG.
                return decided(roll_forward.DecidedWrite(self.record, self.fencing, partitions), self.orphans)
            case FencedOff(expired):
                return fenced_off(self.record.sink, "nothing of this one is visible", expired=expired)
            case Indeterminate(reason):
                return FencingAfterTimeout(self.record, self.orphans, self.previous_token, reason)
            case OlderTransactionHangs(partitions):
                names = partition_names(partitions)
                return Failed(
                    FailureKind.GLUED,
                    f"{describe_write(self.record)}: an older transaction of the same producer hangs in "
                    f"{', '.join(names)}, and a commit would have committed its rows too. Both are aborted, and nothing is "
                    "visible. Run the write again, as a restarted query does",
                    names,
                )


@dataclass(frozen=True, slots=True)
class FencingAfterTimeout:
    """Fences the control id after a commit without a response. The fence ends the transaction, and the next read shows how."""

    failpoint: ClassVar = "commit.resolving"

    record: ControlRecord
    orphans: Orphans
    previous_token: str
    reason: str
    """why the outcome is unknown, for the message"""

    @property
    def command(self) -> Fence:
        return Fence()

    def on_result(self, result: Result) -> Next:
        fencing = expect(self, result, Fenced).fencing
        return ReadingControlRecordAfterFence(self.record, fencing, self.orphans, self.previous_token, self.reason)


@dataclass(frozen=True, slots=True)
class ReadingControlRecordAfterFence:
    """Reads after the fence whether the record was written. An `INTENT` with the same token is BEGIN's, not a commit.

    A record of another driver may have replaced the record of this write. A write with a number is then skipped when it runs
    again; a write without one would be repeated.
    """

    failpoint: ClassVar = "commit.looking"

    record: ControlRecord
    fencing: ProducerIdAndEpoch
    orphans: Orphans
    previous_token: str
    reason: str

    @property
    def command(self) -> ReadControl:
        return ReadControl()

    def on_result(self, result: Result) -> Next:
        if isinstance(result, Missing):
            return no_record(self.record.sink, result.topic)
        found, hanging = read_result(self, result)
        if found is not None and found.token == self.record.token and found.status in DECIDED:
            return decided(roll_forward.DecidedWrite(found, self.fencing, hanging), self.orphans)
        if hanging:
            return require_manual_check(self.record, markers_lost(self.record.sink, hanging))
        if found is None or found.token in (self.record.token, self.previous_token):
            why = "it has not happened"
        elif self.record.batch == NO_BATCH:
            return unknown_outcome(self.record, "the brokers did not answer the commit, and another write has followed")
        else:
            why = "it has not happened, or a newer driver has continued after it"
        cause = f" ({self.reason})" if self.reason else ""
        return Failed(
            FailureKind.NOT_WRITTEN,
            f"{describe_write(self.record)}: the brokers did not acknowledge the commit{cause}, and {why}. Run it again: no row "
            "will be written twice",
        )


@dataclass(frozen=True, slots=True)
class RollingForwardWrite:
    """Rolls the decided write forward."""

    failpoint: ClassVar = "commit.finishing"

    roll_forward_state: roll_forward.RollForwardState
    orphans: Orphans

    @property
    def command(self) -> Command:
        return self.roll_forward_state.command

    def on_result(self, result: Result) -> Next:
        following = self.roll_forward_state.on_result(result)
        record = self.roll_forward_state.write.record
        if isinstance(following, Failed) and following.kind in LEFT_TO_OTHERS and record.batch == NO_BATCH:
            return unknown_outcome(record, f"it is decided, and another driver completes it ({following.kind.value})")
        return continue_roll_forward(following, self.orphans, record)


@dataclass(frozen=True, slots=True)
class AbortingLeftovers:
    """Aborts the orphans of a committed batch, each by the epoch that was listed."""

    failpoint: ClassVar = "commit.sweeping"

    batch: int
    orphans: Orphans

    @property
    def command(self) -> EndTasks:
        return EndTasks(self.orphans, commit=False)

    def on_result(self, result: Result) -> Next:
        expect(self, result, TasksEnded)
        return WriteCommitted(self.batch)


@dataclass(frozen=True, slots=True)
class RecordingRun:
    """Records that this run has found a batch of an earlier run done. A second write with that number in this run is refused."""

    failpoint: ClassVar = "commit.noting"

    fencing: ProducerIdAndEpoch
    record: ControlRecord
    batch: int

    @property
    def command(self) -> WriteControl:
        return WriteControl(self.fencing, self.record)

    def on_result(self, result: Result) -> Next:
        match write_result(self, result):
            case ControlWritten():
                return AlreadyDone(self.batch)
            case MarkersLost(partitions):
                return markers_lost(self.record.sink, partitions)
            case FencedOff(expired):
                return fenced_off(self.record.sink, "this one stops; its batch was committed before", expired=expired)
            case Indeterminate() | OlderTransactionHangs():
                return Failed(
                    FailureKind.NOT_WRITTEN,
                    f"sink {self.record.sink!r}, batch {self.batch}: it was committed before, but the brokers did not "
                    "acknowledge the control record that names this run. Run it again: no row will be written twice",
                )


CommitState: TypeAlias = (
    ListingOrphans
    | CheckingTransactions
    | WritingControlRecord
    | FencingAfterTimeout
    | ReadingControlRecordAfterFence
    | RollingForwardWrite
    | AbortingLeftovers
    | RecordingRun
)
Next: TypeAlias = CommitState | WriteCommitted | AlreadyDone | Failed


def commit(messages: Sequence[TaskOutcome], batch: int) -> Next:
    """Return the first state of COMMIT, or the outcome if no command is needed. `messages` has one message of each task.

    A batch without rows gets a control record too, as `DONE`: a reported commit means that no other execution of the batch will
    ever be visible, so a driver that was overtaken must not report one.
    """
    if (
        not messages
        or len({(one.handle, one.query, one.batch, one.origin) for one in messages}) > 1
        or messages[0].batch != batch
    ):
        return inconsistent_messages(
            batch, "they are from several executions, or from another batch" if messages else "there are none"
        )
    handle, query = messages[0].handle, messages[0].query
    skipped = [one for one in messages if isinstance(one, Skipped)]
    origin = messages[0].origin
    admission = admit(handle.last, handle.sink, query, batch, origin)
    if isinstance(admission, Refuse):
        return Failed(FailureKind.REFUSED, admission.reason)
    if isinstance(admission, Skip) and len(skipped) == len(messages):
        return record_run(handle, batch, origin, check_repeated_batch(skipped))
    if isinstance(admission, Skip) or skipped:
        return inconsistent_messages(batch, "some tasks have written, and others found the batch done")
    record = control_record(handle, query, batch, messages)
    return ListingOrphans(handle.fencing, record, "" if handle.last is None else handle.last.token)


def record_run(handle: WriteHandle, batch: int, origin: ForeachBatchOrigin, outcome: AlreadyDone | Failed) -> Next:
    """Return the next state for a batch that is done already: in `foreachBatch` the control record gets this run.

    If Spark repeats a micro-batch with several numbers, only the last number that is done is recorded: after a lower one, the
    last would look like a second write of this run.
    """
    last = handle.last
    if isinstance(outcome, Failed) or last is None or not origin.run or batch != last.last_done:
        return outcome
    record = last._replace(
        origin=origin.query or last.origin,
        run=origin.run,
        done_micro_batch=origin.micro_batch,
        transactions=(),
        inline=(),
    )
    return RecordingRun(handle.fencing, record, batch)


def control_record(handle: WriteHandle, query: str, batch: int, messages: Sequence[TaskOutcome]) -> ControlRecord:
    """Return the record that commits the batch: `COMMITTING`, or `DONE` if no task has a transaction of its own."""
    transactions = tuple(one.transaction for one in messages if isinstance(one, PreparedTask))
    partitions = {
        TopicPartition(rows.topic, rows.partition)
        for one in messages
        if isinstance(one, InlineRows)
        for rows in one.batches
    }
    last = handle.last
    record = ControlRecord(
        handle.sink,
        query,
        Status.COMMITTING,
        batch,
        NO_BATCH if last is None else last.last_done,
        handle.token,
        transactions,
        tuple(sorted(partitions)),
        sum(one.rows for one in messages if not isinstance(one, Skipped)),
        None if last is None else last.done_rows,
        messages[0].origin.query or (None if last is None else last.origin),
        messages[0].origin.run,
        total_content(messages),
        None if last is None else last.done_content,
        messages[0].origin.micro_batch,
        None if last is None else last.done_micro_batch,
        () if last is None else last.earlier,
    )
    return record if transactions else done(record)


def write_command(fencing: ProducerIdAndEpoch, record: ControlRecord) -> WriteControl:
    """Return the command that commits the batch of `record`. With transactions to end, all markers are awaited after that."""
    return WriteControl(fencing, record, inline=bool(record.inline), awaits_markers=not record.transactions)


def decided(write: roll_forward.DecidedWrite, orphans: Orphans) -> Next:
    """Return the state that rolls the record forward once it is in the log. After its `DONE` a commit writes no other record."""
    return continue_roll_forward(roll_forward.start(write._replace(is_last=True)), orphans, write.record)


def continue_roll_forward(roll_forward_state: roll_forward.Next, orphans: Orphans, decision: ControlRecord) -> Next:
    """Return the state of COMMIT after a state of its roll-forward. A `VOID` write fails, since it has to run again."""
    match roll_forward_state:
        case Failed():
            return require_manual_check(decision, roll_forward_state)
        case RolledForward(record, _) if record.status is not Status.DONE:
            return void(record)
        case RolledForward(record, _):
            return AbortingLeftovers(record.batch, orphans) if orphans else WriteCommitted(record.batch)
        case _:
            return RollingForwardWrite(roll_forward_state, orphans)


def unknown_outcome(record: ControlRecord, why: str) -> Failed:
    """Return the failure of a write without a number, which may be committed and would not be skipped if it ran again."""
    return Failed(
        FailureKind.UNKNOWN,
        f"{describe_write(record)}: {why}, so its rows may be visible, and running it again could write them twice. First check "
        "with a consumer of committed records whether they are there. With the option txnVersion a write can always run again",
    )


def require_manual_check(record: ControlRecord, failed: Failed) -> Failed:
    """Return the failure. For a write with a hanging control record and without a number, its text says what a person must check
    before the write runs again: it may be committed after a repair."""
    if failed.kind is not FailureKind.HUNG or record.batch != NO_BATCH:
        return failed
    return failed._replace(
        text=f"{describe_write(record)}: {', '.join(failed.names)} lost the markers that end transactions. Readers wait there, "
        "and nothing more is written. This write has no txnVersion, and may be committed. Do not run it again yet. "
        f"`pyproducer txn describe {record.sink}` shows its state, and `pyproducer txn repair {record.sink}` repairs it. Then "
        "check with a consumer of committed records whether the rows are there. With the option txnVersion a write can always "
        "run again",
    )


def inconsistent_messages(batch: int, why: str) -> Failed:
    """Return the failure of a commit whose messages cannot be from one execution of the batch."""
    return Failed(
        FailureKind.MIXED,
        f"batch {batch}: the messages of its tasks do not belong together, {why}. Nothing is committed",
    )


def describe_write(record: ControlRecord) -> str:
    """Return how messages name the write of `record`."""
    return f"sink {record.sink!r}" + ("" if record.batch == NO_BATCH else f", batch {record.batch}")
