"""Roll forward: any driver completes the write that a control record has decided, in as many attempts as needed.

Each transaction that the record names is committed, never aborted. Then the logs are read: the coordinator's response is not
enough, since partitions may have lost the marker (R8). Each final status is written with the driver's epoch, so a driver that has
been overtaken finds out there and changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple, TypeAlias

from spark_producer.common.cluster import ProducerIdAndEpoch, TopicPartition
from spark_producer.exactly_once.protocol.commands import (
    ControlWritten,
    EndRefused,
    EndTasks,
    Fence,
    Fenced,
    FencedOff,
    Indeterminate,
    LogOutcomes,
    MarkersLost,
    Missing,
    OlderTransactionHangs,
    ReadControl,
    ReadLogs,
    Result,
    TasksEnded,
    WriteControl,
)
from spark_producer.exactly_once.protocol.control_record import DECIDED, UNFINISHED, ControlRecord, Status
from spark_producer.exactly_once.protocol.final_status import final_status, incomplete, missing, with_final_status
from spark_producer.exactly_once.protocol.outcomes import (
    Failed,
    RolledForward,
    fenced_off,
    markers_lost,
    no_record,
    not_acknowledged,
    partition_names,
)
from spark_producer.exactly_once.protocol.state_machine import MAX_TRIES, expect, read_result, write_result

LEFT = "the next write of the sink completes what is decided"
TAKEN_OVER = "that driver completes what is decided"


class DecidedWrite(NamedTuple):
    """A decided write. `hanging` are partitions that have lost the marker of the record's own transaction.

    `written` is the producer id and epoch of that transaction, if its markers are not checked yet. `is_last`: nothing is written
    after `DONE` with this epoch of the control id.
    """

    record: ControlRecord
    fencing: ProducerIdAndEpoch
    hanging: tuple[TopicPartition, ...] = ()
    tries: int = MAX_TRIES
    written: ProducerIdAndEpoch | None = None
    is_last: bool = False


@dataclass(frozen=True, slots=True)
class EndingTransactions:
    """Commits all transactions of the record; those that are committed already stay so."""

    failpoint: ClassVar = "ending"

    write: DecidedWrite

    @property
    def command(self) -> EndTasks:
        return EndTasks(self.write.record.transactions, commit=True)

    def on_result(self, result: Result) -> Next:
        found = expect(self, result, TasksEnded)
        return ReadingLogs(self.write, tuple(isinstance(result, EndRefused) for result in found.results))


@dataclass(frozen=True, slots=True)
class ReadingLogs:
    """Reads the logs, after the coordinators' responses. `refused` says for each transaction whether it was refused."""

    failpoint: ClassVar = "looking"

    write: DecidedWrite
    refused: tuple[bool, ...]

    @property
    def command(self) -> ReadLogs:
        return ReadLogs(self.write.record.transactions, self.write.written)

    def on_result(self, result: Result) -> Next:
        found = expect(self, result, LogOutcomes)
        record, hanging = self.write.record, self.write.hanging + found.hanging
        status = final_status(record, self.refused, found.outcomes)
        if hanging or (status is Status.HUNG and record.status is Status.HUNG):
            # Where the control record itself hangs, one more transaction of the control id would decide what hangs there.
            return markers_lost(record.sink, hanging + found.open_partitions)
        match status:
            case Status.HUNG:
                outcome: RolledForward | Failed = markers_lost(record.sink, found.open_partitions)
            case Status.PARTIAL:
                names = tuple(one.transactional_id for one in missing(record, self.refused, found.outcomes))
                outcome = incomplete(record, names)
            case _:
                outcome = RolledForward(with_final_status(record, status), self.write.fencing)
        return WritingStatus(self.write, with_final_status(record, status), outcome)


@dataclass(frozen=True, slots=True)
class WritingStatus:
    """Writes the final status, which proves that this driver is still the newest. `outcome` applies once it is written.

    All rows are visible before `DONE`, and the next BEGIN checks whether a control record hangs. So the markers of a `DONE` that
    ends its epoch are not awaited.
    """

    failpoint: ClassVar = "deciding"

    write: DecidedWrite
    record: ControlRecord
    outcome: RolledForward | Failed

    @property
    def command(self) -> WriteControl:
        ends_epoch = self.write.is_last and self.record.status is Status.DONE
        return WriteControl(self.write.fencing, self.record, awaits_markers=not ends_epoch)

    def on_result(self, result: Result) -> Next:
        match write_result(self, result):
            case ControlWritten(fencing):
                return (
                    self.outcome._replace(fencing=fencing) if isinstance(self.outcome, RolledForward) else self.outcome
                )
            case MarkersLost(partitions):
                return markers_lost(self.record.sink, partitions)
            case FencedOff(expired):
                return fenced_off(self.record.sink, LEFT if expired else TAKEN_OVER, expired=expired)
            case Indeterminate(reason):
                return retry(self.write, reason)
            case OlderTransactionHangs(partitions):
                return retry(self.write, f"an older transaction hangs in {', '.join(partition_names(partitions))}")


@dataclass(frozen=True, slots=True)
class FencingAgain:
    """Fences after a write of the final status without a response. The fence ends it, and the next read shows how."""

    failpoint: ClassVar = "refencing"

    write: DecidedWrite

    @property
    def command(self) -> Fence:
        return Fence()

    def on_result(self, result: Result) -> Next:
        return ReadingAgain(self.write._replace(fencing=expect(self, result, Fenced).fencing))


@dataclass(frozen=True, slots=True)
class ReadingAgain:
    """Reads the last control record after the fence."""

    failpoint: ClassVar = "rereading"

    write: DecidedWrite

    @property
    def command(self) -> ReadControl:
        return ReadControl()

    def on_result(self, result: Result) -> Next:
        if isinstance(result, Missing):
            return no_record(self.write.record.sink, result.topic)
        record, hanging = read_result(self, result)
        if record is not None and record.token == self.write.record.token and record.status in DECIDED:
            return start(self.write._replace(record=record, hanging=hanging, written=None))
        if hanging:
            return markers_lost(self.write.record.sink, hanging)
        return fenced_off(self.write.record.sink, TAKEN_OVER)


RollForwardState: TypeAlias = EndingTransactions | ReadingLogs | WritingStatus | FencingAgain | ReadingAgain
Next: TypeAlias = RollForwardState | RolledForward | Failed


def start(write: DecidedWrite) -> Next:
    """Return the first state for a record with status `COMMITTING`, `HUNG`, `DONE`, `VOID` or `PARTIAL`."""
    if write.record.status in UNFINISHED:
        return EndingTransactions(write)
    if write.hanging:
        return markers_lost(write.record.sink, write.hanging)
    if write.record.status is Status.PARTIAL:
        return incomplete(write.record)
    return RolledForward(write.record, write.fencing)


def retry(write: DecidedWrite, reason: str) -> Next:
    """Return the state that fences and reads again, or the failure after `MAX_TRIES` attempts."""
    if write.tries <= 1:
        return not_acknowledged(write.record.sink, MAX_TRIES, reason)
    return FencingAgain(write._replace(tries=write.tries - 1))
