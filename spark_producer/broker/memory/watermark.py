"""An amount with a high and a low watermark."""

from __future__ import annotations


class Watermark:
    """An amount that `is_full` from when it exceeds `high` until it has fallen to `low`, which is half of `high` by default.

    Between the two marks `is_full` keeps its value, so that paused producers do not stop and go with every change.
    """

    __slots__ = ("amount", "high", "is_full", "low", "peak")

    def __init__(self, high: float, low: float | None = None) -> None:
        self.high = high
        self.low = high / 2 if low is None else low
        self.amount = 0
        self.peak = 0
        self.is_full = False

    def change(self, by: int) -> None:
        """Add `by`, which may be negative."""
        self.amount += by
        if self.amount > self.peak:
            self.peak = self.amount
        if self.amount > self.high:
            self.is_full = True
        elif self.amount <= self.low:
            self.is_full = False
