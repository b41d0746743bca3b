"""ABORT: the tasks' open transactions are ended, unless the execution turns out to be committed. Spark calls it in both cases.

When `commit` raised, its record may be in the log. So nothing is aborted before the control id is known to be out of the hands
of this execution, and the last word has been read. An overtaken driver does not fence: that the id has a newer holder is as
good, and the newer driver goes on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, TypeAlias

from spark_producer.exactly_once.protocol import roll_forward
from spark_producer.exactly_once.protocol.commands import (
    Answer,
    Ask,
    Ended,
    EndTasks,
    Fence,
    Fenced,
    Fencing,
    Found,
    Holder,
    Hung,
    LookAtHolder,
    Missing,
    ReadControl,
    TasksEnded,
)  # fmt: skip
from spark_producer.exactly_once.protocol.control_record import (
    DECIDED,
    UNFINISHED,
    ControlRecord,
    Status,
    TaskTransaction,
)
from spark_producer.exactly_once.protocol.final_status import void
from spark_producer.exactly_once.protocol.outcomes import Aborted, Committed, Failed, LeftAlone, Redriven
from spark_producer.exactly_once.protocol.state_machine import unexpected
from spark_producer.exactly_once.protocol.task_messages import Prepared, TaskOutcome, Ticket


class Remains(NamedTuple):
    """What an execution has left: its ticket, and the transactions that its tasks have told."""

    ticket: Ticket
    transactions: tuple[TaskTransaction, ...]


@dataclass(frozen=True, slots=True)
class Asking:
    """Has anybody fenced, or written, since this execution began?"""

    failpoint: ClassVar = "abort.asking"

    remains: Remains

    @property
    def ask(self) -> LookAtHolder:
        return LookAtHolder()

    def after(self, answer: Answer) -> Next:
        if not isinstance(answer, Holder):
            unexpected(self, answer)
        if answer.fencing == self.remains.ticket.fencing:
            return Taking(self.remains)
        return Reading(self.remains, None)


@dataclass(frozen=True, slots=True)
class Taking:
    """Nobody has: the fence ends the commit of this execution, if one is under way, and hurts nobody."""

    failpoint: ClassVar = "abort.taking"

    remains: Remains

    @property
    def ask(self) -> Fence:
        return Fence()

    def after(self, answer: Answer) -> Next:
        if not isinstance(answer, Fenced):
            unexpected(self, answer)
        return Reading(self.remains, answer.fencing)


@dataclass(frozen=True, slots=True)
class Reading:
    """Is this execution decided? `fencing` is None if somebody else holds the control id."""

    failpoint: ClassVar = "abort.reading"

    remains: Remains
    fencing: Fencing | None

    @property
    def ask(self) -> ReadControl:
        return ReadControl()

    def after(self, answer: Answer) -> Next:
        if isinstance(answer, Missing):
            return LeftAlone(f"whether it was decided is not known, since the record is not in {answer.topic!r}")
        if not isinstance(answer, Found | Hung):
            unexpected(self, answer)
        record = answer.record
        hanging = answer.partitions if isinstance(answer, Hung) else ()
        if hanging and record is None:
            return LeftAlone("the control record cannot be read yet: the next write of this sink goes on from it")
        if record is None and self.remains.ticket.last is not None:
            return LeftAlone("whether it was decided is not known, since the sink's record is gone")
        if record is None or record.token != self.remains.ticket.token or record.status not in DECIDED:
            return Ending(self.remains.transactions)
        if self.fencing is not None:
            return carried_on(roll_forward.start(roll_forward.Drive(record, self.fencing, hanging)))
        if record.status in UNFINISHED:
            return Helping(record)
        return LeftAlone(f"the execution was decided: {record.status.value}")


@dataclass(frozen=True, slots=True)
class Ending:
    """The execution is not committed, and will never be. A refusal says that a transaction is gone already."""

    failpoint: ClassVar = "abort.ending"

    transactions: tuple[TaskTransaction, ...]

    @property
    def ask(self) -> EndTasks:
        return EndTasks(self.transactions, commit=False)

    def after(self, answer: Answer) -> Next:
        if not isinstance(answer, TasksEnded):
            unexpected(self, answer)
        ended = zip(self.transactions, answer.results, strict=True)
        return Aborted(tuple(one.transactional_id for one, result in ended if isinstance(result, Ended)))


@dataclass(frozen=True, slots=True)
class Helping:
    """The execution is committed: its transactions are ended before they time out. Whoever holds the sink gives the verdict."""

    failpoint: ClassVar = "abort.helping"

    record: ControlRecord

    @property
    def ask(self) -> EndTasks:
        return EndTasks(self.record.transactions, commit=True)

    def after(self, answer: Answer) -> Next:
        if not isinstance(answer, TasksEnded):
            unexpected(self, answer)
        return LeftAlone(
            "the execution was decided: its transactions are committed, the next write of this sink looks after them"
        )


@dataclass(frozen=True, slots=True)
class Finishing:
    """The execution is committed: what is decided is carried out, as in COMMIT."""

    failpoint: ClassVar = "abort.finishing"

    driving: roll_forward.Driving

    @property
    def ask(self) -> Ask:
        return self.driving.ask

    def after(self, answer: Answer) -> Next:
        return carried_on(self.driving.after(answer))


Aborts: TypeAlias = Asking | Taking | Reading | Ending | Helping | Finishing
Next: TypeAlias = Aborts | Aborted | Committed | LeftAlone | Failed


def abort(messages: Sequence[TaskOutcome | None]) -> Next:
    """The first step of ABORT, or its outcome if there is nothing to do. `messages` is None for a task that has not ended.

    What such tasks have open is found by the next BEGIN: their transactions are not known here.
    """
    prepared = [one for one in messages if isinstance(one, Prepared)]
    if not prepared:
        return LeftAlone("no task has reported a transaction")
    ticket = prepared[0].ticket
    return Asking(Remains(ticket, tuple(one.transaction for one in prepared if one.ticket == ticket)))


def carried_on(driving: roll_forward.Next) -> Next:
    """Go on with what is decided."""
    match driving:
        case Failed():
            return driving
        case Redriven(record, _):
            return Committed(record.batch) if record.status is Status.DONE else void(record)
        case _:
            return Finishing(driving)
