"""The search through all reachable worlds, breadth first, and the invariants."""

from __future__ import annotations

import heapq
import itertools
from typing import NamedTuple

from spark_producer.exactly_once.protocol.control_record import Status
from spark_producer.exactly_once.protocol.outcomes import FailureKind
from tests.model.moves import Moves
from tests.model.wiring import Wiring
from tests.model.world import World

LIMIT = "LIMIT"
"""The result of a search that found nothing wrong up to its maximum number of worlds."""


class Finding(NamedTuple):
    """The finding of a search: `result` is OK or the violation, `trace` the shortest way to it."""

    result: str
    states: int
    ends: int
    """Worlds in which Spark's log has all batches."""
    loud: int
    """Worlds with an alarm."""
    trace: tuple[str, ...] = ()


def wrong(world: World, moves: Moves) -> str | None:
    """The violated invariant, or None: a row twice, a logged batch with a row missing, a false alarm."""
    wiring = moves.wiring
    rows = [row for row, _, _ in world.visible]
    if len(set(rows)) != len(rows):
        return "DUPLICATE"
    finished = [index for index, driver in enumerate(world.drivers) if driver.pc == "fin"]
    logged = range(world.log * wiring.writes) if wiring.numbered else finished
    if any((batch, item) not in rows for batch in logged for item in range(len(wiring.tasks))):
        return "LOSS"
    states = {driver.pc for driver in world.drivers}
    if FailureKind.PARTIAL.name in states and world.budget.timeouts == wiring.budget.timeouts:
        return "false PARTIAL"
    record = moves.cluster.records.values[world.record]
    if record is not None and record.status is Status.VOID and world.budget.timeouts == wiring.budget.timeouts:
        return "false VOID"
    if FailureKind.HUNG.name in states and world.budget.drops == wiring.budget.drops:
        return "false HUNG"
    if FailureKind.NO_RECORD.name in states and world.budget.topics == wiring.budget.topics:
        return "false NO_RECORD"
    if FailureKind.UNKNOWN.name in states and wiring.numbered:
        return "false UNKNOWN"
    refused = {FailureKind.REFUSED.name} if rises(wiring) else set()
    if states & {*refused, FailureKind.MIXED.name}:
        return "false REFUSED"
    return None


def rises(wiring: Wiring) -> bool:
    """Return whether a function of `foreachBatch` gives its writes rising numbers, as it must."""
    return all(one < next_one for one, next_one in itertools.pairwise(wiring.numbers))


def search(wiring: Wiring, max_worlds: int, eager: bool = False) -> Finding:
    """Check every world, those of few moves first; stop at the first violation, or after `max_worlds` worlds.

    An `eager` search looks first at worlds in which much is visible and done, which finds faults that take many moves.
    """
    moves = Moves(wiring)
    start = moves.start()
    came: dict[World, tuple[World, tuple[object, ...]] | None] = {start: None}
    waiting = [(0, 0, start)]
    ends = loud = 0
    while waiting:
        world = heapq.heappop(waiting)[2]
        for what, after in moves.of(world):
            if after in came:
                continue
            came[after] = (world, what)
            fault = wrong(after, moves)
            if fault is not None:
                return Finding(fault, len(came), ends, loud, trace(came, after))
            ends += after.log == wiring.batches
            loud += any(driver.pc.isupper() for driver in after.drivers)
            heapq.heappush(waiting, (-progress(after) if eager else 0, len(came), after))
        if len(came) > max_worlds:
            return Finding(LIMIT, len(came), ends, loud)
    return Finding("OK" if ends else "never finishes", len(came), ends, loud)


def progress(world: World) -> int:
    """The progress of a world: its visible rows, done batches and active drivers."""
    return len(world.visible) + world.log + sum(driver.pc not in ("dead", "fin") for driver in world.drivers)


def trace(came: dict[World, tuple[World, tuple[object, ...]] | None], world: World) -> tuple[str, ...]:
    """The moves that lead to `world`."""
    moves: list[str] = []
    before = came[world]
    while before is not None:
        moves.append(" ".join(map(str, before[1])))
        before = came[before[0]]
    return tuple(reversed(moves))
