"""COMMIT: what the tasks report becomes visible, as a whole: the control record is the commit point.

It bears the epoch that BEGIN took, never a newer one: that is what keeps a driver out which has been overtaken. Whether the
answer comes or not, the write in the log decides; if it is not known, it is looked for after a fence.

Tasks that died, or that lost a speculation, leave open transactions that no write will ever name. Those are listed before the
commit point: as it bears BEGIN's epoch, what was open then can belong to no newer driver. When all is done they are aborted.
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
    Found,
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
from spark_producer.exactly_once.protocol.row_count_check import check_repeated_batch, total_content
from spark_producer.exactly_once.protocol.state_machine import unexpected, write_result
from spark_producer.exactly_once.protocol.task_messages import (
    ForeachBatchOrigin,
    InlineRows,
    PreparedTask,
    Skipped,
    TaskOutcome,
    WriteHandle,
)

Orphans: TypeAlias = tuple[TaskTransaction, ...]
"""Transactions that were open before the commit point, and are no part of the write."""

LEFT_TO_OTHERS = frozenset({FailureKind.FENCED, FailureKind.EXPIRED, FailureKind.UNSURE})
"""So a write that is decided may end before it is carried out: others do that."""


@dataclass(frozen=True, slots=True)
class ListingOrphans:
    """Lists the orphans: open transactions of the sink's tasks that are not part of the write."""

    failpoint: ClassVar = "commit.listing"

    fencing: ProducerIdAndEpoch
    record: ControlRecord
    before: str
    """token of the sink's last control record when the write began; empty if there was none"""

    @property
    def command(self) -> ListOpen:
        return ListOpen(self.record.transactions)

    def on_result(self, result: Result) -> Next:
        if not isinstance(result, Opened):
            unexpected(self, result)
        following = CheckingTransactions if self.record.transactions else WritingControlRecord
        return following(self.fencing, self.record, result.transactions, self.before)


@dataclass(frozen=True, slots=True)
class CheckingTransactions:
    """Checks that all transactions can be committed. It is the last state in which the whole write can be aborted."""

    failpoint: ClassVar = "commit.voting"

    fencing: ProducerIdAndEpoch
    record: ControlRecord
    orphans: Orphans
    before: str

    @property
    def command(self) -> Vote:
        return Vote(self.record.transactions, self.fencing)

    def on_result(self, result: Result) -> Next:
        if not isinstance(result, Voted):
            unexpected(self, result)
        if not result.objections:
            return WritingControlRecord(self.fencing, self.record, self.orphans, self.before)
        if result.overtaken:
            return fenced_off(self.record.sink, "its transactions were aborted, and nothing of it is visible")
        return Failed(
            FailureKind.VOTE,
            f"{describe_write(self.record)}: transactions of its tasks must not be committed ({'; '.join(result.objections)}). "
            "Nothing of it is visible, and it can be run again. If they were open too long, raise kafka.transaction.timeout.ms",
            result.objections,
        )


@dataclass(frozen=True, slots=True)
class WritingControlRecord:
    """Writes the control record: the commit point."""

    failpoint: ClassVar = "commit.writing"

    fencing: ProducerIdAndEpoch
    record: ControlRecord
    orphans: Orphans
    before: str

    @property
    def command(self) -> WriteControl:
        return WriteControl(self.fencing, self.record, inline=bool(self.record.inline))

    def on_result(self, result: Result) -> Next:
        match write_result(self, result):
            case ControlWritten(fencing):
                return decided(roll_forward.DecidedWrite(self.record, fencing), self.orphans)
            case MarkersLost(partitions):
                # It is decided all the same: tasks' transactions are committed before people are called.
                return decided(roll_forward.DecidedWrite(self.record, self.fencing, partitions), self.orphans)
            case FencedOff(expired):
                return fenced_off(self.record.sink, "nothing of this one is visible", expired=expired)
            case Indeterminate():
                return FencingAfterTimeout(self.record, self.orphans, self.before)
            case OlderTransactionHangs(partitions):
                names = partition_names(partitions)
                return Failed(
                    FailureKind.GLUED,
                    f"{describe_write(self.record)}: in {', '.join(names)} an older transaction of the same producer had "
                    "lost its end, and this one would have decided its rows too. Both are aborted: nothing is visible, "
                    "and it can be run again",
                    names,
                )


@dataclass(frozen=True, slots=True)
class FencingAfterTimeout:
    """Fences the control id after a commit without a response: the fence decides it, and the next read tells how."""

    failpoint: ClassVar = "commit.resolving"

    record: ControlRecord
    orphans: Orphans
    before: str

    @property
    def command(self) -> Fence:
        return Fence()

    def on_result(self, result: Result) -> Next:
        if not isinstance(result, Fenced):
            unexpected(self, result)
        return ReadingControlRecordAfterFence(self.record, result.fencing, self.orphans, self.before)


@dataclass(frozen=True, slots=True)
class ReadingControlRecordAfterFence:
    """Reads after the fence whether the record was written. An `INTENT` of the same token is BEGIN's, and no commit.

    Where another's word has replaced the one before this write, that may have happened over this one's. If it has a number, it is
    skipped when it is run again; without one nothing would.
    """

    failpoint: ClassVar = "commit.looking"

    record: ControlRecord
    fencing: ProducerIdAndEpoch
    orphans: Orphans
    before: str

    @property
    def command(self) -> ReadControl:
        return ReadControl()

    def on_result(self, result: Result) -> Next:
        if isinstance(result, Missing):
            return no_record(self.record.sink, result.topic)
        if not isinstance(result, Found | MarkersLost):
            unexpected(self, result)
        found = result.record
        hanging = result.partitions if isinstance(result, MarkersLost) else ()
        if found is not None and found.token == self.record.token and found.status in DECIDED:
            return decided(roll_forward.DecidedWrite(found, self.fencing, hanging), self.orphans)
        if hanging:
            return require_manual_check(self.record, markers_lost(self.record.sink, hanging))
        if found is None or found.token in (self.record.token, self.before):
            why = "it has not happened"
        elif self.record.batch == NO_BATCH:
            return unknown_outcome(self.record, "the brokers did not answer the commit, and another write has followed")
        else:
            why = "it has not happened, or a newer driver has gone on from it"
        return Failed(
            FailureKind.NOT_WRITTEN,
            f"{describe_write(self.record)}: the brokers did not answer the commit, and {why}. It can be run again: no row will "
            "be doubled",
        )


@dataclass(frozen=True, slots=True)
class RollingForwardWrite:
    """Rolls forward the write, which is decided."""

    failpoint: ClassVar = "commit.finishing"

    driving: roll_forward.RollForwardState
    orphans: Orphans

    @property
    def command(self) -> Command:
        return self.driving.command

    def on_result(self, result: Result) -> Next:
        following = self.driving.on_result(result)
        record = self.driving.drive.record
        if isinstance(following, Failed) and following.kind in LEFT_TO_OTHERS and record.batch == NO_BATCH:
            return unknown_outcome(record, f"it is decided, and was left to others ({following.kind.value})")
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
        if not isinstance(result, TasksEnded):
            unexpected(self, result)
        return WriteCommitted(self.batch)


@dataclass(frozen=True, slots=True)
class RecordingRun:
    """Notes in the control record that this run has found a batch of an earlier run done: it must not skip that number again."""

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
                return fenced_off(self.record.sink, "this one ends; its batch was committed before", expired=expired)
            case Indeterminate() | OlderTransactionHangs():
                return Failed(
                    FailureKind.NOT_WRITTEN,
                    f"sink {self.record.sink!r}, batch {self.batch}: it was committed before, but the brokers did not "
                    "acknowledge the control record that notes this run. It can be run again: no row will be written twice",
                )


Commits: TypeAlias = (
    ListingOrphans
    | CheckingTransactions
    | WritingControlRecord
    | FencingAfterTimeout
    | ReadingControlRecordAfterFence
    | RollingForwardWrite
    | AbortingLeftovers
    | RecordingRun
)
Next: TypeAlias = Commits | WriteCommitted | AlreadyDone | Failed


def commit(messages: Sequence[TaskOutcome], batch: int) -> Next:
    """Return the first state of COMMIT, or the outcome if no command is needed. `messages` has one of each task.

    A batch without rows is written too, as `DONE`: whoever hears that it is committed may rely on it that no other execution of
    it will ever be visible, and an overtaken driver must not hear so.
    """
    if (
        not messages
        or len({(one.handle, one.query, one.batch, one.origin) for one in messages}) > 1
        or messages[0].batch != batch
    ):
        return inconsistent_messages(
            batch, "they are of several executions, or of another batch" if messages else "there are none"
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
        return inconsistent_messages(batch, "some have written, and others say that the batch is done")
    record = control_record(handle, query, batch, messages)
    return ListingOrphans(handle.fencing, record, "" if handle.last is None else handle.last.token)


def record_run(handle: WriteHandle, batch: int, origin: ForeachBatchOrigin, outcome: AlreadyDone | Failed) -> Next:
    """Return the next step for a batch that is done: in `foreachBatch` the control record notes this run.

    It does not for a lower number of a micro-batch that Spark repeats: that would make the next one, the last that is done,
    look like a second write of this run.
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


def decided(drive: roll_forward.DecidedWrite, orphans: Orphans) -> Next:
    """Return the state that rolls the record forward, once it is in the log."""
    return continue_roll_forward(roll_forward.start(drive), orphans, drive.record)


def continue_roll_forward(driving: roll_forward.Next, orphans: Orphans, control_record: ControlRecord) -> Next:
    """The same within COMMIT, where a write that turned out void must be told to whoever has to run it again."""
    match driving:
        case Failed():
            return require_manual_check(control_record, driving)
        case RolledForward(record, _) if record.status is not Status.DONE:
            return void(record)
        case RolledForward(record, _):
            return AbortingLeftovers(record.batch, orphans) if orphans else WriteCommitted(record.batch)
        case _:
            return RollingForwardWrite(driving, orphans)


def unknown_outcome(record: ControlRecord, why: str) -> Failed:
    """A write without a number may be committed, and would not be skipped if it were run again."""
    return Failed(
        FailureKind.UNKNOWN,
        f"{describe_write(record)}: {why}, so its rows may be visible. Running it again could double them: look first, by a "
        "reader of committed records, whether they are there. With the option txnVersion a write can always be run again",
    )


def require_manual_check(record: ControlRecord, failed: Failed) -> Failed:
    """What is told of a write that hangs and has no number: mended it may be committed, and nothing would skip it then."""
    if failed.kind is not FailureKind.HUNG or record.batch != NO_BATCH:
        return failed
    return failed._replace(
        text=f"{describe_write(record)}: {', '.join(failed.names)} lost the markers that end transactions. Readers wait there, "
        "and nothing more is written. This write has no txnVersion, and may be committed, so do not run it again before you have "
        f"looked: `pyproducer txn describe {record.sink}` says what is known of it, `pyproducer txn repair {record.sink}` mends "
        "it. Then a reader of committed records shows whether the rows are there. With the option txnVersion a write can always "
        "be run again",
    )


def inconsistent_messages(batch: int, why: str) -> Failed:
    """Return the failure for messages that cannot be of one execution of the batch."""
    return Failed(
        FailureKind.MIXED,
        f"batch {batch}: the messages of its tasks do not belong together, {why}. Nothing is committed",
    )


def describe_write(record: ControlRecord) -> str:
    """Return how messages name the write of `record`."""
    return f"sink {record.sink!r}" + ("" if record.batch == NO_BATCH else f", batch {record.batch}")
