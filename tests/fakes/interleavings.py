"""Threads that run one at a time, in an order that the test chooses: interleavings of calls, without sleep or chance.

Owns: the scripted lock and condition, and the enumeration of schedules. Between two choices nothing else runs, so what a
test sees then is the whole truth; a schedule that ends with a thread asleep for ever is seen at once. Each is a greenlet:
the code under test cannot distinguish it from a thread, and hundreds of thousands of switches take seconds, not minutes.
Must not know: what the threads do.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, Literal, Self

from greenlet import getcurrent, greenlet

from spark_producer.accumulator.pool import Monitor
from tests.fakes.fake_clock import FakeClock

Order = Literal["go", "expire", "interrupt", "fail", "end"]
"""Run on; wake up because the time is over; be interrupted by a signal; fail where failing is possible; give up."""


class Interrupted(BaseException):
    """The exception that a signal handler raises inside a wait."""


class Ended(BaseException):
    """Thrown into the threads that are left when a test is over."""


class Actor:
    """One scripted thread: waits at its `orders` until it is given one of them."""

    def __init__(self, name: str, call: Callable[[], Any]) -> None:
        self.name = name
        self.outcome: Any = None
        self.done = False
        self.condition: Condition | None = None
        """The condition on which it sleeps."""
        self.orders: tuple[Order, ...] = ()
        self.order: Order = "go"
        self.place: tuple[int, ...] = ()
        """The positions in its code, from the innermost call outwards."""
        self.thread = greenlet(self._run)
        self._call = call

    @property
    def asleep(self) -> bool:
        """Return whether only another actor, or the end of its time, can wake it."""
        return self.condition is not None and not self.condition.notified

    def _run(self) -> None:
        try:
            self.outcome = self._call()
        except BaseException as error:
            self.outcome = error
        self.done = True


class Scheduler:
    """Decides between two steps."""

    def __init__(self, clock: FakeClock, faults: tuple[Order, ...] = ()) -> None:
        self.clock = clock
        self.faults = faults
        """Orders beside "go": "expire" and "interrupt" for a sleeping actor, "fail" at a `risk`."""
        self.actors: list[Actor] = []
        self._current: Actor | None = None
        self._test = getcurrent()
        # Coverage would count lines of one greenlet for another, or take five times as long.
        self._tracer = sys.gettrace()
        sys.settrace(None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for actor in self.actors:
            while not actor.done:
                self.give(actor, "end")
        sys.settrace(self._tracer)

    # --- what the code under test uses ------------------------------------------------------------------------------

    def monitor(self) -> Monitor:
        lock = Lock(self)
        return Monitor(lock, lambda: Condition(self, lock))

    def risk(self, error: BaseException) -> None:
        """Raise `error` if this interleaving has it here."""
        if self._current is not None and self.pause(("go", "fail") if "fail" in self.faults else ("go",)) == "fail":
            raise error

    def pause(self, orders: tuple[Order, ...]) -> Order:
        """Called by an actor: wait until one of `orders` is given."""
        actor = self._current
        assert actor is not None
        actor.orders, actor.place = orders, code_position()
        self._test.switch()
        if actor.order == "end":
            raise Ended
        return actor.order

    # --- what the test uses -----------------------------------------------------------------------------------------

    def start(self, name: str, call: Callable[[], Any]) -> Actor:
        """A new actor, standing before its first step."""
        actor = Actor(name, call)
        actor.orders = ("go",)
        self.actors.append(actor)
        return actor

    def give(self, actor: Actor, order: Order) -> None:
        """Run one step of an actor: from its position to the next."""
        actor.order, self._current = order, actor
        actor.thread.switch()
        self._current = None

    def choices(self) -> list[tuple[Actor, Order]]:
        """Every step that may come next."""
        return [
            (actor, order)
            for actor in self.actors
            if not actor.done
            for order in actor.orders
            if not (order == "go" and actor.asleep)
        ]

    def run_until_asleep(self, actor: Actor) -> None:
        """Let one actor go on until it is done or sleeps."""
        while not actor.done and not actor.asleep:
            self.give(actor, "go")


class Lock:
    """Before it is taken comes a choice; while it is held, none: so it is always free when it is asked for."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self.held = False

    def __enter__(self) -> None:
        if self.scheduler._current is not None:
            self.scheduler.pause(("go",))
        assert not self.held
        self.held = True

    def __exit__(self, *_: object) -> None:
        self.held = False


class Condition:
    """Sleeps until it is notified, its time is over, or it is interrupted, as the schedule says."""

    def __init__(self, scheduler: Scheduler, lock: Lock) -> None:
        self._scheduler = scheduler
        self._lock = lock
        self.notified = False

    def wait(self, timeout: float) -> bool:
        assert self._lock.held
        scheduler = self._scheduler
        actor, deadline = scheduler._current, scheduler.clock.now + timeout
        assert actor is not None
        actor.condition, self._lock.held = self, False
        try:
            orders: list[Order] = ["go", *(order for order in scheduler.faults if order != "fail")]
            order = scheduler.pause(tuple(orders))
        finally:
            actor.condition, self._lock.held = None, True
        woken, self.notified = self.notified, False
        if order == "expire":
            scheduler.clock.now = max(scheduler.clock.now, deadline)
        elif order == "interrupt":
            raise Interrupted
        return woken

    def notify(self) -> None:
        assert self._lock.held
        self.notified = True


def code_position() -> tuple[int, ...]:
    """The instruction of each call of the running thread."""
    frame: FrameType | None = sys._getframe(1)
    found = []
    while frame is not None:
        found.append(frame.f_lasti)
        frame = frame.f_back
    return tuple(found)


class Schedule:
    """Answers each choice of one run. `fresh`: whether this run has left the way of the one before it."""

    fresh = True

    def choose(self, count: int) -> int:
        """Return one of `count` possibilities."""
        raise NotImplementedError


class Path(Schedule):
    """Begins as the one before, and takes another turn at the last choice that has one left."""

    def __init__(self, path: list[list[int]]) -> None:
        self._path = path  # [taken, possibilities] of each choice
        self._position = 0

    def choose(self, count: int) -> int:
        if self._position == len(self._path):
            self._path.append([0, count])
        assert self._path[self._position][1] == count, "the code under test is not deterministic"
        self._position += 1
        self.fresh = self._position == len(self._path)
        return self._path[self._position - 1][0]


class Chance(Schedule):
    """A schedule that chooses at random, from a seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def choose(self, count: int) -> int:
        return self._random.randrange(count)


def every_schedule() -> Iterator[Schedule]:
    """All possible schedules, depth first. A test may end one early: it then counts with all that begin in the same way,
    which is right where it has reached a state that an earlier one went on from."""
    path: list[list[int]] = []
    while True:
        yield Path(path)
        while path and path[-1][0] + 1 == path[-1][1]:
            path.pop()
        if not path:
            return
        path[-1][0] += 1


def seeded_schedules(seed: int, count: int) -> Iterator[Schedule]:
    """`count` schedules at random."""
    return (Chance(seed * 1_000_003 + number) for number in range(count))
