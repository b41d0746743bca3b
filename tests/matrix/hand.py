"""A hand that does random faults: one after the other, each for some seconds, with a pause before each.

Owns: when a fault begins and ends. Must not know: which faults there are, and what they hit.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from tests.matrix.faults import Fault


class Stage(Protocol):
    """A run in which faults are done."""

    chance: random.Random

    @property
    def now(self) -> float:
        """Seconds since the begin."""

    def can_begin(self, fault: Fault) -> bool:
        """Return whether there is something to hit."""

    def note_fault(self, fault: Fault, begin: float, said: str) -> None:
        """Record a fault that ends now."""


class Pace(NamedTuple):
    """Ranges in seconds: before the first fault, between two, and of one that has an end."""

    first: tuple[float, float] = (3, 8)
    pause: tuple[float, float] = (1, 8)
    length: tuple[float, float] = (0.5, 12)


class Hand:
    """Faults of one lane."""

    def __init__(self, stage: Stage, faults: Sequence[Fault], pace: Pace | None = None) -> None:
        self._stage, self._faults, self._pace = stage, faults, pace or Pace()
        self._active: tuple[Fault, float, str] | None = None
        self._next = stage.now + stage.chance.uniform(*self._pace.first)

    def turn(self) -> None:
        """Begin or end a fault if it is time."""
        stage = self._stage
        if stage.now < self._next:
            return
        if self._active is not None:
            self.end()
            self._next = stage.now + stage.chance.uniform(*self._pace.pause)
            return
        fault = stage.chance.choice(self._faults)
        if not stage.can_begin(fault):
            return
        said = fault.begin()
        if said is None:  # there was nothing to hit, so the fault is not recorded
            self._next = stage.now + 0.5
            return
        self._active = (fault, stage.now, said)
        self._next = stage.now + (stage.chance.uniform(*self._pace.length) if fault.end else 0.5)
        print(f"{stage.now:6.1f} s  {fault.lane}: {fault.name} {said}", flush=True)

    def end(self) -> None:
        """End the fault that is under way."""
        if self._active is None:
            return
        fault, begin, said = self._active
        self._active = None
        if fault.end:
            fault.end()
        self._stage.note_fault(fault, begin, said)
