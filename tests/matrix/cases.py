"""The cases of the matrix as data: every failpoint × who dies × path × cluster × three seeds.

A failpoint is reached by one kind of process: the planner (BEGIN), a Python worker (a task), the commit process. Some need an
earlier fault: the next BEGIN aborts the orphans of a dead driver and rolls forward what it had decided.

Owns: which cases there are, and their order. Must not know: how they are played.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import NamedTuple

from tests.matrix.play import Case, Fault

SEEDS = (1, 2, 3)
INLINE, TWO_PHASES = "A", "B"
CLUSTERS = ("embedded", "4", "3.9")
_IMPLICIT, _EXPLICIT = CLUSTERS[:2], CLUSTERS[2:]
"""Those with and without transaction.version 2: each of its transactions has an epoch of its own (KIP-890), so who aborts a
write that is committed finds another holder of the control id there, and leaves the verdict to him."""
OPTIONS = {INLINE: (), TWO_PHASES: (("exactlyOnceMaxInlineBytes", "0"),)}


class Place(NamedTuple):
    """A failpoint, the process that reaches it, its paths, its number in a batch, the faults before it, and its clusters."""

    name: str
    process: str
    paths: str
    times: int = 1
    before: tuple[Fault, ...] = ()
    clusters: tuple[str, ...] = CLUSTERS


_ORPHANS = (Fault("task.prepared", "driver", 2, "dies"),)
_DECIDED = (Fault("commit.writing", "driver", 1, "dies"),)
_FAILED = (Fault("commit.voting", "raise", 1),)
_LEFT = (Fault("task.prepared", "self", 1),)
_DECIDED_AND_FAILED = (Fault("commit.writing", "raise", 1),)
PLACES = (
    Place("begin.taking", "planner", "AB"),
    Place("begin.reading", "planner", "AB"),
    Place("begin.listing", "planner", "AB"),
    Place("begin.intending", "planner", "B", before=_ORPHANS),
    Place("begin.sweeping", "planner", "B", before=_ORPHANS),
    Place("begin.redriving.ending", "planner", "B", before=_DECIDED),
    Place("begin.redriving.looking", "planner", "B", before=_DECIDED),
    Place("begin.redriving.deciding", "planner", "B", before=_DECIDED),
    Place("task.opened", "task", "B", 2),
    Place("task.sent", "task", "B", 2),
    Place("task.prepared", "task", "AB", 2),
    Place("commit.listing", "commit", "AB"),
    Place("commit.voting", "commit", "B"),
    Place("control.produced", "commit", "A"),
    Place("control.produced", "commit", "B", 2),
    Place("commit.writing", "commit", "AB"),
    Place("task.ended", "commit", "B", 2),
    Place("commit.finishing.ending", "commit", "B"),
    Place("commit.finishing.looking", "commit", "B"),
    Place("commit.finishing.deciding", "commit", "B"),
    Place("commit.sweeping", "commit", "B", before=_LEFT),
    Place("abort.asking", "commit", "B", before=_FAILED),
    Place("abort.taking", "commit", "B", before=_FAILED),
    Place("abort.reading", "commit", "B", before=_FAILED),
    Place("abort.ending", "commit", "B", before=_FAILED),
    Place("abort.reading", "commit", "B", before=_DECIDED_AND_FAILED),
    Place("abort.helping", "commit", "B", before=_DECIDED_AND_FAILED, clusters=_IMPLICIT),
    Place("abort.finishing.deciding", "commit", "B", before=_DECIDED_AND_FAILED, clusters=_EXPLICIT),
)
ALL_NODES = "all nodes"
NODES = ("leader", "coordinator", ALL_NODES)
LOSES_MARKERS = "4"
"""Kafka 4.3 drops markers for partitions without a live leader, which may happen when all nodes begin again: then the write must
stop with HUNG, and go on when `pyproducer txn repair` has mended it."""
VICTIMS = ("self", "driver", "raise", *NODES)
AFTER = ("goes on", "dies", "zombie")


def all_cases() -> Iterator[Case]:
    """Every case of the matrix: the first seed of all of them, then the second, then the third."""
    for seed in SEEDS:
        for place in PLACES:
            for path in place.paths:
                for victim in VICTIMS:
                    for cluster in place.clusters:
                        if cluster != "embedded" or victim not in ("leader", "coordinator"):
                            yield _case(place, path, victim, cluster, seed)


def _case(place: Place, path: str, victim: str, cluster: str, seed: int) -> Case:
    chance = random.Random(f"{place.name} {path} {victim} {cluster} {seed}")
    passes = 0 if place.before else chance.randrange(3 * place.times)
    fault = Fault(place.name, victim, passes, AFTER[(seed - 1) % len(AFTER)])
    loud = "HUNG or exact" if cluster == LOSES_MARKERS and victim == ALL_NODES else ""
    return Case(cluster, path, (*place.before, fault), seed, options=OPTIONS[path], loud=loud)
