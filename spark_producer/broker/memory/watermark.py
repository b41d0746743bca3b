"""An amount that grows and shrinks, with a mark above which it is too high, and a lower one at which it is no longer."""

from __future__ import annotations


class Watermark:
    """`amount` is too high from the moment it passes `most` until it has fallen to `enough`, which is half by default.

    Between the two marks it is what it was, so that those who are paused do not stop and go with every change.
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
