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
JUDGED_SECONDS = 1200.0
"""A shorter life is not judged: its JVM has not filled its heap yet."""
GROWTH = 1.25
SLACK = {"MiB": 32.0, "threads": 8.0, "descriptors": 16.0}
"""Flat is: the median of the last quarter of a life ≤ `GROWTH` × that of its second quarter + this."""


class Sample(NamedTuple):
    """The sums of the processes of a role at a moment, in seconds of the soak. `MiB` is resident memory.

    A driver has a number, which no other one has.
    """

    moment: float
    stream: str
    driver: int
    role: str
    processes: int
    mebibytes: float
    threads: int
    descriptors: int


class Trend(NamedTuple):
    """Medians of the second and the last quarter of the longest life of a driver, its seconds, and the greatest value."""

    second: float
    last: float
    seconds: float
    greatest: float


def sample(moment: float, stream: str, driver: Driver) -> list[Sample]:
    """Return one sample for each role that has processes."""
    found: dict[str, list[tuple[float, int, int]]] = {}
    for pid in driver.processes():
        role = _role(pid)
        with contextlib.suppress(OSError, IndexError):
            found.setdefault(role, []).append(_look(pid))
    return [
        Sample(moment, stream, driver.number, role, len(looks), *(sum(column) for column in zip(*looks, strict=True)))
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
    second, last = statistics.median(values[quarter : 2 * quarter] or values), statistics.median(values[-quarter:])
    return Trend(second, last, longest[-1].moment - longest[0].moment, greatest)


def per_minute(samples: Sequence[Sample]) -> list[Sample]:
    """Return one sample for each minute of a role of a driver, with the medians of its measures; its moment is their first."""
    minutes: dict[tuple[str, int, str, int], list[Sample]] = {}
    for each in samples:
        minutes.setdefault((each.stream, each.driver, each.role, int(each.moment // 60)), []).append(each)
    return [
        Sample(
            found[0].moment,
            stream,
            driver,
            role,
            round(statistics.median(each.processes for each in found)),
            round(statistics.median(each.mebibytes for each in found), 1),
            round(statistics.median(each.threads for each in found)),
            round(statistics.median(each.descriptors for each in found)),
        )
        for (stream, driver, role, _), found in minutes.items()
    ]


def growth(samples: Sequence[Sample], stream: str) -> list[str] | None:
    """Return what has grown in the longest life of a driver of a stream; None if no life is long enough to say."""
    found = [(role, measure, trend(samples, stream, role, measure)) for role in ROLES for measure in MEASURES]
    known = [(role, measure, each) for role, measure, each in found if each and each.seconds >= JUDGED_SECONDS]
    if not known:
        return None
    return [
        f"{stream}: {measure} of {role} have grown from {each.second:.0f} to {each.last:.0f}"
        for role, measure, each in known
        if each.last > GROWTH * each.second + SLACK[measure]
    ]


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
