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
from spark_producer.exactly_once.protocol.state_machine import MAX_TRIES, unexpected, write_result


class BeginParameters(NamedTuple):
    """Parameters of one BEGIN. `tries` is how many more times it may start over."""

    sink: str
    token: str
    tries: int = MAX_TRIES


@dataclass(frozen=True, slots=True)
class FencingControlId:
    """Fences the control id: from its result on, no older driver can write a control record."""

    failpoint: ClassVar = "begin.taking"

    beginning: BeginParameters

    @property
    def command(self) -> Fence:
        return Fence()

    def on_result(self, result: Result) -> Next:
        if not isinstance(result, Fenced):
            unexpected(self, result)
        return ReadingControlRecord(self.beginning, result.fencing)


@dataclass(frozen=True, slots=True)
class ReadingControlRecord:
    """Reads the sink's last control record."""

    failpoint: ClassVar = "begin.reading"

    beginning: BeginParameters
    fencing: ProducerIdAndEpoch

    @property
    def command(self) -> ReadControl:
        return ReadControl()

    def on_result(self, result: Result) -> Next:
        if isinstance(result, MarkersLost):
            if result.record is not None and result.record.status in UNFINISHED:
                # It is carried out before people are called: its tasks' transactions would time out meanwhile.
                drive = roll_forward.DecidedWrite(result.record, self.fencing, result.partitions)
                return RollingForwardEarlierWrite(self.beginning, roll_forward.EndingTransactions(drive))
            return markers_lost(self.beginning.sink, result.partitions)
        if isinstance(result, Missing):
            return no_record(self.beginning.sink, result.topic)
        if not isinstance(result, Found):
            unexpected(self, result)
        record = result.record
        if record is not None and record.status is Status.PARTIAL:
            return incomplete(record)
        if record is not None and record.status in UNFINISHED:
            return RollingForwardEarlierWrite(
                self.beginning, roll_forward.EndingTransactions(roll_forward.DecidedWrite(record, self.fencing))
            )
        return ListingOpenTransactions(self.beginning, self.fencing, record)


@dataclass(frozen=True, slots=True)
class RollingForwardEarlierWrite:
    """Rolls forward a write that an earlier driver had decided but not completed."""

    failpoint: ClassVar = "begin.redriving"

    beginning: BeginParameters
    driving: roll_forward.RollForwardState

    @property
    def command(self) -> Command:
        return self.driving.command

    def on_result(self, result: Result) -> Next:
        return continue_roll_forward(self.beginning, self.driving.on_result(result))


@dataclass(frozen=True, slots=True)
class ListingOpenTransactions:
    """Lists open transactions of the sink's tasks. None of them belongs to a decided write."""

    failpoint: ClassVar = "begin.listing"

    beginning: BeginParameters
    fencing: ProducerIdAndEpoch
    last: ControlRecord | None

    @property
    def command(self) -> ListOpen:
        return ListOpen()

    def on_result(self, result: Result) -> Next:
        if not isinstance(result, Opened):
            unexpected(self, result)
        if not result.transactions:
            return begun(self.fencing, self.last)
        return WritingIntent(self.beginning, self.fencing, intent(self.beginning, self.last, result.transactions))


@dataclass(frozen=True, slots=True)
class WritingIntent:
    """Writes a control record that names the orphans, before any of them is aborted."""

    failpoint: ClassVar = "begin.intending"

    beginning: BeginParameters
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
                return markers_lost(self.beginning.sink, partitions)
            case FencedOff(expired):
                return fenced_off(self.beginning.sink, "this write does not start", expired=expired)
            case Indeterminate(reason):
                return restart(self.beginning, reason)
            case OlderTransactionHangs(partitions):
                return restart(
                    self.beginning, f"an older transaction hangs in {', '.join(partition_names(partitions))}"
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
        if not isinstance(result, TasksEnded):
            unexpected(self, result)
        return begun(self.fencing, self.intent)


Begins: TypeAlias = (
    FencingControlId
    | ReadingControlRecord
    | RollingForwardEarlierWrite
    | ListingOpenTransactions
    | WritingIntent
    | AbortingOrphans
)
Next: TypeAlias = Begins | Begun | Failed


def begin(sink: str, token: str) -> FencingControlId:
    """Return the first state of BEGIN. `token` (hex of 16 random bytes) is new for each execution."""
    return FencingControlId(BeginParameters(sink, token))


def continue_roll_forward(beginning: BeginParameters, driving: roll_forward.Next) -> Next:
    """Return the state of BEGIN after a state of its roll-forward. It continues after `VOID` too: that write may run again."""
    match driving:
        case Failed():
            return driving
        case RolledForward(record, fencing):
            return ListingOpenTransactions(beginning, fencing, record)
        case _:
            return RollingForwardEarlierWrite(beginning, driving)


def begun(fencing: ProducerIdAndEpoch, last: ControlRecord | None) -> Begun:
    """Return the outcome for the tasks, without names of transactions: there may be thousands, and each task gets them."""
    return Begun(fencing, None if last is None else last._replace(transactions=(), inline=()))


def intent(
    beginning: BeginParameters, last: ControlRecord | None, orphans: tuple[TaskTransaction, ...]
) -> ControlRecord:
    """Return the record that names `orphans`. It replaces the last one, so it repeats its other fields (R6)."""
    if last is None:
        return ControlRecord(beginning.sink, None, Status.INTENT, NO_BATCH, NO_BATCH, beginning.token, orphans)
    return last._replace(status=Status.INTENT, token=beginning.token, transactions=orphans, inline=())


def restart(beginning: BeginParameters, reason: str) -> Next:
    """Return to the fence. A write without a response is never sent again: a late EndTxn could end the next transaction."""
    if beginning.tries <= 1:
        return not_acknowledged(beginning.sink, MAX_TRIES, reason)
    return FencingControlId(beginning._replace(tries=beginning.tries - 1))
