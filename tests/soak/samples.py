"""Samples of the processes of a stream: memory, threads and open files of the driver and of its Python workers.

Owns: what `/proc` says, and whether it is flat. Must not know: streams, pages.
"""

from __future__ import annotations

import contextlib
import os
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tests.matrix.drivers import Driver, ancestors_of

PAGE = os.sysconf("SC_PAGE_SIZE")
ROLES = ("JVM", "driver's Python", "workers")
MEASURES = ("MiB", "threads", "descriptors")


class Sample(NamedTuple):
    """The sums of the processes of a role at a moment, in seconds of the soak. `MiB` is resident memory."""

    moment: float
    stream: str
    driver: int
    role: str
    processes: int
    mebibytes: float
    threads: int
    descriptors: int


class Trend(NamedTuple):
    """Medians of the first and the last quarter of the longest life of a driver, and the greatest value of the run."""

    begin: float
    end: float
    greatest: float


def sample(moment: float, stream: str, driver: Driver) -> list[Sample]:
    """Return one sample for each role that has processes."""
    found: dict[str, list[tuple[float, int, int]]] = {}
    for pid in driver.processes():
        role = _role(pid)
        with contextlib.suppress(OSError, IndexError):
            found.setdefault(role, []).append(_look(pid))
    return [
        Sample(
            moment, stream, driver.process.pid, role, len(looks), *(sum(column) for column in zip(*looks, strict=True))
        )
        for role, looks in found.items()
    ]


def trend(samples: Sequence[Sample], stream: str, role: str, measure: str) -> Trend | None:
    """Return how a measure of a role has developed; None without samples of a life."""
    place = Sample._fields.index("mebibytes") + MEASURES.index(measure)
    of_role = [each for each in samples if (each.stream, each.role) == (stream, role)]
    lives: dict[int, list[Sample]] = {}
    for each in of_role:
        lives.setdefault(each.driver, []).append(each)
    if not lives:
        return None
    longest = max(lives.values(), key=lambda life: life[-1].moment - life[0].moment)
    quarter = max(1, len(longest) // 4)
    values = [float(each[place]) for each in longest]
    greatest = max(float(each[place]) for each in of_role)
    return Trend(statistics.median(values[:quarter]), statistics.median(values[-quarter:]), greatest)


def _role(pid: int) -> str:
    if _name(pid) == "java":
        return "JVM"
    return "workers" if any(name == "java" for _, name in ancestors_of(pid)) else "driver's Python"


def _name(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().strip()
    return ""


def _look(pid: int) -> tuple[float, int, int]:
    folder = Path(f"/proc/{pid}")
    resident = int((folder / "statm").read_text().split()[1]) * PAGE / (1 << 20)
    return resident, len(list((folder / "task").iterdir())), len(list((folder / "fd").iterdir()))
