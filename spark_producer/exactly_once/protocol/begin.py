"""BEGIN: fences the sink, rolls forward the decided write of an earlier driver, and aborts undecided transactions.

The order makes it safe: fence, then read, then decide (R2). Orphans (open transactions of dead tasks) are listed before, and
aborted after, a control record that names them (`INTENT`). Its commit proves that this driver was still the newest after it had
listed them: a driver that was paused and wakes up cannot abort the transactions of a live one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple, TypeAlias

from spark_producer.common.cluster import ProducerIdAndEpoch
from spark_producer.exactly_once.protocol import roll_forward
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
    WriteControl,
)
from spark_producer.exactly_once.protocol.control_record import (
    NO_BATCH,
    UNFINISHED,
    ControlRecord,
    Status,
    TaskTransaction,
)
from spark_producer.exactly_once.protocol.final_status import incomplete
from spark_producer.exactly_once.protocol.outcomes import (
    Begun,
    Failed,
    RolledForward,
    fenced_off,
    markers_lost,
    no_record,
    not_acknowledged,
    partition_names,
)
from spark_producer.exactly_once.protocol.state_machine import MAX_TRIES, expect, read_result, write_result


class BeginParameters(NamedTuple):
    """Parameters of one BEGIN. `tries` is the number of attempts that are left."""

    sink: str
    token: str
    tries: int = MAX_TRIES


@dataclass(frozen=True, slots=True)
class FencingControlId:
    """Fences the control id: from its result on, no older driver can write a control record."""

    failpoint: ClassVar = "begin.taking"

    parameters: BeginParameters

    @property
    def command(self) -> Fence:
        return Fence()

    def on_result(self, result: Result) -> Next:
        return ReadingControlRecord(self.parameters, expect(self, result, Fenced).fencing)


@dataclass(frozen=True, slots=True)
class ReadingControlRecord:
    """Reads the sink's last control record."""

    failpoint: ClassVar = "begin.reading"

    parameters: BeginParameters
    fencing: ProducerIdAndEpoch

    @property
    def command(self) -> ReadControl:
        return ReadControl()

    def on_result(self, result: Result) -> Next:
        if isinstance(result, Missing):
            return no_record(self.parameters.sink, result.topic)
        record, hanging = read_result(self, result)
        if record is not None and record.status in UNFINISHED:
            # Also if markers are lost: the tasks' transactions would time out until a person has repaired them.
            write = roll_forward.DecidedWrite(record, self.fencing, hanging)
            return RollingForwardEarlierWrite(self.parameters, roll_forward.EndingTransactions(write))
        if hanging:
            return markers_lost(self.parameters.sink, hanging)
        if record is not None and record.status is Status.PARTIAL:
            return incomplete(record)
        return ListingOpenTransactions(self.parameters, self.fencing, record)


@dataclass(frozen=True, slots=True)
class RollingForwardEarlierWrite:
    """Rolls forward a write that an earlier driver had decided but not completed."""

    failpoint: ClassVar = "begin.redriving"

    parameters: BeginParameters
    roll_forward_state: roll_forward.RollForwardState

    @property
    def command(self) -> Command:
        return self.roll_forward_state.command

    def on_result(self, result: Result) -> Next:
        return continue_roll_forward(self.parameters, self.roll_forward_state.on_result(result))


@dataclass(frozen=True, slots=True)
class ListingOpenTransactions:
    """Lists open transactions of the sink's tasks. None of them belongs to a decided write."""

    failpoint: ClassVar = "begin.listing"

    parameters: BeginParameters
    fencing: ProducerIdAndEpoch
    last: ControlRecord | None

    @property
    def command(self) -> ListOpen:
        return ListOpen()

    def on_result(self, result: Result) -> Next:
        found = expect(self, result, Opened)
        if not found.transactions:
            return begun(self.fencing, self.last)
        return WritingIntent(self.parameters, self.fencing, intent(self.parameters, self.last, found.transactions))


@dataclass(frozen=True, slots=True)
class WritingIntent:
    """Writes a control record that names the orphans, before any of them is aborted."""

    failpoint: ClassVar = "begin.intending"

    parameters: BeginParameters
    fencing: ProducerIdAndEpoch
    intent: ControlRecord

    @property
    def command(self) -> WriteControl:
        return WriteControl(self.fencing, self.intent)

    def on_result(self, result: Result) -> Next:
        match write_result(self, result):
            case ControlWritten(fencing):
                return AbortingOrphans(fencing, self.intent)
            case MarkersLost(partitions):
                return markers_lost(self.parameters.sink, partitions)
            case FencedOff(expired):
                return fenced_off(self.parameters.sink, "this write does not start", expired=expired)
            case Indeterminate(reason):
                return restart(self.parameters, reason)
            case OlderTransactionHangs(partitions):
                return restart(
                    self.parameters, f"an older transaction hangs in {', '.join(partition_names(partitions))}"
                )


@dataclass(frozen=True, slots=True)
class AbortingOrphans:
    """Aborts the orphans, each by the epoch that was listed. A refusal means that it has ended already."""

    failpoint: ClassVar = "begin.sweeping"

    fencing: ProducerIdAndEpoch
    intent: ControlRecord

    @property
    def command(self) -> EndTasks:
        return EndTasks(self.intent.transactions, commit=False)

    def on_result(self, result: Result) -> Next:
        expect(self, result, TasksEnded)
        return begun(self.fencing, self.intent)


BeginState: TypeAlias = (
    FencingControlId
    | ReadingControlRecord
    | RollingForwardEarlierWrite
    | ListingOpenTransactions
    | WritingIntent
    | AbortingOrphans
)
Next: TypeAlias = BeginState | Begun | Failed


def begin(sink: str, token: str) -> FencingControlId:
    """Return the first state of BEGIN. `token` (hex of 16 random bytes) is new for each execution."""
    return FencingControlId(BeginParameters(sink, token))


def continue_roll_forward(parameters: BeginParameters, roll_forward_state: roll_forward.Next) -> Next:
    """Return the state of BEGIN after a state of its roll-forward. It continues after `VOID` too: that write may run again."""
    match roll_forward_state:
        case Failed():
            return roll_forward_state
        case RolledForward(record, fencing):
            return ListingOpenTransactions(parameters, fencing, record)
        case _:
            return RollingForwardEarlierWrite(parameters, roll_forward_state)


def begun(fencing: ProducerIdAndEpoch, last: ControlRecord | None) -> Begun:
    """Return the outcome, which each task gets. It has no names of transactions, since there may be thousands."""
    return Begun(fencing, None if last is None else last._replace(transactions=(), inline=()))


def intent(
    parameters: BeginParameters, last: ControlRecord | None, orphans: tuple[TaskTransaction, ...]
) -> ControlRecord:
    """Return the record that names `orphans`. It replaces the last one, so it repeats its other fields (R6)."""
    if last is None:
        return ControlRecord(parameters.sink, None, Status.INTENT, NO_BATCH, NO_BATCH, parameters.token, orphans)
    return last._replace(status=Status.INTENT, token=parameters.token, transactions=orphans, inline=())


def restart(parameters: BeginParameters, reason: str) -> Next:
    """Return the first state, or the failure after `MAX_TRIES` attempts.

    A write without a response is never sent again: a late EndTxn could end the next transaction.
    """
    if parameters.tries <= 1:
        return not_acknowledged(parameters.sink, MAX_TRIES, reason)
    return FencingControlId(parameters._replace(tries=parameters.tries - 1))
