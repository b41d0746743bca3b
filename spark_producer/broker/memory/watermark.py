"""An amount that grows and shrinks, with a mark above which it is too high, and a lower one at which it is no longer."""

from __future__ import annotations


class Watermark:
    """`amount` is too high from the moment it passes `most` until it has fallen to `enough`, which is half by default.

    Between the two marks it is what it was, so that those who are paused do not stop and go with every change.
    """

    __slots__ = ("amount", "enough", "is_full", "largest", "most")

    def __init__(self, most: float, enough: float | None = None) -> None:
        self.most = most
        self.enough = most / 2 if enough is None else enough
        self.amount = 0
        self.largest = 0
        self.is_full = False

    def change(self, by: int) -> None:
        """Add `by`, which may be negative."""
        self.amount += by
        if self.amount > self.largest:
            self.largest = self.amount
        if self.amount > self.most:
            self.is_full = True
        elif self.amount <= self.enough:
            self.is_full = False
