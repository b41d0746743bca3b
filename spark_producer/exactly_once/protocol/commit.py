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

from spark_producer.exactly_once.protocol import roll_forward
from spark_producer.exactly_once.protocol.batch_admission import Refuse, Skip, admit
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
    Vote,
    Voted,
    WriteControl,
    Written,
)  # fmt: skip
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
    Committed,
    Failed,
    Failure,
    Redriven,
    fenced_off,
    hung,
    no_record,
)
from spark_producer.exactly_once.protocol.row_count_check import repeated, total_content
from spark_producer.exactly_once.protocol.state_machine import unexpected, write_answer
from spark_producer.exactly_once.protocol.task_messages import Inline, Origin, Prepared, Skipped, TaskOutcome, Ticket

Orphans: TypeAlias = tuple[TaskTransaction, ...]
"""Transactions that were open before the commit point, and are no part of the write."""

LEFT_TO_OTHERS = frozenset({Failure.FENCED, Failure.EXPIRED, Failure.UNSURE})
"""So a write that is decided may end before it is carried out: others do that."""


@dataclass(frozen=True, slots=True)
class Listing:
    """What is open besides the transactions of the write: its orphans."""

    failpoint: ClassVar = "commit.listing"

    fencing: Fencing
    record: ControlRecord
    before: str
    """the token of the sink's last word when the write began; empty if there was none"""

    @property
    def ask(self) -> ListOpen:
        return ListOpen(self.record.transactions)

    def after(self, answer: Answer) -> Next:
        if not isinstance(answer, Opened):
            unexpected(self, answer)
        following = Voting if self.record.transactions else Writing
        return following(self.fencing, self.record, answer.transactions, self.before)


@dataclass(frozen=True, slots=True)
class Voting:
    """The last moment at which the whole write can be given up: are all transactions fit to be committed?"""

    failpoint: ClassVar = "commit.voting"

    fencing: Fencing
    record: ControlRecord
    orphans: Orphans
    before: str

    @property
    def ask(self) -> Vote:
        return Vote(self.record.transactions, self.fencing)

    def after(self, answer: Answer) -> Next:
        if not isinstance(answer, Voted):
            unexpected(self, answer)
        if not answer.objections:
            return Writing(self.fencing, self.record, self.orphans, self.before)
        if answer.overtaken:
            return fenced_off(self.record.sink, "its transactions were aborted, and nothing of it is visible")
        return Failed(
            Failure.VOTE,
            f"{about(self.record)}: transactions of its tasks must not be committed ({'; '.join(answer.objections)}). Nothing of "
            "it is visible, and it can be run again. If they were open too long, raise kafka.transaction.timeout.ms",
            answer.objections,
        )


@dataclass(frozen=True, slots=True)
class Writing:
    """The commit point."""

    failpoint: ClassVar = "commit.writing"

    fencing: Fencing
    record: ControlRecord
    orphans: Orphans
    before: str

    @property
    def ask(self) -> WriteControl:
        return WriteControl(self.fencing, self.record, inline=bool(self.record.inline))

    def after(self, answer: Answer) -> Next:
        match write_answer(self, answer):
            case Written(fencing):
                return decided(roll_forward.Drive(self.record, fencing), self.orphans)
            case Hung(partitions):
                # It is decided all the same: tasks' transactions are committed before people are called.
                return decided(roll_forward.Drive(self.record, self.fencing, partitions), self.orphans)
            case FencedOff(expired):
                return fenced_off(self.record.sink, "nothing of this one is visible", expired=expired)
            case Unsure():
                return Resolving(self.record, self.orphans, self.before)
            case Glued(partitions):
                names = tuple(f"{topic}-{partition}" for topic, partition in partitions)
                return Failed(
                    Failure.GLUED,
                    f"{about(self.record)}: in {', '.join(names)} an older transaction of the same producer had lost its end, "
                    "and this one would have decided its rows too. Both are aborted: nothing is visible, and it can be run again",
                    names,
                )


@dataclass(frozen=True, slots=True)
class Resolving:
    """The commit was not answered. It is not sent again: a fence decides it, and the next look tells."""

    failpoint: ClassVar = "commit.resolving"

    record: ControlRecord
    orphans: Orphans
    before: str

    @property
    def ask(self) -> Fence:
        return Fence()

    def after(self, answer: Answer) -> Next:
        if not isinstance(answer, Fenced):
            unexpected(self, answer)
        return Looking(self.record, answer.fencing, self.orphans, self.before)


@dataclass(frozen=True, slots=True)
class Looking:
    """After the fence: is the record there? An `INTENT` of the same token is BEGIN's, and no commit.

    Where another's word has replaced the one before this write, that may have happened over this one's. If it has a number, it is
    skipped when it is run again; without one nothing would.
    """

    failpoint: ClassVar = "commit.looking"

    record: ControlRecord
    fencing: Fencing
    orphans: Orphans
    before: str

    @property
    def ask(self) -> ReadControl:
        return ReadControl()

    def after(self, answer: Answer) -> Next:
        if isinstance(answer, Missing):
            return no_record(self.record.sink, answer.topic)
        if not isinstance(answer, Found | Hung):
            unexpected(self, answer)
        found = answer.record
        hanging = answer.partitions if isinstance(answer, Hung) else ()
        if found is not None and found.token == self.record.token and found.status in DECIDED:
            return decided(roll_forward.Drive(found, self.fencing, hanging), self.orphans)
        if hanging:
            return look_first(self.record, hung(self.record.sink, hanging))
        if found is None or found.token in (self.record.token, self.before):
            why = "it has not happened"
        elif self.record.batch == NO_BATCH:
            return unknown(self.record, "the brokers did not answer the commit, and another write has followed")
        else:
            why = "it has not happened, or a newer driver has gone on from it"
        return Failed(
            Failure.NOT_WRITTEN,
            f"{about(self.record)}: the brokers did not answer the commit, and {why}. It can be run again: no row will be "
            "doubled",
        )


@dataclass(frozen=True, slots=True)
class Finishing:
    """What is decided is carried out."""

    failpoint: ClassVar = "commit.finishing"

    driving: roll_forward.Driving
    orphans: Orphans

    @property
    def ask(self) -> Ask:
        return self.driving.ask

    def after(self, answer: Answer) -> Next:
        following = self.driving.after(answer)
        record = self.driving.drive.record
        if isinstance(following, Failed) and following.kind in LEFT_TO_OTHERS and record.batch == NO_BATCH:
            return unknown(record, f"it is decided, and was left to others ({following.kind.value})")
        return carried_on(following, self.orphans, record)


@dataclass(frozen=True, slots=True)
class Sweeping:
    """The batch is committed, and its orphans are aborted, each only if it is still the one that was listed."""

    failpoint: ClassVar = "commit.sweeping"

    batch: int
    orphans: Orphans

    @property
    def ask(self) -> EndTasks:
        return EndTasks(self.orphans, commit=False)

    def after(self, answer: Answer) -> Next:
        if not isinstance(answer, TasksEnded):
            unexpected(self, answer)
        return Committed(self.batch)


@dataclass(frozen=True, slots=True)
class Noting:
    """Notes in the control record that this run has found a batch of an earlier run done: it must not skip that number again."""

    failpoint: ClassVar = "commit.noting"

    fencing: Fencing
    record: ControlRecord
    batch: int

    @property
    def ask(self) -> WriteControl:
        return WriteControl(self.fencing, self.record)

    def after(self, answer: Answer) -> Next:
        match write_answer(self, answer):
            case Written():
                return AlreadyDone(self.batch)
            case Hung(partitions):
                return hung(self.record.sink, partitions)
            case FencedOff(expired):
                return fenced_off(self.record.sink, "this one ends; its batch was committed before", expired=expired)
            case Unsure() | Glued():
                return Failed(
                    Failure.NOT_WRITTEN,
                    f"sink {self.record.sink!r}, batch {self.batch}: it was committed before, but the brokers did not "
                    "acknowledge the control record that notes this run. It can be run again: no row will be written twice",
                )


Commits: TypeAlias = Listing | Voting | Writing | Resolving | Looking | Finishing | Sweeping | Noting
Next: TypeAlias = Commits | Committed | AlreadyDone | Failed


def commit(messages: Sequence[TaskOutcome], batch: int) -> Next:
    """The first step of COMMIT, or its outcome if nothing has to be asked. `messages` has one of each task.

    A batch without rows is written too, as `DONE`: whoever hears that it is committed may rely on it that no other execution of
    it will ever be visible, and an overtaken driver must not hear so.
    """
    if (
        not messages
        or len({(one.ticket, one.query, one.batch, one.origin) for one in messages}) > 1
        or messages[0].batch != batch
    ):
        return mixed(batch, "they are of several executions, or of another batch" if messages else "there are none")
    ticket, query = messages[0].ticket, messages[0].query
    skipped = [one for one in messages if isinstance(one, Skipped)]
    origin = messages[0].origin
    admission = admit(ticket.last, ticket.sink, query, batch, origin)
    if isinstance(admission, Refuse):
        return Failed(Failure.REFUSED, admission.reason)
    if isinstance(admission, Skip) and len(skipped) == len(messages):
        return noted(ticket, batch, origin, repeated(skipped))
    if isinstance(admission, Skip) or skipped:
        return mixed(batch, "some have written, and others say that the batch is done")
    record = decision(ticket, query, batch, messages)
    return Listing(ticket.fencing, record, "" if ticket.last is None else ticket.last.token)


def noted(ticket: Ticket, batch: int, origin: Origin, outcome: AlreadyDone | Failed) -> Next:
    """Return the next step for a batch that is done: in `foreachBatch` the control record notes this run.

    It does not for a lower number of a micro-batch that Spark repeats: that would make the next one, the last that is done,
    look like a second write of this run.
    """
    last = ticket.last
    if isinstance(outcome, Failed) or last is None or not origin.run or batch != last.last_done:
        return outcome
    record = last._replace(
        origin=origin.query or last.origin,
        run=origin.run,
        done_micro_batch=origin.micro_batch,
        transactions=(),
        inline=(),
    )
    return Noting(ticket.fencing, record, batch)


def decision(ticket: Ticket, query: str, batch: int, messages: Sequence[TaskOutcome]) -> ControlRecord:
    """The record whose writing commits the batch: `COMMITTING`, or `DONE` at once if no task has a transaction of its own."""
    transactions = tuple(one.transaction for one in messages if isinstance(one, Prepared))
    partitions = {(rows.topic, rows.partition) for one in messages if isinstance(one, Inline) for rows in one.batches}
    last = ticket.last
    record = ControlRecord(
        ticket.sink,
        query,
        Status.COMMITTING,
        batch,
        NO_BATCH if last is None else last.last_done,
        ticket.token,
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


def decided(drive: roll_forward.Drive, orphans: Orphans) -> Next:
    """The record is in the log: what it says is carried out."""
    return carried_on(roll_forward.start(drive), orphans, drive.record)


def carried_on(driving: roll_forward.Next, orphans: Orphans, decision: ControlRecord) -> Next:
    """The same within COMMIT, where a write that turned out void must be told to whoever has to run it again."""
    match driving:
        case Failed():
            return look_first(decision, driving)
        case Redriven(record, _) if record.status is not Status.DONE:
            return void(record)
        case Redriven(record, _):
            return Sweeping(record.batch, orphans) if orphans else Committed(record.batch)
        case _:
            return Finishing(driving, orphans)


def unknown(record: ControlRecord, why: str) -> Failed:
    """A write without a number may be committed, and would not be skipped if it were run again."""
    return Failed(
        Failure.UNKNOWN,
        f"{about(record)}: {why}, so its rows may be visible. Running it again could double them: look first, by a reader of "
        "committed records, whether they are there. With the option txnVersion a write can always be run again",
    )


def look_first(record: ControlRecord, failed: Failed) -> Failed:
    """What is told of a write that hangs and has no number: mended it may be committed, and nothing would skip it then."""
    if failed.kind is not Failure.HUNG or record.batch != NO_BATCH:
        return failed
    return failed._replace(
        text=f"{about(record)}: {', '.join(failed.names)} lost the markers that end transactions. Readers wait there, and "
        "nothing more is written. This write has no txnVersion, and may be committed, so do not run it again before you have "
        f"looked: `pyproducer txn describe {record.sink}` says what is known of it, `pyproducer txn repair {record.sink}` mends "
        "it. Then a reader of committed records shows whether the rows are there. With the option txnVersion a write can always "
        "be run again",
    )


def mixed(batch: int, why: str) -> Failed:
    """The messages cannot be those of one execution of the batch."""
    return Failed(
        Failure.MIXED, f"batch {batch}: the messages of its tasks do not belong together, {why}. Nothing is committed"
    )


def about(record: ControlRecord) -> str:
    """What a message speaks of."""
    return f"sink {record.sink!r}" + ("" if record.batch == NO_BATCH else f", batch {record.batch}")
