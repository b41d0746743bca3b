"""BEGIN: the driver takes the sink, finishes what an earlier one had decided, and ends what was left undecided.

The order is what makes it safe: fence, then read, then decide (R2). Orphans are listed before, and aborted after, a fenced
write that names them (`INTENT`). It proves that this driver was still the newest after it had listed them: a paused driver that
wakes up cannot abort the transactions of a live one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple, TypeAlias

from spark_producer.exactly_once.protocol import roll_forward
from spark_producer.exactly_once.protocol.commands import (
    Answer,
    Ask,
    EndTasks,
    Fence,
    Fenced,
    FencedOff,
    Fencing,
    Found,
    Glued,
    Hung,
    ListOpen,
    Missing,
    Opened,
    ReadControl,
    TasksEnded,
    Unsure,
    WriteControl,
    Written,
)  # fmt: skip
from spark_producer.exactly_once.protocol.control_record import (
    NO_BATCH,
    UNFINISHED,
    ControlRecord,
    Status,
    TaskTransaction,
)
from spark_producer.exactly_once.protocol.final_status import incomplete
from spark_producer.exactly_once.protocol.outcomes import Begun, Failed, Redriven, fenced_off, hung, no_record, unsure
from spark_producer.exactly_once.protocol.state_machine import MAX_TRIES, unexpected, write_answer


class Beginning(NamedTuple):
    """What one BEGIN knows from its start. `tries`: how often it may still be started over."""

    sink: str
    token: str
    tries: int = MAX_TRIES


@dataclass(frozen=True, slots=True)
class Taking:
    """The first ask. Once it is answered, no older driver can write a control record any more."""

    failpoint: ClassVar = "begin.taking"

    beginning: Beginning

    @property
    def ask(self) -> Fence:
        return Fence()

    def after(self, answer: Answer) -> Next:
        if not isinstance(answer, Fenced):
            unexpected(self, answer)
        return Reading(self.beginning, answer.fencing)


@dataclass(frozen=True, slots=True)
class Reading:
    """What has the sink come to?"""

    failpoint: ClassVar = "begin.reading"

    beginning: Beginning
    fencing: Fencing

    @property
    def ask(self) -> ReadControl:
        return ReadControl()

    def after(self, answer: Answer) -> Next:
        if isinstance(answer, Hung):
            if answer.record is not None and answer.record.status in UNFINISHED:
                # It is carried out before people are called: its tasks' transactions would time out meanwhile.
                drive = roll_forward.Drive(answer.record, self.fencing, answer.partitions)
                return Redriving(self.beginning, roll_forward.Ending(drive))
            return hung(self.beginning.sink, answer.partitions)
        if isinstance(answer, Missing):
            return no_record(self.beginning.sink, answer.topic)
        if not isinstance(answer, Found):
            unexpected(self, answer)
        record = answer.record
        if record is not None and record.status is Status.PARTIAL:
            return incomplete(record)
        if record is not None and record.status in UNFINISHED:
            return Redriving(self.beginning, roll_forward.Ending(roll_forward.Drive(record, self.fencing)))
        return Listing(self.beginning, self.fencing, record)


@dataclass(frozen=True, slots=True)
class Redriving:
    """An earlier driver had decided its write, and did not see its end."""

    failpoint: ClassVar = "begin.redriving"

    beginning: Beginning
    driving: roll_forward.Driving

    @property
    def ask(self) -> Ask:
        return self.driving.ask

    def after(self, answer: Answer) -> Next:
        return carried_on(self.beginning, self.driving.after(answer))


@dataclass(frozen=True, slots=True)
class Listing:
    """Nothing that is open now belongs to a decided write."""

    failpoint: ClassVar = "begin.listing"

    beginning: Beginning
    fencing: Fencing
    last: ControlRecord | None

    @property
    def ask(self) -> ListOpen:
        return ListOpen()

    def after(self, answer: Answer) -> Next:
        if not isinstance(answer, Opened):
            unexpected(self, answer)
        if not answer.transactions:
            return begun(self.fencing, self.last)
        return Intending(self.beginning, self.fencing, intent(self.beginning, self.last, answer.transactions))


@dataclass(frozen=True, slots=True)
class Intending:
    """The orphans are named in a fenced write, before any of them is aborted."""

    failpoint: ClassVar = "begin.intending"

    beginning: Beginning
    fencing: Fencing
    intent: ControlRecord

    @property
    def ask(self) -> WriteControl:
        return WriteControl(self.fencing, self.intent)

    def after(self, answer: Answer) -> Next:
        match write_answer(self, answer):
            case Written(fencing):
                return Sweeping(fencing, self.intent)
            case Hung(partitions):
                return hung(self.beginning.sink, partitions)
            case FencedOff(expired):
                return fenced_off(self.beginning.sink, "this write does not start", expired=expired)
            case Unsure(reason):
                return over(self.beginning, reason)
            case Glued(partitions):
                return over(self.beginning, f"an older transaction hung in {partitions}")


@dataclass(frozen=True, slots=True)
class Sweeping:
    """The orphans are aborted, each only if it is still the one that was listed. A refusal says that it is gone."""

    failpoint: ClassVar = "begin.sweeping"

    fencing: Fencing
    intent: ControlRecord

    @property
    def ask(self) -> EndTasks:
        return EndTasks(self.intent.transactions, commit=False)

    def after(self, answer: Answer) -> Next:
        if not isinstance(answer, TasksEnded):
            unexpected(self, answer)
        return begun(self.fencing, self.intent)


Begins: TypeAlias = Taking | Reading | Redriving | Listing | Intending | Sweeping
Next: TypeAlias = Begins | Begun | Failed


def begin(sink: str, token: str) -> Taking:
    """The first step of BEGIN. `token` (hex of 16 random bytes) is new for every execution."""
    return Taking(Beginning(sink, token))


def carried_on(beginning: Beginning, driving: roll_forward.Next) -> Next:
    """What is decided is carried out within BEGIN, which goes on after it; also if it was void, since it may run again."""
    match driving:
        case Failed():
            return driving
        case Redriven(record, fencing):
            return Listing(beginning, fencing, record)
        case _:
            return Redriving(beginning, driving)


def begun(fencing: Fencing, last: ControlRecord | None) -> Begun:
    """What tasks need, without names of transactions: there may be thousands, and each task gets it."""
    return Begun(fencing, None if last is None else last._replace(transactions=(), inline=()))


def intent(beginning: Beginning, last: ControlRecord | None, orphans: tuple[TaskTransaction, ...]) -> ControlRecord:
    """The record that names `orphans`. It replaces the last word, so it repeats what must not be forgotten (R6)."""
    if last is None:
        return ControlRecord(beginning.sink, None, Status.INTENT, NO_BATCH, NO_BATCH, beginning.token, orphans)
    return last._replace(status=Status.INTENT, token=beginning.token, transactions=orphans, inline=())


def over(beginning: Beginning, reason: str) -> Next:
    """Start again with a fence: an unanswered write is never sent again, since a late answer could end the next one's."""
    if beginning.tries <= 1:
        return unsure(beginning.sink, MAX_TRIES, reason)
    return Taking(beginning._replace(tries=beginning.tries - 1))
