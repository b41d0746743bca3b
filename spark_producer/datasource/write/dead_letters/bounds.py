"""How many rows of a task may be bad before the write has failed: a wrong column is an error, and no matter for another topic."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import islice

from spark_producer.errors import TooManyBadRows

MIN_ROWS = 1000
"""A task of fewer rows counts as one of so many for `maxBadRecordsRatio`: of a micro-batch of three rows one may be bad."""

REASONS_SHOWN = 3
NO_BOUND = -1


class Bounds:
    """Counts the bad rows of one task, and compares them with `maxBadRecords` and `maxBadRecordsRatio`."""

    def __init__(self, most: int, ratio: float) -> None:
        self._most = most
        self._ratio = ratio
        self.rejected_by: Counter[str] = Counter()
        """The bad rows by class."""
        self.first: list[str] = []
        """What was wrong with the first ones."""

    @property
    def rejected(self) -> int:
        """The number of bad rows."""
        return self.rejected_by.total()

    def add(self, bad: str, count: int, reasons: Iterable[str]) -> None:
        """Count so many more rows of a class, for these reasons."""
        self.rejected_by[bad] += count
        self.first += islice(reasons, REASONS_SHOWN - len(self.first))

    def check(self, rows: int) -> None:
        """Refuse more bad rows than there may be among the task's `rows` so far.

        Raises:
            TooManyBadRows: there are more; the text has the first reasons.
        """
        rejected = self.rejected
        if self._most != NO_BOUND and rejected > self._most:
            passed = f"maxBadRecords ({self._most})"
        elif rejected > self._ratio * max(rows, MIN_ROWS):
            passed = f"maxBadRecordsRatio ({self._ratio:g}, of at least {MIN_ROWS} rows)"
        else:
            return
        raise TooManyBadRows(
            f"{rejected} of {rows} rows of the task are bad so far, more than {passed} lets go to the dead-letter topic. Correct "
            f"the rows, or raise the option. The first ones: {self.reasons()}"
        )

    def reasons(self) -> str:
        """Return what was wrong with the first bad rows."""
        return "; ".join(self.first)
