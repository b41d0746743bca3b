"""Roll forward: any driver completes what a control record has decided, as often as it takes.

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
    Found,
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
from spark_producer.exactly_once.protocol.state_machine import MAX_TRIES, unexpected, write_result

LEFT = "the next write of the sink goes on from what is decided"
TAKEN_OVER = "this one leaves what is decided to that driver"


class DecidedWrite(NamedTuple):
    """A decided write. `hanging` are partitions that have lost the marker of the record's own transaction."""

    record: ControlRecord
    fencing: ProducerIdAndEpoch
    hanging: tuple[TopicPartition, ...] = ()
    tries: int = MAX_TRIES


@dataclass(frozen=True, slots=True)
class EndingTransactions:
    """Commits all transactions of the record; those that are committed already stay so."""

    failpoint: ClassVar = "ending"

    drive: DecidedWrite

    @property
    def command(self) -> EndTasks:
        return EndTasks(self.drive.record.transactions, commit=True)

    def on_result(self, result: Result) -> Next:
        if not isinstance(result, TasksEnded):
            unexpected(self, result)
        return ReadingLogs(self.drive, tuple(isinstance(result, EndRefused) for result in result.results))


@dataclass(frozen=True, slots=True)
class ReadingLogs:
    """Reads the logs, after the coordinators' responses. `refused` says for each transaction whether it was refused."""

    failpoint: ClassVar = "looking"

    drive: DecidedWrite
    refused: tuple[bool, ...]

    @property
    def command(self) -> ReadLogs:
        return ReadLogs(self.drive.record.transactions)

    def on_result(self, result: Result) -> Next:
        if not isinstance(result, LogOutcomes):
            unexpected(self, result)
        record, hanging = self.drive.record, self.drive.hanging
        verdict = final_status(record, self.refused, result.outcomes)
        if hanging or (verdict is Status.HUNG and record.status is Status.HUNG):
            # Where the control record itself hangs, one more transaction of the control id would decide what hangs there.
            return markers_lost(record.sink, hanging + result.open_partitions)
        match verdict:
            case Status.HUNG:
                end: RolledForward | Failed = markers_lost(record.sink, result.open_partitions)
            case Status.PARTIAL:
                names = tuple(one.transactional_id for one in missing(record, self.refused, result.outcomes))
                end = incomplete(record, names)
            case _:
                end = RolledForward(with_final_status(record, verdict), self.drive.fencing)
        return WritingStatus(self.drive, with_final_status(record, verdict), end)


@dataclass(frozen=True, slots=True)
class WritingStatus:
    """Writes the final status, which proves that this driver is still the newest. `end` is the outcome once it is written."""

    failpoint: ClassVar = "deciding"

    drive: DecidedWrite
    record: ControlRecord
    end: RolledForward | Failed

    @property
    def command(self) -> WriteControl:
        return WriteControl(self.drive.fencing, self.record)

    def on_result(self, result: Result) -> Next:
        match write_result(self, result):
            case ControlWritten(fencing):
                return self.end._replace(fencing=fencing) if isinstance(self.end, RolledForward) else self.end
            case MarkersLost(partitions):
                return markers_lost(self.record.sink, partitions)
            case FencedOff(expired):
                return fenced_off(self.record.sink, LEFT if expired else TAKEN_OVER, expired=expired)
            case Indeterminate(reason):
                return retry(self.drive, reason)
            case OlderTransactionHangs(partitions):
                return retry(self.drive, f"an older transaction hangs in {', '.join(partition_names(partitions))}")


@dataclass(frozen=True, slots=True)
class FencingAgain:
    """Fences after a write of the final status without a response: the fence decides it, and the next read tells how."""

    failpoint: ClassVar = "refencing"

    drive: DecidedWrite

    @property
    def command(self) -> Fence:
        return Fence()

    def on_result(self, result: Result) -> Next:
        if not isinstance(result, Fenced):
            unexpected(self, result)
        return ReadingAgain(self.drive._replace(fencing=result.fencing))


@dataclass(frozen=True, slots=True)
class ReadingAgain:
    """Reads the last control record after the fence."""

    failpoint: ClassVar = "rereading"

    drive: DecidedWrite

    @property
    def command(self) -> ReadControl:
        return ReadControl()

    def on_result(self, result: Result) -> Next:
        if isinstance(result, Missing):
            return no_record(self.drive.record.sink, result.topic)
        if not isinstance(result, Found | MarkersLost):
            unexpected(self, result)
        record = result.record
        hanging = result.partitions if isinstance(result, MarkersLost) else ()
        if record is not None and record.token == self.drive.record.token and record.status in DECIDED:
            return start(self.drive._replace(record=record, hanging=hanging))
        if hanging:
            return markers_lost(self.drive.record.sink, hanging)
        return fenced_off(self.drive.record.sink, TAKEN_OVER)


RollForwardState: TypeAlias = EndingTransactions | ReadingLogs | WritingStatus | FencingAgain | ReadingAgain
Next: TypeAlias = RollForwardState | RolledForward | Failed


def start(drive: DecidedWrite) -> Next:
    """Return the first state for a record with status `COMMITTING`, `HUNG`, `DONE`, `VOID` or `PARTIAL`."""
    if drive.record.status in UNFINISHED:
        return EndingTransactions(drive)
    if drive.hanging:
        return markers_lost(drive.record.sink, drive.hanging)
    if drive.record.status is Status.PARTIAL:
        return incomplete(drive.record)
    return RolledForward(drive.record, drive.fencing)


def retry(drive: DecidedWrite, reason: str) -> Next:
    """Return the state that fences and reads again, or the failure after `MAX_TRIES` attempts."""
    if drive.tries <= 1:
        return not_acknowledged(drive.record.sink, MAX_TRIES, reason)
    return FencingAgain(drive._replace(tries=drive.tries - 1))
