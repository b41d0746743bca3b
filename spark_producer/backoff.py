"""Exponential backoff with jitter (KIP-144, KIP-580).

Owns: the formula. Must not know: what is being retried.
"""

from __future__ import annotations

from random import Random

JITTER = 0.2
"""of every backoff, so that clients cut off together do not come back together (KIP-144)"""

_MAX_DOUBLINGS = 63
"""beyond any maximum, and below what a float takes"""


def exponential(base: float, maximum: float, failures: int, random: Random) -> float:
    """base·2^failures ±20 %, at most `maximum`; draw once per attempt and keep it."""
    if base >= maximum:
        return maximum
    raised: float = min(maximum, base * 2.0 ** min(failures, _MAX_DOUBLINGS))
    return min(maximum, raised * random.uniform(1 - JITTER, 1 + JITTER))


class Backoff:
    """`delay(attempt)` in seconds: `exponential` with its bounds kept."""

    def __init__(self, first: float, most: float, random: Random | None = None) -> None:
        self._first = first
        self._most = most
        self._random = random or Random()

    def delay(self, attempt: int) -> float:
        """The pause before attempt number `attempt` (0 is the first retry)."""
        return exponential(self._first, self._most, attempt, self._random)
