"""The moves that are possible in a world: of every driver, task attempt, clock and late message."""

from __future__ import annotations

from collections.abc import Iterator

from spark_producer.exactly_once.protocol.batch_admission import Skip, admit
from spark_producer.exactly_once.protocol.commands import Result, WriteControl
from spark_producer.exactly_once.protocol.control_record import NO_BATCH, UNFINISHED, TaskTransaction
from spark_producer.exactly_once.protocol.outcomes import (
    RUNS_AGAIN,
    AlreadyDone,
    Begun,
    Failed,
    FailureKind,
    NothingToAbort,
    WriteAborted,
    WriteCommitted,
)
from spark_producer.exactly_once.protocol.state_machine import Next, WriteState
from spark_producer.exactly_once.protocol.task_messages import (
    NO_ORIGIN,
    EncodedBatch,
    ForeachBatchOrigin,
    InlineRows,
    PreparedTask,
    Skipped,
    TaskOutcome,
    WriteHandle,
)
from tests.model.cluster import Cluster, less_losses
from tests.model.wiring import Wiring
from tests.model.world import (
    DATA_PARTITION,
    Attempt,
    Driver,
    Entry,
    Identity,
    Numbers,
    Row,
    World,
    appended,
    decide,
    identity,
    repaired,
    with_attempt,
    with_driver,
    with_identity,
    without_topic,
)  # fmt: skip

QUERY, SINK = "q", "s"
LOUD = frozenset(
    {
        FailureKind.NO_RECORD,
        FailureKind.PARTIAL,
        FailureKind.HUNG,
        FailureKind.REFUSED,
        FailureKind.MIXED,
        FailureKind.UNKNOWN,
    }
)
"""Failures for a person: the run of the driver ends with them."""

Move = tuple[tuple[object, ...], World]
"""A description, as text or as values to format, and the world after the move."""


class Moves:
    """All moves of a wiring."""

    def __init__(self, wiring: Wiring) -> None:
        self.wiring = wiring
        self.cluster = Cluster(wiring)
        self.steps: Numbers[WriteState] = Numbers()
        self.handles: Numbers[WriteHandle | None] = Numbers()
        self.handles.of(None)
        self.known: dict[tuple[int, type, Result], Next] = {}
        self.commits: dict[tuple[int, tuple[TaskOutcome, ...]], Next] = {}

    def start(self) -> World:
        drivers = (Driver("new"), *[Driver()] * (self.wiring.drivers - 1))
        return World(drivers, Identity("ctl", 0, "E"), 0, self.wiring.budget)

    def of(self, world: World) -> Iterator[Move]:
        """Every move, with a description."""
        if world.budget.timeouts:
            yield from self.timeouts(world)
        for after in self.cluster.arrivals(world):
            yield ("a late EndTxn of the control id arrives",), after
        if world.budget.repairs and any(driver.pc == FailureKind.HUNG.name for driver in world.drivers):
            yield ("a person repairs lost markers",), repaired(world)
        if world.budget.topics and world.record and self.is_noted(world):
            yield ("the control topic is lost or changed",), without_topic(world)
        for index, driver in enumerate(world.drivers):
            yield from self.of_driver(world, index, driver)
        for attempt in world.attempts:
            yield from self.of_attempt(world, attempt)

    def timeouts(self, world: World) -> Iterator[Move]:
        budget = world.budget._replace(timeouts=world.budget.timeouts - 1)
        for one in world.identities:
            if one.state == "O":
                for after in decide(world._replace(budget=budget), one.name, commit=False):
                    yield (one.name, "times out"), with_identity(after, one._replace(epoch=one.epoch + 1, state="A"))
        if world.control.state == "O":
            for after in self.cluster.fenced(world._replace(budget=budget)):
                yield ("the control transaction times out",), after

    def is_noted(self, world: World) -> bool:
        """In the very first write of a sink no fence has noted its decision yet: until it is done, the id may show neither."""
        record = self.cluster.records.values[world.record]
        return not self.wiring.notes or world.noted >= 0 or record is None or record.status not in UNFINISHED

    # --- drivers --------------------------------------------------------------------------------------------------------

    def of_driver(self, world: World, index: int, driver: Driver) -> Iterator[Move]:
        match driver.pc:
            case "off":
                before = world.drivers[index - 1].pc
                if before not in ("off", "new"):
                    stops = not self.wiring.zombies and before != "fin"
                    alone = with_driver(world, index - 1, Driver("dead")) if stops else world
                    yield ("driver", index, "starts"), self.forgotten(with_driver(alone, index, Driver("new")))
            case "next":
                start = self.wiring.begin(SINK, f"{index}.{driver.batch}")
                yield ("driver", index, "begins again"), self.goes_on(world, index, driver._replace(pc="begin"), start)
            case "new":
                if not self.wiring.numbered:
                    start = self.wiring.begin(SINK, f"{index}.{driver.batch}")
                    yield ("driver", index, "begins"), self.goes_on(world, index, driver._replace(pc="begin"), start)
                elif world.log >= self.wiring.batches:
                    yield ("driver", index, "has nothing to do"), with_driver(world, index, Driver("fin"))
                else:
                    first = world.log * self.wiring.writes
                    start = self.wiring.begin(SINK, f"{index}.{first}")
                    yield ("driver", index, "begins"), self.goes_on(world, index, Driver("begin", first), start)
            case "begin" | "commit" | "abort":
                yield from self.step(world, index, driver)
                if driver.pc == "commit" and self.wiring.aborts:
                    yield from self.dies(world, index, driver)
            case "tasks":
                yield from self.tasks(world, index, driver)
            case "log":
                if not self.wiring.numbered:
                    after = with_driver(world._replace(log=world.log + 1), index, Driver("fin"))
                    yield ("driver", index, "learns that its job is committed"), after
                elif world.log == self.micro_batch(driver):
                    yield (
                        ("driver", index, "writes Spark's log"),
                        with_driver(world._replace(log=world.log + 1), index, Driver("new")),
                    )
                else:
                    yield ("driver", index, "finds Spark's log written"), with_driver(world, index, Driver("dead"))

    def step(self, world: World, index: int, driver: Driver) -> Iterator[Move]:
        step = self.steps.values[driver.step]
        rows = self.inline_rows(index, driver)
        for after, answer, aux in self.cluster.replies(world, step.command, driver.aux, rows):
            if answer is None:
                yield ("driver", index, step.command), with_driver(after, index, driver._replace(aux=aux))
            else:
                key = (driver.step, type(answer), answer)  # named tuples of two types may be equal
                following = self.known.get(key)
                if following is None:
                    following = self.known[key] = self.wiring.after(step, answer)
                yield (
                    ("driver", index, step.command, answer),
                    self.goes_on(after, index, driver._replace(aux=aux), following),
                )

    def dies(self, world: World, index: int, driver: Driver) -> Iterator[Move]:
        """The process of the commit is killed, and Spark calls abort in another one. What it had sent may arrive yet."""
        start = self.wiring.abort([message for _, message in self.messages(index, driver)])
        aborting = self.goes_on(world, index, driver._replace(pc="abort", aux=()), start)
        yield ("driver", index, "is killed in its commit, and aborts"), aborting
        command = self.steps.values[driver.step].command
        sent = isinstance(command, WriteControl) and self.cluster.sends_end(world, command, driver.aux)
        if isinstance(command, WriteControl) and sent and world.budget.losses:
            late = less_losses(aborting)
            flights = tuple(sorted((*late.flights, command.fencing.epoch)))
            yield ("driver", index, "is killed with its EndTxn under way, and aborts"), late._replace(flights=flights)

    def goes_on(self, world: World, index: int, driver: Driver, following: Next) -> World:
        match following:
            case Begun(fencing, last):
                handle = WriteHandle(SINK, f"{index}.{driver.batch}", fencing, self.wiring.transaction_version, last)
                now = Driver("tasks", driver.batch, handle=self.handles.of(handle))
            case WriteCommitted() | AlreadyDone() if driver.pc == "commit" and (driver.batch + 1) % self.wiring.writes:
                now = Driver("next", driver.batch + 1)
            case WriteCommitted() | AlreadyDone():
                now = Driver("log" if driver.pc == "commit" else "dead", driver.batch)
            case Failed(FailureKind.REFUSED) if world.log > self.micro_batch(driver):
                now = Driver("dead")  # another run has continued Spark's log, so this run's batch is old indeed
            case Failed(kind) if kind in LOUD:
                now = Driver(kind.name)
            case Failed(kind) if not self.wiring.numbered and kind in RUNS_AGAIN and driver[:2] == ("commit", 0):
                now = Driver("new", 1)
            case Failed() if driver.pc == "commit":
                messages = [message for _, message in self.messages(index, driver)]
                return self.goes_on(world, index, driver._replace(pc="abort", aux=()), self.wiring.abort(messages))
            case Failed() | WriteAborted() | NothingToAbort():
                now = Driver("dead")
            case _:
                now = driver._replace(step=self.steps.of(following))
        return self.forgotten(with_driver(world, index, now))

    def forgotten(self, world: World) -> World:
        """Attempts that are over matter only as long as their driver could start them again."""
        running = {(index, one.batch) for index, one in enumerate(world.drivers) if one.pc == "tasks"}
        return world._replace(
            attempts=tuple(one for one in world.attempts if one.phase != 9 or (one.driver, one.batch) in running)
        )

    # --- Spark and its tasks --------------------------------------------------------------------------------------------

    def items(self, index: int, task: int) -> tuple[int, ...]:
        """The rows of a task, which differ from one run to the next."""
        count = len(self.wiring.tasks)
        return (task if index % 2 == 0 else count - 1 - task,)

    def inline_rows(self, index: int, driver: Driver) -> tuple[Row, ...]:
        inline = [task for task, kind in enumerate(self.wiring.tasks) if kind == "A"]
        batch = self.content(index, driver.batch)
        return tuple((batch, item) for task in inline for item in self.items(index, task))

    def content(self, index: int, batch: int) -> int:
        """Return the rows that a driver writes as its `batch`: without numbers those of its job, each time."""
        return batch if self.wiring.numbered else index

    def number(self, driver: Driver) -> int:
        """The number under which a driver commits."""
        if self.wiring.numbers:
            first = self.micro_batch(driver) * self.wiring.writes
            return first + self.wiring.numbers[driver.batch - first]
        return driver.batch if self.wiring.numbered else NO_BATCH

    def micro_batch(self, driver: Driver) -> int:
        """The micro-batch that it is at."""
        return driver.batch // self.wiring.writes

    def whose(self, index: int, driver: Driver) -> tuple[str, ForeachBatchOrigin]:
        """The query that writes, or in whose `foreachBatch` it is written; each has its own run."""
        if not self.wiring.numbers:
            return QUERY, NO_ORIGIN
        run = f"run {index}" if self.wiring.reports_run else ""
        return "", ForeachBatchOrigin(QUERY, run, self.micro_batch(driver) if self.wiring.reports_micro_batch else None)

    def messages(self, index: int, driver: Driver) -> list[tuple[int, TaskOutcome]]:
        handle = self.handles.values[driver.handle]
        assert handle is not None
        found: list[tuple[int, TaskOutcome]] = []
        rows = self.micro_batch(driver) + 1  # another number in each, so that none is taken for that of another
        (query, origin), number = self.whose(index, driver), self.number(driver)
        for task, what in driver.won:
            if isinstance(what, TaskTransaction):
                found.append((task, PreparedTask(handle, query, number, what, 0, rows, origin)))
            elif what == "inline":
                encoded = EncodedBatch(*DATA_PARTITION, 1, b"")
                found.append((task, InlineRows(handle, query, number, (encoded,), rows, origin)))
            else:
                found.append((task, Skipped(handle, query, number, rows, origin)))
        return found

    def tasks(self, world: World, index: int, driver: Driver) -> Iterator[Move]:
        messages = self.messages(index, driver)
        if len(messages) == len(self.wiring.tasks):
            start = self.wiring.commit([message for _, message in messages], self.number(driver))
            yield ("driver", index, "commits"), self.goes_on(world, index, driver._replace(pc="commit"), start)
            return
        start = self.wiring.abort([message for _, message in messages])
        if self.wiring.aborts:
            yield ("driver", index, "aborts its job"), self.goes_on(world, index, driver._replace(pc="abort"), start)
        handle, won = self.handles.values[driver.handle], dict(driver.won)
        assert handle is not None
        query, origin = self.whose(index, driver)
        admission = admit(handle.last, SINK, query, self.number(driver), origin)
        skip = self.wiring.admits and isinstance(admission, Skip)
        for task, kind in enumerate(self.wiring.tasks):
            if task in won:
                continue
            if skip or kind == "A":
                what = "skipped" if skip else "inline"
                accepted = driver._replace(won=tuple(sorted({**won, task: what}.items())))
                yield ("driver", index, "has task", task, what), with_driver(world, index, accepted)
            else:
                yield from self.launches(world, index, driver, task, handle)

    def launches(self, world: World, index: int, driver: Driver, task: int, handle: WriteHandle) -> Iterator[Move]:
        for number in range(self.wiring.attempts if task == 0 else 1):
            attempt = Attempt(index, task, number, driver.batch, 0, handle.fencing.epoch)
            there = {one[:3]: one for one in world.attempts}
            before = there.get(attempt[:3])
            if before is not None and before.batch == driver.batch:
                continue
            if self.wiring.ids == "shared" and self.busy(world, attempt):
                continue
            yield ("driver", index, "launches task", task, "attempt", number), with_attempt(world, attempt)

    def busy(self, world: World, attempt: Attempt) -> bool:
        """Return whether the worker still runs an attempt of another run."""
        return any(
            one[1:3] == attempt[1:3] and one.driver != attempt.driver and one.phase < 3 for one in world.attempts
        )

    def name_of(self, attempt: Attempt) -> str:
        match self.wiring.ids:
            case "task":
                return f"t{attempt.task}"
            case "shared":
                return f"w{attempt.task}{attempt.attempt}"
        return f"w{attempt.driver}{attempt.task}{attempt.attempt}"

    def of_attempt(self, world: World, attempt: Attempt) -> Iterator[Move]:
        name = self.name_of(attempt)
        there = identity(world, name)
        over = with_attempt(world, attempt._replace(phase=9, epoch=0, held=0))
        if attempt.phase == 0:
            taken = self.wiring.ids == "shared" and self.wiring.reuse == "epoch"
            if taken and there is not None and there.held >= attempt.held:
                yield (attempt[:3], "its id is held by a newer run"), self.forgotten(over)
                return
            for after in decide(world, name, commit=False) if there is not None and there.state == "O" else [world]:
                epoch = 0 if there is None else there.epoch + 1
                ready = with_identity(after, Identity(name, epoch, "E", attempt.held))
                yield (attempt[:3], "InitProducerId"), with_attempt(ready, attempt._replace(phase=1, epoch=epoch))
        elif attempt.phase == 1:
            if there is None or there.epoch != attempt.epoch:
                yield (attempt[:3], "is fenced"), self.forgotten(over)
                return
            batch = self.content(attempt.driver, attempt.batch)
            rows = tuple((batch, item) for item in self.items(attempt.driver, attempt.task))
            written = appended(with_identity(world, there._replace(state="O")), Entry(name, there.epoch, False, rows))
            yield (attempt[:3], "writes"), with_attempt(written, attempt._replace(phase=2))
        elif attempt.phase == 2:
            driver = world.drivers[attempt.driver]
            if driver.pc == "tasks" and driver.batch == attempt.batch and attempt.task not in dict(driver.won):
                what = TaskTransaction(name, 0, attempt.epoch, self.wiring.transaction_version, ())
                won = tuple(sorted({**dict(driver.won), attempt.task: what}.items()))
                yield (attempt[:3], "reports"), with_driver(over, attempt.driver, driver._replace(won=won))
            else:
                yield (attempt[:3], "is too late"), self.forgotten(over)
