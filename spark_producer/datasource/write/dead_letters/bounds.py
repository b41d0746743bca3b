"""Bounds the bad rows of a task: if most rows are bad, the column is wrong, and the write fails."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import islice

from spark_producer.errors import TooManyBadRows

MIN_ROWS = 1000
"""Minimum rows of a task for `maxBadRecordsRatio`, so that one row of a micro-batch of three can be bad."""

REASONS_SHOWN = 3
NO_BOUND = -1


class Bounds:
    """Counts the bad rows of one task, and compares them with `maxBadRecords` and `maxBadRecordsRatio`."""

    def __init__(self, max_records: int, ratio: float) -> None:
        self._max_records = max_records
        self._ratio = ratio
        self.rejected_by: Counter[str] = Counter()
        """The bad rows by class."""
        self.first: list[str] = []
        """The error messages of the first bad rows."""

    @property
    def rejected(self) -> int:
        """The number of bad rows."""
        return self.rejected_by.total()

    def add(self, bad: str, count: int, reasons: Iterable[str]) -> None:
        """Add `count` bad rows of a class, with their error messages."""
        self.rejected_by[bad] += count
        self.first += islice(reasons, REASONS_SHOWN - len(self.first))

    def check(self, rows: int) -> None:
        """Check the bad rows among the task's `rows` so far.

        Raises:
            TooManyBadRows: there are too many; the message has the first reasons.
        """
        rejected = self.rejected
        if self._max_records != NO_BOUND and rejected > self._max_records:
            passed = f"maxBadRecords ({self._max_records})"
        elif rejected > self._ratio * max(rows, MIN_ROWS):
            passed = f"maxBadRecordsRatio ({self._ratio:g}, of at least {MIN_ROWS} rows)"
        else:
            return
        raise TooManyBadRows(
            f"{rejected} of {rows} rows of the task are bad so far, more than {passed} allows for the dead-letter topic. Correct "
            f"the rows, or raise the option. The first ones: {self.reasons()}"
        )

    def reasons(self) -> str:
        """Return the error messages of the first bad rows."""
        return "; ".join(self.first)
