"""Exponential backoff with jitter (KIP-580; spec: kafka_producer.md §2.16).

Owns: the formula. Must not know: what is being retried.
"""

from __future__ import annotations

import random

JITTER = 0.2
_MAX_DOUBLINGS = 62
"""beyond it 2 ** attempt would only cost time: every cap is reached long before"""


class Backoff:
    """`delay(attempt)`: first x 2^attempt, ±20 %, never more than `most`; seconds. Draw once per attempt and keep it."""

    def __init__(self, first: float, most: float, choose: random.Random | None = None) -> None:
        self._first = min(first, most)
        self._most = most
        self._random = choose or random.Random()

    def delay(self, attempt: int) -> float:
        """The pause before attempt number `attempt` (0 is the first retry)."""
        doubled = self._first * 2 ** min(attempt, _MAX_DOUBLINGS)
        return min(self._most, float(min(doubled, self._most) * self._random.uniform(1 - JITTER, 1 + JITTER)))
