"""Exponential backoff with jitter (KIP-144, KIP-580): every pause between two attempts at the same thing is computed here."""

from __future__ import annotations

from random import Random

JITTER = 0.2
"""The part of every backoff that is random, so that clients cut off together do not come back together (KIP-144)."""

_MAX_DOUBLINGS = 63
"""The most doublings: enough to exceed any maximum, and few enough for a float."""


def exponential(base: float, maximum: float, failures: int, random: Random) -> float:
    """Return base·2^failures ±20 %, at most `maximum`; draw it once per attempt and keep it."""
    if base >= maximum:
        return maximum
    raised: float = min(maximum, base * 2.0 ** min(failures, _MAX_DOUBLINGS))
    return min(maximum, raised * random.uniform(1 - JITTER, 1 + JITTER))


class Backoff:
    """The function `exponential` with fixed bounds in seconds."""

    def __init__(self, first: float, most: float, random: Random | None = None) -> None:
        self._first = first
        self._most = most
        self._random = random or Random()

    def delay(self, attempt: int) -> float:
        """Return the seconds before attempt number `attempt` (0 is the first retry)."""
        return exponential(self._first, self._most, attempt, self._random)
