"""The response of a cluster to every command, as Kafka's coordinators and leaders respond: the worlds that may follow, and the
results.

What takes several requests takes several moves, between which others move (`aux` of the driver): a control write is a produce
and an end, and transactions of tasks are ended one by one, in any order.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_never

from spark_producer.common.cluster import ProducerIdAndEpoch, TopicPartition, TransactionVersion
from spark_producer.exactly_once.cluster.last_commit import is_missing
from spark_producer.exactly_once.protocol.commands import (
    Command,
    ControlIdHolder,
    ControlWritten,
    DescribeControlId,
    Ended,
    EndRefused,
    EndTasks,
    Fence,
    Fenced,
    FencedOff,
    Found,
    Indeterminate,
    ListOpen,
    LogOutcomes,
    MarkersLost,
    Missing,
    OlderTransactionHangs,
    Opened,
    ReadControl,
    ReadLogs,
    Result,
    TasksEnded,
    TransactionOutcome,
    Vote,
    Voted,
    WriteControl,
)
from spark_producer.exactly_once.protocol.control_record import ControlRecord, Status, TaskTransaction
from tests.model.wiring import Wiring
from tests.model.world import (
    CONTROL,
    CONTROL_PARTITION,
    DATA_PARTITION,
    Entry,
    Identity,
    Numbers,
    Row,
    World,
    appended,
    decide,
    identity,
    with_identity,
)  # fmt: skip

Reply = tuple[World, Result | None, tuple[object, ...]]
"""The result of a move: the world, and the result of the command, or None and the state of a command that takes several moves."""


class Cluster:
    """All brokers. It holds no state but the numbers of records."""

    def __init__(self, wiring: Wiring) -> None:
        self.wiring = wiring
        self.records: Numbers[ControlRecord | None] = Numbers()
        self.records.of(None)

    def replies(
        self, world: World, command: Command, aux: tuple[object, ...], rows: tuple[Row, ...]
    ) -> Iterator[Reply]:
        """Yield all that may happen next to `command`. `rows` are those of the inline tasks."""
        match command:
            case Fence():
                for after in self.fenced(world):
                    noted = after.noted if after.noted >= 0 else None
                    yield after, Fenced(ProducerIdAndEpoch(0, after.control.epoch), noted), ()
            case DescribeControlId():
                yield world, ControlIdHolder(ProducerIdAndEpoch(0, world.control.epoch)), ()
            case ReadControl():
                yield world, self.read(world), ()
            case ListOpen(excluding, following):
                if following is not None and not aux and self.begins_early(following):
                    after = self.begun(world, following, rows)
                    yield after, None, ("looked", self.shows_only_own(after, following))
                    return
                known = {one.transactional_id for one in excluding}
                found = (one for one in world.identities if one.state == "O" and one.name not in known)
                yield world, Opened(tuple(map(self.transaction, found))), aux
            case WriteControl():
                yield from self.write(world, command, aux, rows)
            case Vote(transactions, _):
                yield world, Voted(tuple(one.transactional_id for one in transactions if self.objects(world, one))), aux
            case EndTasks():
                yield from self.end_tasks(world, command, aux)
            case ReadLogs(transactions, written):
                outcomes = self.outcomes(world, transactions)
                lost = () if written is None else self.lost(world, written.epoch)
                yield world, outcomes._replace(hanging=lost if self.wiring.r8 else ()), ()
            case _:
                assert_never(command)

    def transaction(self, one: Identity) -> TaskTransaction:
        return TaskTransaction(one.name, 0, one.epoch, self.wiring.transaction_version, ())

    def bumped(self, one: Identity, state: str) -> Identity:
        """The identity after the end of a transaction: its epoch rises with transaction.version 2."""
        return one._replace(
            epoch=one.epoch + (self.wiring.transaction_version is TransactionVersion.IMPLICIT), state=state
        )

    # --- the control id -------------------------------------------------------------------------------------------------

    def fenced(self, world: World) -> list[World]:
        """A fence reads the state of the control id, and records it."""
        noted = world.control.epoch if world.control.state == "C" else world.noted
        world = world._replace(noted=noted if self.wiring.notes else -1)
        after = decide(world, CONTROL, commit=False) if world.control.state == "O" else [world]
        return [one._replace(control=one.control._replace(epoch=one.control.epoch + 1, state="E")) for one in after]

    def hanging(self, world: World, owner: str, control: bool) -> bool:
        return any(one.owner == owner and one.control is control and one.truth for one in world.entries)

    def read(self, world: World) -> Result:
        record = self.records.values[world.record]
        hung: tuple[TopicPartition, ...] = ()
        if self.wiring.r8 and self.wiring.checks_control and self.hanging(world, CONTROL, control=True):
            hung = (CONTROL_PARTITION,)
        elif self.wiring.r8 and self.wiring.checks_inline and record is not None and record.inline:
            hung = (DATA_PARTITION,) if self.hanging(world, CONTROL, control=False) else ()
        if hung:
            return MarkersLost(hung, None if CONTROL_PARTITION in hung else record)
        # With transaction.version 2 the marker has the epoch that follows that of its record (KIP-890).
        noted = None if world.noted < 0 else world.noted
        last = ProducerIdAndEpoch(0, world.writer + (self.wiring.transaction_version is TransactionVersion.IMPLICIT))
        newest = ProducerIdAndEpoch(0, world.control.epoch + 1)
        missing = is_missing(noted, newest, None if record is None else last)
        return Missing(CONTROL_PARTITION[0]) if missing else Found(record)

    def write(
        self, world: World, command: WriteControl, aux: tuple[object, ...], rows: tuple[Row, ...]
    ) -> Iterator[Reply]:
        control, number = world.control, self.records.of(command.record)
        if not self.wiring.fenced_done and command.record.status is Status.DONE and not command.inline:
            yield world._replace(record=number, writer=command.fencing.epoch), ControlWritten(command.fencing), ()
        elif aux == ("rows alone",):
            yield (
                world._replace(record=number, writer=command.fencing.epoch),
                ControlWritten(ProducerIdAndEpoch(0, control.epoch)),
                (),
            )
        elif aux == ("delayed",):
            yield world, self.delayed(world, command), ()
        elif aux[:1] == ("produced",):
            yield from self.end_write(world, command, aux)
        elif command.fencing.epoch != control.epoch:
            yield world, FencedOff(), ()
        elif control.state == "O":
            yield world, None, ("produced", *aux[1:])  # rows and record were sent together with the listing of orphans
        elif command.inline and not self.wiring.record_with_rows:
            after = appended(
                world._replace(control=control._replace(state="O")), Entry(CONTROL, control.epoch, False, rows)
            )
            for ended in self.end_control(after, commit=True):
                yield ended, None, ("rows alone",)
        else:
            after = self.begun(world, command, rows)
            yield after, None, ("produced", self.shows_only_own(after, command))

    def begins_early(self, command: WriteControl) -> bool:
        """Whether rows and record are sent together with the listing of orphans: not by the mutants that write otherwise."""
        return self.wiring.early and self.wiring.record_with_rows and self.wiring.fenced_done

    def begun(self, world: World, command: WriteControl, rows: tuple[Row, ...]) -> World:
        """The world after the Produce requests of a control write, which leaders refuse after a fence."""
        control = world.control
        if command.fencing.epoch != control.epoch:
            return world
        after = world._replace(control=control._replace(state="O"))
        if command.inline:
            after = appended(after, Entry(CONTROL, control.epoch, False, rows))
        return appended(after, Entry(CONTROL, control.epoch, True, self.records.of(command.record)))

    def shows_only_own(self, world: World, command: WriteControl) -> bool:
        """Return whether the look that follows the rows shows no older transaction (R7). Then there is no other before EndTxn."""
        return not self.wiring.heeds_looks or not self.older_hanging(world, command)

    def sends_end(self, world: World, command: WriteControl, aux: tuple[object, ...]) -> bool:
        """Return whether EndTxn follows the rows: a look that has shown an older transaction is repeated."""
        return aux == ("produced", True) or (aux[:1] == ("produced",) and not self.older_hanging(world, command))

    def end_write(self, world: World, command: WriteControl, aux: tuple[object, ...]) -> Iterator[Reply]:
        control = world.control
        if control.epoch != command.fencing.epoch or control.state != "O":
            yield world, FencedOff(), ()
            return
        if not self.sends_end(world, command, aux):
            older = self.older_hanging(world, command)
            for after in self.end_control(world, commit=False):
                yield after, OlderTransactionHangs(older), ()
            return
        for after in self.end_control(world, commit=True):
            yield after, self.written(after, command), ()
            if after.budget.losses:
                yield less_losses(after), Indeterminate(), ()
                yield less_losses(after), None, ("delayed",)
        if world.budget.losses:
            late = less_losses(world)
            yield late._replace(flights=tuple(sorted((*late.flights, control.epoch)))), Indeterminate(), ()

    def written(self, world: World, command: WriteControl) -> Result:
        """The control record is committed; do its partitions show it?"""
        lost = self.lost(world, command.fencing.epoch) if self.wiring.r8 and command.awaits_markers else ()
        return MarkersLost(lost) if lost else ControlWritten(ProducerIdAndEpoch(0, world.control.epoch))

    def lost(self, world: World, epoch: int) -> tuple[TopicPartition, ...]:
        """The partitions that have lost the marker of a transaction of the control id."""
        return tuple(
            CONTROL_PARTITION if one.control else DATA_PARTITION
            for one in world.entries
            if one.owner == CONTROL and one.truth and one.epoch == epoch
        )

    def delayed(self, world: World, command: WriteControl) -> Result:
        """The commit has happened, but the coordinator had responded "later", so the request is sent again."""
        control = world.control
        if (
            control.epoch == command.fencing.epoch + (self.wiring.transaction_version is TransactionVersion.IMPLICIT)
            and control.state == "C"
        ):
            return self.written(world, command)
        return Indeterminate() if self.wiring.doubts_late_fences else FencedOff()

    def older_hanging(self, world: World, command: WriteControl) -> tuple[TopicPartition, ...]:
        """The partitions with an older hanging transaction, which EndTxn would end too (R7)."""
        return tuple(
            partition
            for partition, is_control in ((CONTROL_PARTITION, True), (DATA_PARTITION, False))
            if self.wiring.r7 and (is_control or command.inline) and self.hanging(world, CONTROL, is_control)
        )

    def end_control(self, world: World, commit: bool) -> list[World]:
        return [
            after._replace(control=self.bumped(after.control, "C" if commit else "A"))
            for after in decide(world, CONTROL, commit)
        ]

    def arrivals(self, world: World) -> Iterator[World]:
        """Yield the worlds after a late end of a control transaction."""
        for epoch in set(world.flights):
            left = list(world.flights)
            left.remove(epoch)
            without = world._replace(flights=tuple(left))
            if world.control.epoch == epoch and world.control.state == "O":
                yield from self.end_control(without, commit=True)
            else:
                yield without

    # --- transactions of tasks ------------------------------------------------------------------------------------------

    def objects(self, world: World, one: TaskTransaction) -> bool:
        there = identity(world, one.transactional_id)
        if there is None or there.epoch != one.epoch or there.state != "O":
            return self.wiring.votes
        return self.wiring.r7 and self.hanging(world, one.transactional_id, control=False)

    def end_tasks(self, world: World, command: EndTasks, aux: tuple[object, ...]) -> Iterator[Reply]:
        so_far = aux or (None,) * len(command.transactions)
        for index, result in enumerate(so_far):
            if result is None:
                for after, answer in self.end_task(world, command.transactions[index], command.commit):
                    known = (*so_far[:index], answer, *so_far[index + 1 :])
                    results = tuple(one for one in known if isinstance(one, Ended | EndRefused))
                    yield (after, TasksEnded(results), ()) if len(results) == len(known) else (after, None, known)

    def end_task(self, world: World, one: TaskTransaction, commit: bool) -> Iterator[tuple[World, Ended | EndRefused]]:
        there = identity(world, one.transactional_id)
        state = "C" if commit else "A"
        implicit = self.wiring.transaction_version is TransactionVersion.IMPLICIT
        if there is None:
            yield world, EndRefused(49)
        elif there.epoch == one.epoch and there.state == "O":
            for after in decide(world, one.transactional_id, commit):
                yield with_identity(after, self.bumped(there, state)), Ended()
        elif implicit and not commit and there.epoch == one.epoch:
            yield with_identity(world, self.bumped(there, state)), Ended()
        elif there.epoch == one.epoch + implicit and there.state == state:
            yield world, Ended()
        else:
            yield world, EndRefused(90)

    def outcomes(self, world: World, transactions: tuple[TaskTransaction, ...]) -> LogOutcomes:
        outcomes = tuple(self.outcome(world, one) for one in transactions)
        return LogOutcomes(outcomes, (DATA_PARTITION,) if TransactionOutcome.OPEN in outcomes else ())

    def outcome(self, world: World, one: TaskTransaction) -> TransactionOutcome:
        key = (one.transactional_id, one.epoch)
        for entry in world.entries:
            if (entry.owner, entry.epoch) == key:
                if self.wiring.r8:
                    return TransactionOutcome.OPEN
                return TransactionOutcome.COMMITTED if entry.truth == "C" else TransactionOutcome.ABORTED
        if self.wiring.forgets:
            return TransactionOutcome.UNKNOWN
        return (
            TransactionOutcome.COMMITTED
            if any(found[1:] == key for found in world.visible)
            else TransactionOutcome.ABORTED
        )


def less_losses(world: World) -> World:
    return world._replace(budget=world.budget._replace(losses=world.budget.losses - 1))
