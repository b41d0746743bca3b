"""What a task wrote: counts and offset ranges, cheap to keep, mergeable on the driver.

Owns: the numbers and how they add up. Must not know: where they come from; it reads no clock.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class OffsetRange(NamedTuple):
    """First and last offset written to a partition and how many records; other writers' records may lie between."""

    first: int
    last: int
    records: int

    def merge(self, other: OffsetRange) -> OffsetRange:
        """The range that covers both."""
        return OffsetRange(min(self.first, other.first), max(self.last, other.last), self.records + other.records)


class WriteReport(NamedTuple):
    """Everything acknowledged since the last report. `bytes` are those of the record batches as sent."""

    ranges: dict[tuple[str, int], OffsetRange]
    records: int = 0
    bytes: int = 0
    batches: int = 0
    requests: int = 0
    retries: int = 0


def merge(reports: Iterable[WriteReport]) -> WriteReport:
    """The sum of several reports."""
    ranges: dict[tuple[str, int], OffsetRange] = {}
    totals = [0, 0, 0, 0, 0]
    for report in reports:
        for place, found in report.ranges.items():
            ranges[place] = ranges[place].merge(found) if place in ranges else found
        for index, number in enumerate(report[1:]):
            totals[index] += number
    return WriteReport(ranges, *totals)
