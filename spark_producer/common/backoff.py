"""Exponential backoff with jitter (KIP-144, KIP-580), which computes the pause before every retry in this package."""

from __future__ import annotations

from random import Random

JITTER = 0.2
"""Random fraction of each backoff, so that clients that are disconnected together do not reconnect together (KIP-144)."""

_MAX_DOUBLINGS = 63
"""Maximum number of doublings: enough to exceed any maximum, and few enough for a float."""


def exponential(base: float, maximum: float, failures: int, random: Random) -> float:
    """Return base·2^failures ±20 %, at most `maximum`, in the unit of `base`. Each call draws another value."""
    if base >= maximum:
        return maximum
    raised: float = min(maximum, base * 2.0 ** min(failures, _MAX_DOUBLINGS))
    return min(maximum, raised * random.uniform(1 - JITTER, 1 + JITTER))


class Backoff:
    """The backoff `exponential` between a base and a maximum in seconds."""

    def __init__(self, base: float, maximum: float, random: Random | None = None) -> None:
        self._base = base
        self._maximum = maximum
        self._random = random or Random()

    def delay(self, attempt: int) -> float:
        """Return the seconds to wait before retry number `attempt`, counted from 0."""
        return exponential(self._base, self._maximum, attempt, self._random)
