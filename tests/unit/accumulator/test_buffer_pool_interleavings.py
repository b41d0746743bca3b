"""The buffer pool, model-checked: the real code under a scripted lock, in every interleaving of a few small scenes.

At every choice: bytes held + available = total, no memory is free while a request waits, a sleeping thread is still owed bytes,
and requests are served in the order in which they queued. At every end: all memory has come back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from spark_producer.accumulator import pool as buffer_pool
from spark_producer.accumulator.pool import BufferPool, new_memory
from spark_producer.errors import BufferExhausted, ProducerClosed
from tests.fakes.fake_clock import FakeClock
from tests.fakes.interleavings import (
    Actor,
    Interrupted,
    Order,
    Schedule,
    Scheduler,
    every_schedule,
    seeded_schedules,
)

TOTAL, POOLABLE = 20, 10


class RecorderBroken(Exception):
    """The exception that a recorder of metrics may raise."""


def risky_pool(total: int, scheduler: Scheduler) -> BufferPool:
    """A pool whose memory may be refused, and whose recorder may break."""

    def record_wait(seconds: float, exhausted: bool) -> None:
        scheduler.risk(RecorderBroken())

    def memory(size: int) -> memoryview:
        scheduler.risk(MemoryError())
        return new_memory(size)

    return BufferPool(total, POOLABLE, scheduler.clock, record_wait, memory=memory, monitor=scheduler.monitor())


class Scene:
    """A pool of two buffers, and actors that use it; every step is checked.

    The model reads the private fields of the pool: only they distinguish two states, and show a request's bytes so far.
    """

    def __init__(self, scheduler: Scheduler, total: int = TOTAL) -> None:
        self.scheduler = scheduler
        self.pool = risky_pool(total, scheduler)
        self.hands: dict[int, int] = {}
        self.arrivals: list[buffer_pool._MemoryRequest] = []
        self.served: set[int] = set()
        self.progress: list[int] = []

    def use(self, *sizes: int, timeout: float = 10.0, together: bool = False) -> Callable[[], None]:
        """Allocate and release each size; `together`: hold them all before the first is released."""

        name = len(self.progress)
        self.progress.append(0)

        def call() -> None:
            held = []
            try:
                for size in sizes:
                    self.progress[name] += 1
                    buffer = self.pool.allocate(size, timeout)
                    assert len(buffer) == size
                    address = buffer_address(buffer)
                    assert address not in self.hands, "one buffer in two hands"
                    self.hands[address] = size
                    held.append((address, buffer))
                    if not together:
                        self.give_back(held)
            finally:
                self.give_back(held)

        return call

    def give_back(self, held: list[tuple[int, memoryview]]) -> None:
        while held:
            address, buffer = held.pop(0)
            del self.hands[address]
            self.pool.release(buffer)

    def play(self, schedule: Schedule, seen: set[object] | None) -> bool:
        """Run to the end; or (False) to a state in `seen`, from which an earlier schedule went on."""
        while choices := self.scheduler.choices():
            actor, order = choices[schedule.choose(len(choices))]
            self.scheduler.give(actor, order)
            self.check_order()
            if not schedule.fresh:
                continue  # checked when an earlier schedule went the same way
            self.check()
            if seen is not None:
                state = self.state()
                if state in seen:
                    return False
                seen.add(state)
        for left in self.scheduler.actors:
            assert left.done, f"{left.name} sleeps for ever"
        return True

    def state(self) -> object:
        """All that what follows can depend on."""
        pool = self.pool
        sleepers: dict[object, str] = {actor.condition: actor.name for actor in self.scheduler.actors}
        queue = tuple((sleepers.get(waiter.condition), waiter.size, waiter.gathered) for waiter in pool._requests)
        others = sorted(
            (waiter.size, waiter.gathered, waiter.granted, waiter.buffer is None)
            for waiter in self.arrivals
            if waiter not in pool._requests
        )
        actors = [(actor.place, actor.done, actor.asleep, actor.order) for actor in self.scheduler.actors]
        memory = (pool._unpooled, len(pool._free), pool._closed, tuple(sorted(self.hands.values())))
        return memory, queue, tuple(others), tuple(actors), tuple(self.progress), self.scheduler.clock.now

    def check(self) -> None:
        pool = self.pool
        assert pool._held + pool._available() == pool.total
        assert min(pool._held, pool._unpooled) >= 0
        assert sum(self.hands.values()) <= pool._held
        if not pool._closed:
            assert not pool._requests or pool._available() == 0, "memory is free, and a request waits for it"
            assert not any(waiter.gathered for waiter in list(pool._requests)[1:]), "only the head gathers"
        for actor in self.scheduler.actors:
            if actor.asleep and not actor.done:
                assert any(waiter.condition is actor.condition for waiter in pool._requests), (
                    f"{actor.name}: lost wake-up"
                )
                assert not pool._closed, f"{actor.name} was not woken by the end"

    def check_order(self) -> None:
        self.arrivals += [waiter for waiter in self.pool._requests if waiter not in self.arrivals]
        granted = {number for number, waiter in enumerate(self.arrivals) if waiter.granted}
        queued = [self.arrivals.index(waiter) for waiter in self.pool._requests]
        assert queued == sorted(queued)
        if granted - self.served and queued:
            assert max(granted - self.served) < queued[0], "a later request was served first"
        self.served = granted


def buffer_address(buffer: memoryview) -> int:
    return id(buffer.obj)


Calls = dict[str, Callable[[], object]]
Cast = Callable[[Scene], Calls]


def explore(
    cast: Cast,
    schedules: Iterable[Schedule] | None = None,
    *,
    faults: tuple[Order, ...] = (),
    ends: Callable[[Scene, dict[str, Actor]], None] = lambda scene, actors: None,
    total: int = TOTAL,
) -> int:
    """Run the cast of a scene under each of the schedules, or else in every interleaving; the number of states found."""
    seen: set[object] | None = set() if schedules is None else None
    for schedule in schedules or every_schedule():
        with Scheduler(FakeClock(), faults) as scheduler:
            scene = Scene(scheduler, total)
            actors = {name: scheduler.start(name, call) for name, call in cast(scene).items()}
            if scene.play(schedule, seen):
                assert (scene.pool.available, scene.pool.waiting) == (total, 0)
                assert not scene.pool._lent
                assert not scene.hands
                ends(scene, actors)
    return len(seen or ())


def all_succeed(scene: Scene, actors: dict[str, Actor]) -> None:
    assert [actor.outcome for actor in actors.values()] == [None] * len(actors)


def one_of(*kinds: type[BaseException]) -> Callable[[Scene, dict[str, Actor]], None]:
    def check(scene: Scene, actors: dict[str, Actor]) -> None:
        for actor in actors.values():
            assert actor.outcome is None or isinstance(actor.outcome, kinds), actor.outcome

    return check


few_or_many = pytest.mark.parametrize("many", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["few", "many"])
"""A cast that takes no time, and one that takes seconds: thousands of states."""


@pytest.mark.covers("BP3")
@few_or_many
def test_every_interleaving_of_requests_that_do_not_fit_together(many: bool) -> None:
    """Without timeouts each request gets its memory, in any order."""

    def cast(scene: Scene) -> Calls:
        calls: Calls = {"all": scene.use(20), "odd": scene.use(15)}
        return calls | ({"kept": scene.use(10), "small": scene.use(3)} if many else {"kept": scene.use(10)})

    assert explore(cast, ends=all_succeed) > (1000 if many else 100)


@pytest.mark.covers("BP6", "BP7")
@pytest.mark.slow
@few_or_many
def test_every_interleaving_with_timeouts_and_interrupts(many: bool) -> None:
    """Two of them would block each other for ever with what they hold, if their time had no end."""

    def cast(scene: Scene) -> Calls:
        calls: Calls = {"pair": scene.use(10, 10, together=True), "twin": scene.use(10, 10, together=True)}
        return calls | ({"odd": scene.use(5)} if many else {})

    checked = one_of(BufferExhausted, Interrupted)
    assert explore(cast, faults=("expire", "interrupt"), ends=checked) > (5000 if many else 100)


@pytest.mark.covers("BP8", "BP11")
@few_or_many
def test_every_interleaving_with_refused_memory_and_a_broken_recorder(many: bool) -> None:
    def cast(scene: Scene) -> Calls:
        calls: Calls = {"all": scene.use(20), "kept": scene.use(10)}
        return calls | ({"odd": scene.use(15)} if many else {})

    checked = one_of(MemoryError, RecorderBroken)
    assert explore(cast, faults=("fail",), ends=checked) > (1000 if many else 100)


@pytest.mark.covers("BP12", "BP13")
@pytest.mark.slow
@few_or_many
def test_every_interleaving_with_a_close(many: bool) -> None:
    def cast(scene: Scene) -> Calls:
        calls: Calls = {"all": scene.use(20), "kept": scene.use(10), "end": scene.pool.close}
        return calls | ({"odd": scene.use(15)} if many else {})

    checked = one_of(ProducerClosed, BufferExhausted)
    assert explore(cast, faults=("expire",), ends=checked) > (5000 if many else 100)


def test_a_large_request_is_not_starved_by_small_ones() -> None:
    """The small ones come back again and again; the large one gathers, and needs no luck."""

    def cast(scene: Scene) -> Calls:
        return {"large": scene.use(20), "small": scene.use(*[10] * 6), "other": scene.use(*[7] * 6)}

    explore(cast, seeded_schedules(1, 300), ends=all_succeed)


@pytest.mark.covers("BP6", "BP7", "BP9", "BP11", "BP13")
@pytest.mark.parametrize("seed", range(4))
def test_seeded_schedules_of_a_crowd(seed: int) -> None:
    """Every fault at once, with buffers held while more are asked for; 27 bytes leave an odd rest beside two buffers."""

    def cast(scene: Scene) -> Calls:
        calls: Calls = {
            "pair": scene.use(10, 10, together=True),
            "kept": scene.use(10, 10, 10, timeout=3),
            "odd": scene.use(3, 17, 8, timeout=7),
            "all": scene.use(27),
            "mixed": scene.use(10, 4, together=True, timeout=0),
        }
        return calls | ({"end": scene.pool.close} if seed % 2 else {})

    checked = one_of(BufferExhausted, Interrupted, MemoryError, RecorderBroken, ProducerClosed)
    faults: tuple[Order, ...] = ("expire", "interrupt", "fail")
    explore(cast, seeded_schedules(seed, 300), faults=faults, ends=checked, total=27)
