"""A small world: drivers, tasks, transaction coordinators, and logs with committed rows and hanging transactions. Plain tuples.

States of drivers, records and handles are small numbers (`Numbers`), so that worlds are cheap to compare.
"""

from __future__ import annotations

from typing import Generic, NamedTuple, TypeVar

from spark_producer.common.cluster import TopicPartition

CONTROL = "ctl"
"""The owner of the control id's transactions."""

CONTROL_PARTITION, DATA_PARTITION = TopicPartition("commits", 0), TopicPartition("t", 0)

Row = tuple[int, int]
"""A batch and the number of an item in it: each must be visible once."""

T = TypeVar("T")


class Numbers(Generic[T]):
    """Values and their numbers."""

    def __init__(self) -> None:
        self.values: list[T] = []
        self.numbers: dict[T, int] = {}

    def of(self, value: T) -> int:
        """The number of `value`, the same for equal ones."""
        number = self.numbers.get(value)
        if number is None:
            number = self.numbers[value] = len(self.values)
            self.values.append(value)
        return number


class Driver(NamedTuple):
    """One run of the driver. `pc` is its position.

    off, new, next (within a function of `foreachBatch`), begin, tasks, commit, abort, log, fin, dead: as their names say; an
    alarm is the name of a `FailureKind`.
    """

    pc: str = "off"
    batch: int = 0
    """its write, counted over all micro-batches; the micro-batch in a query without a function"""
    step: int = 0
    """the number of its state"""
    aux: tuple[object, ...] = ()
    """the part that is done of a command that takes several moves, or of the write that was begun with the last one"""
    handle: int = 0
    """the number of its handle"""
    won: tuple[tuple[int, object], ...] = ()
    """the tasks whose messages Spark has accepted"""


class Identity(NamedTuple):
    """A transactional id at its coordinator. `state` is E(mpty), O(ngoing), C(ommitted) or A(borted)."""

    name: str
    epoch: int
    state: str
    held: int = 0
    """the control epoch of the run that used it last"""


class Entry(NamedTuple):
    """Records in a partition without a marker. `truth` is C or A (the outcome at the coordinator) if the marker was lost."""

    owner: str
    epoch: int
    control: bool
    content: tuple[Row, ...] | int
    """rows, or the number of a control record"""
    truth: str = ""


class Attempt(NamedTuple):
    """An attempt of a task of path B. `phase`: 0 launched, 1 has an epoch, 2 has written, 3 reported, 9 over."""

    driver: int
    task: int
    attempt: int
    batch: int
    phase: int
    held: int
    """the control epoch of its handle"""
    epoch: int = 0


class Budget(NamedTuple):
    """The number of faults of each kind that may still happen."""

    timeouts: int = 0
    losses: int = 0
    """responses to control writes, or the requests themselves until later"""
    drops: int = 0
    """markers"""
    repairs: int = 0
    """repairs of lost markers by a person"""
    topics: int = 0
    """control topics that are deleted, or replaced by another one"""


class World(NamedTuple):
    """One state of the model. Tuples that are sets are sorted."""

    drivers: tuple[Driver, ...]
    control: Identity
    record: int
    """the number of the last committed control record of the current topic"""
    budget: Budget
    identities: tuple[Identity, ...] = ()
    attempts: tuple[Attempt, ...] = ()
    entries: tuple[Entry, ...] = ()
    visible: tuple[tuple[Row, str, int], ...] = ()
    """rows, with owner and epoch of the transaction that wrote them"""
    flights: tuple[int, ...] = ()
    """epochs of ends of control transactions that arrive late, or never"""
    log: int = 0
    """the number of batches in Spark's commit log"""
    writer: int = -1
    """the control epoch that has written the last committed control record"""
    noted: int = -1
    """the epoch of the last commit of the control id, as the coordinator remembers it from fence to fence; -1: none"""


def with_driver(world: World, index: int, driver: Driver) -> World:
    drivers = world.drivers
    return world._replace(drivers=(*drivers[:index], driver, *drivers[index + 1 :]))


def identity(world: World, name: str) -> Identity | None:
    for one in world.identities:
        if one.name == name:
            return one
    return None


def with_identity(world: World, changed: Identity) -> World:
    others = [one for one in world.identities if one.name != changed.name]
    return world._replace(identities=tuple(sorted([*others, changed])))


def with_attempt(world: World, attempt: Attempt) -> World:
    others = [one for one in world.attempts if one[:3] != attempt[:3]]
    return world._replace(attempts=tuple(sorted([*others, attempt])))


def appended(world: World, entry: Entry) -> World:
    """Entries stay in the order of the log within each owner."""
    return world._replace(entries=tuple(sorted([*world.entries, entry], key=lambda one: one.owner)))


def decide(world: World, owner: str, commit: bool) -> list[World]:
    """The coordinator ends the owner's transaction: every partition of it gets a marker, or loses it.

    A marker decides all that its producer has undecided in the partition, of older transactions too.
    """
    worlds = [world]
    for control in sorted({one.control for one in world.entries if one.owner == owner and not one.truth}):
        worlds = [after for before in worlds for after in one_marker(before, owner, commit, control)]
    return worlds


def one_marker(world: World, owner: str, commit: bool, control: bool) -> list[World]:
    mine = [one for one in world.entries if one.owner == owner and one.control is control]
    after = world._replace(
        entries=tuple(one for one in world.entries if not (one.owner == owner and one.control is control))
    )
    arrived = shown(after, mine) if commit else after
    if not world.budget.drops:
        return [arrived]
    truth = "C" if commit else "A"
    hanging = tuple(one._replace(truth=truth) if one in mine and not one.truth else one for one in world.entries)
    budget = world.budget._replace(drops=world.budget.drops - 1)
    return [arrived, world._replace(entries=hanging, budget=budget)]


def shown(world: World, entries: list[Entry]) -> World:
    """`entries` become visible."""
    visible = list(world.visible)
    record, writer = world.record, world.writer
    for one in entries:
        if isinstance(one.content, int):
            record, writer = one.content, one.epoch
        else:
            visible += [(row, one.owner, one.epoch) for row in one.content]
    return world._replace(visible=tuple(sorted(visible)), record=record, writer=writer)


def without_topic(world: World) -> World:
    """The control topic is lost and recreated, or the option names another one from now on. The coordinator is not informed."""
    budget = world.budget._replace(topics=world.budget.topics - 1)
    entries = tuple(one for one in world.entries if not one.control)
    return world._replace(record=0, writer=-1, entries=entries, budget=budget)


def repaired(world: World) -> World:
    """An administrator writes the lost markers, as the coordinators had decided."""
    hanging = [one for one in world.entries if one.truth]
    rest = world._replace(
        entries=tuple(one for one in world.entries if not one.truth),
        budget=world.budget._replace(repairs=world.budget.repairs - 1),
    )
    return shown(rest, [one for one in hanging if one.truth == "C"])
