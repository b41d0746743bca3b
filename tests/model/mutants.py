"""Drivers with one rule of the design broken: steps around the product's own, so that searches show what each rule is for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from spark_producer.exactly_once.protocol import abort, begin, commit, roll_forward
from spark_producer.exactly_once.protocol.commands import (
    Answer,
    Fates,
    Fence,
    Fenced,
    Found,
    ListOpen,
    Opened,
    ReadControl,
    Unsure,
)
from spark_producer.exactly_once.protocol.control_record import UNFINISHED, Status
from spark_producer.exactly_once.protocol.final_status import judge, word
from spark_producer.exactly_once.protocol.outcomes import AlreadyDone, Committed, Failed, Failure, Redriven
from spark_producer.exactly_once.protocol.state_machine import Next, Step
from spark_producer.exactly_once.protocol.task_messages import Prepared, TaskOutcome

Change = Callable[[object, Answer], Any]
"""What follows instead from a step (the innermost one) and an answer; None where nothing is changed."""


def changed(change: Change) -> Callable[[Step, Answer], Next]:
    """The product's steps with `change`, also where they carry out what is decided."""

    def after(step: Step, answer: Answer) -> Next:
        match step:
            case begin.Redriving(beginning, driving):
                instead = change(driving, answer)
                return step.after(answer) if instead is None else begin.carried_on(beginning, instead)
            case commit.Finishing(driving, orphans):
                instead = change(driving, answer)
                return (
                    step.after(answer) if instead is None else commit.carried_on(instead, orphans, driving.drive.record)
                )
            case abort.Finishing(driving):
                instead = change(driving, answer)
                return step.after(answer) if instead is None else abort.carried_on(instead)
        instead = change(step, answer)
        return step.after(answer) if instead is None else instead

    return after


# --- whole machines -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FreshEpoch:
    """A commit that takes its own epoch of the control id, instead of that of BEGIN."""

    failpoint: ClassVar = "freshepoch"

    messages: tuple[TaskOutcome, ...]
    batch: int

    @property
    def ask(self) -> Fence:
        return Fence()

    def after(self, answer: Answer) -> Next:
        assert isinstance(answer, Fenced)
        ticket = self.messages[0].ticket._replace(fencing=answer.fencing)
        return commit.commit([one._replace(ticket=ticket) for one in self.messages], self.batch)


def commit_with_a_fresh_epoch(messages: Sequence[TaskOutcome], batch: int) -> Next:
    return FreshEpoch(tuple(messages), batch)


@dataclass(frozen=True)
class ReadsFirst:
    """A BEGIN that reads before it fences."""

    failpoint: ClassVar = "readsfirst"

    beginning: begin.Beginning

    @property
    def ask(self) -> ReadControl:
        return ReadControl()

    def after(self, answer: Answer) -> Next:
        return FencesThen(self.beginning, answer)


@dataclass(frozen=True)
class FencesThen:
    """The fence that comes too late."""

    failpoint: ClassVar = "fencesthen"

    beginning: begin.Beginning
    read: Answer

    @property
    def ask(self) -> Fence:
        return Fence()

    def after(self, answer: Answer) -> Next:
        assert isinstance(answer, Fenced)
        return begin.Reading(self.beginning, answer.fencing).after(self.read)


@dataclass(frozen=True)
class ListsLate:
    """A commit that lists what is open when all is done, as a newer driver's transactions may be."""

    failpoint: ClassVar = "listslate"

    batch: int

    @property
    def ask(self) -> ListOpen:
        return ListOpen()

    def after(self, answer: Answer) -> Next:
        assert isinstance(answer, Opened)
        return commit.Sweeping(self.batch, answer.transactions) if answer.transactions else Committed(self.batch)


def commit_that_lists_late(step: Step, answer: Answer) -> Next:
    following = step.after(answer)
    before = isinstance(step, commit.Writing | commit.Finishing | commit.Looking)
    return ListsLate(following.batch) if before and isinstance(following, Committed) else following


def commit_that_knows_too_much(step: Step, answer: Answer) -> Next:
    """A commit without a number says that it may run again, where it cannot know."""
    following = step.after(answer)
    if isinstance(following, Failed) and following.kind is Failure.UNKNOWN:
        return Failed(Failure.NOT_WRITTEN if isinstance(step, commit.Looking) else Failure.FENCED, following.text)
    return following


def begin_that_reads_first(sink: str, token: str) -> Next:
    return ReadsFirst(begin.Beginning(sink, token))


def commit_of_what_is_done(messages: Sequence[TaskOutcome], batch: int) -> Next:
    """A commit that does not look whether its batch is done."""
    ticket = messages[0].ticket._replace(last=None)
    return commit.commit([one._replace(ticket=ticket) for one in messages], batch)


def commit_that_counts_no_transactions(messages: Sequence[TaskOutcome], batch: int) -> Next:
    """A commit that does not count the rows which tasks have in transactions of their own."""
    return commit.commit([one._replace(rows=0) if isinstance(one, Prepared) else one for one in messages], batch)


def commit_that_notes_nothing(messages: Sequence[TaskOutcome], batch: int) -> Next:
    """A run that finds a number done does not note it."""
    start = commit.commit(messages, batch)
    return AlreadyDone(batch) if isinstance(start, commit.Noting) else start


def commit_that_notes_lower_numbers(messages: Sequence[TaskOutcome], batch: int) -> Next:
    """A run notes lower numbers too, which it finds done in a micro-batch that Spark repeats."""
    start, ticket, origin = commit.commit(messages, batch), messages[0].ticket, messages[0].origin
    if not isinstance(start, AlreadyDone) or ticket.last is None or not origin.run:
        return start
    return commit.Noting(ticket.fencing, ticket.last._replace(run=origin.run), batch)


def abort_without_a_look(messages: Sequence[TaskOutcome | None]) -> Next:
    """An abort that does what it is called."""
    return abort.Ending(tuple(one.transaction for one in messages if isinstance(one, Prepared)))


# --- single steps -------------------------------------------------------------------------------------------------------


def no_intent(step: object, answer: Answer) -> Any:
    """Orphans are aborted without a fenced write that names them."""
    if isinstance(step, begin.Listing) and isinstance(answer, Opened) and answer.transactions:
        return begin.Sweeping(step.fencing, begin.intent(step.beginning, step.last, answer.transactions))
    return None


def no_redrive(step: object, answer: Answer) -> Any:
    """BEGIN takes the transactions of a decided write for orphans."""
    if not isinstance(step, begin.Reading) or not isinstance(answer, Found) or answer.record is None:
        return None
    return begin.Listing(step.beginning, step.fencing, answer.record) if answer.record.status in UNFINISHED else None


def verdict_at_once(step: object, answer: Answer) -> Any:
    """A driver calls a write partial without a fenced write that says so."""
    if isinstance(step, roll_forward.Looking) and isinstance(answer, Fates):
        following = step.after(answer)
        if isinstance(following, roll_forward.Deciding) and isinstance(following.end, Failed):
            return following.end
    return None


def no_done(step: object, answer: Answer) -> Any:
    """What is carried out is not written as done, so that the record does not say so later."""
    if isinstance(step, roll_forward.Looking) and isinstance(answer, Fates):
        following = step.after(answer)
        if isinstance(following, roll_forward.Deciding) and isinstance(following.end, Redriven):
            return Redriven(step.drive.record._replace(status=Status.DONE), step.drive.fencing)
    return None


def void_with_inline_rows(step: object, answer: Answer) -> Any:
    """A write whose inline rows are visible is called void."""
    if isinstance(step, roll_forward.Looking) and isinstance(answer, Fates):
        record = step.drive.record
        if judge(record._replace(inline=()), step.refused, answer.fates) is Status.VOID:
            void = word(record, Status.VOID)
            return roll_forward.Deciding(step.drive, void, Redriven(void, step.drive.fencing))
    return None


def resend(step: object, answer: Answer) -> Any:
    """A commit that is not answered is sent again."""
    return step if isinstance(step, commit.Writing) and isinstance(answer, Unsure) else None


def token_alone(step: object, answer: Answer) -> Any:
    """The token of BEGIN's own INTENT is taken for that of a commit."""
    if not isinstance(step, commit.Looking) or not isinstance(answer, Found) or answer.record is None:
        return None
    return Committed(step.record.batch) if answer.record.token == step.record.token else None


def abort_without_a_fence(step: object, answer: Answer) -> Any:
    """An abort that looks, but does not see to it that no late answer changes what it saw."""
    return abort.Reading(step.remains, None) if isinstance(step, abort.Asking) else None
