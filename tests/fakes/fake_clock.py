"""A clock that only a test moves."""

from __future__ import annotations


class FakeClock:
    """Seconds that pass only when a test says so."""

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now
        self.calls = 0

    def __call__(self) -> float:
        self.calls += 1
        return self.now

    def advance(self, seconds: float) -> float:
        self.now += seconds
        return self.now
