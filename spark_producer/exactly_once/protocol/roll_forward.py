"""REDRIVE: what a control record has decided is carried out, by whichever driver comes to it, as often as it takes.

Every transaction that the record names is committed; it is never aborted. Then the logs are looked at: a coordinator's word is
not enough, since partitions may have lost the marker (R8). Each verdict is a fenced write: a driver that is not the newest any
more finds out there, and stays silent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple, TypeAlias

from spark_producer.exactly_once.protocol.commands import (
    Answer,
    EndTasks,
    Fates,
    Fence,
    Fenced,
    FencedOff,
    Fencing,
    Found,
    Glued,
    Hung,
    LookAtLogs,
    Missing,
    ReadControl,
    Refused,
    TasksEnded,
    Unsure,
    WriteControl,
    Written,
)  # fmt: skip
from spark_producer.exactly_once.protocol.control_record import (
    DECIDED,
    UNFINISHED,
    ControlRecord,
    Status,
    TopicPartition,
)
from spark_producer.exactly_once.protocol.final_status import incomplete, judge, missing, word
from spark_producer.exactly_once.protocol.outcomes import Failed, Redriven, fenced_off, hung, no_record, unsure
from spark_producer.exactly_once.protocol.state_machine import MAX_TRIES, unexpected, write_answer

LEFT = "the next write of the sink goes on from what is decided"
TAKEN_OVER = "this one leaves what is decided to that driver"


class Drive(NamedTuple):
    """What is carried out. `hanging` are partitions of the record's own transaction that do not show its end."""

    record: ControlRecord
    fencing: Fencing
    hanging: tuple[TopicPartition, ...] = ()
    tries: int = MAX_TRIES


@dataclass(frozen=True, slots=True)
class Ending:
    """All transactions of the record are committed, or are so already."""

    failpoint: ClassVar = "ending"

    drive: Drive

    @property
    def ask(self) -> EndTasks:
        return EndTasks(self.drive.record.transactions, commit=True)

    def after(self, answer: Answer) -> Next:
        if not isinstance(answer, TasksEnded):
            unexpected(self, answer)
        return Looking(self.drive, tuple(isinstance(result, Refused) for result in answer.results))


@dataclass(frozen=True, slots=True)
class Looking:
    """The coordinators have answered; `refused` says for each transaction whether with no. Now the logs are asked."""

    failpoint: ClassVar = "looking"

    drive: Drive
    refused: tuple[bool, ...]

    @property
    def ask(self) -> LookAtLogs:
        return LookAtLogs(self.drive.record.transactions)

    def after(self, answer: Answer) -> Next:
        if not isinstance(answer, Fates):
            unexpected(self, answer)
        record, hanging = self.drive.record, self.drive.hanging
        verdict = judge(record, self.refused, answer.fates)
        if hanging or (verdict is Status.HUNG and record.status is Status.HUNG):
            # Where the control record itself hangs, one more transaction of the control id would decide what hangs there.
            return hung(record.sink, hanging + answer.open_partitions)
        match verdict:
            case Status.HUNG:
                end: Redriven | Failed = hung(record.sink, answer.open_partitions)
            case Status.PARTIAL:
                names = tuple(one.transactional_id for one in missing(record, self.refused, answer.fates))
                end = incomplete(record, names)
            case _:
                end = Redriven(word(record, verdict), self.drive.fencing)
        return Deciding(self.drive, word(record, verdict), end)


@dataclass(frozen=True, slots=True)
class Deciding:
    """The verdict is written, which tells whether this driver is still the newest. `end` is what it means, once it is there."""

    failpoint: ClassVar = "deciding"

    drive: Drive
    word: ControlRecord
    end: Redriven | Failed

    @property
    def ask(self) -> WriteControl:
        return WriteControl(self.drive.fencing, self.word)

    def after(self, answer: Answer) -> Next:
        match write_answer(self, answer):
            case Written(fencing):
                return self.end._replace(fencing=fencing) if isinstance(self.end, Redriven) else self.end
            case Hung(partitions):
                return hung(self.word.sink, partitions)
            case FencedOff(expired):
                return fenced_off(self.word.sink, LEFT if expired else TAKEN_OVER, expired=expired)
            case Unsure(reason):
                return again(self.drive, reason)
            case Glued(partitions):
                return again(self.drive, f"an older transaction hung in {partitions}")


@dataclass(frozen=True, slots=True)
class Refencing:
    """It is not known whether the verdict was written. It is not sent again: a fence decides, and the next look tells."""

    failpoint: ClassVar = "refencing"

    drive: Drive

    @property
    def ask(self) -> Fence:
        return Fence()

    def after(self, answer: Answer) -> Next:
        if not isinstance(answer, Fenced):
            unexpected(self, answer)
        return Rereading(self.drive._replace(fencing=answer.fencing))


@dataclass(frozen=True, slots=True)
class Rereading:
    """After the fence: what is the last word?"""

    failpoint: ClassVar = "rereading"

    drive: Drive

    @property
    def ask(self) -> ReadControl:
        return ReadControl()

    def after(self, answer: Answer) -> Next:
        if isinstance(answer, Missing):
            return no_record(self.drive.record.sink, answer.topic)
        if not isinstance(answer, Found | Hung):
            unexpected(self, answer)
        record = answer.record
        hanging = answer.partitions if isinstance(answer, Hung) else ()
        if record is not None and record.token == self.drive.record.token and record.status in DECIDED:
            return start(self.drive._replace(record=record, hanging=hanging))
        if hanging:
            return hung(self.drive.record.sink, hanging)
        return fenced_off(self.drive.record.sink, TAKEN_OVER)


Driving: TypeAlias = Ending | Looking | Deciding | Refencing | Rereading
Next: TypeAlias = Driving | Redriven | Failed


def start(drive: Drive) -> Next:
    """Go on from a record with status `COMMITTING`, `HUNG`, `DONE`, `VOID` or `PARTIAL`."""
    if drive.record.status in UNFINISHED:
        return Ending(drive)
    if drive.hanging:
        return hung(drive.record.sink, drive.hanging)
    if drive.record.status is Status.PARTIAL:
        return incomplete(drive.record)
    return Redriven(drive.record, drive.fencing)


def again(drive: Drive, reason: str) -> Next:
    """Fence and look, but not for ever."""
    if drive.tries <= 1:
        return unsure(drive.record.sink, MAX_TRIES, reason)
    return Refencing(drive._replace(tries=drive.tries - 1))
