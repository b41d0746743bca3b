"""The report of what a task wrote: counts and offset ranges, which are cheap to keep and can be merged on the driver."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class OffsetRange(NamedTuple):
    """The first and last offset written to a partition, and the number of records; other writers' may lie between them."""

    first: int
    last: int
    records: int

    def merge(self, other: OffsetRange) -> OffsetRange:
        """Return the range that covers both."""
        return OffsetRange(min(self.first, other.first), max(self.last, other.last), self.records + other.records)


class WriteReport(NamedTuple):
    """All that was acknowledged since the last report. `bytes` are those of the record batches as sent."""

    ranges: dict[tuple[str, int], OffsetRange]
    records: int = 0
    bytes: int = 0
    batches: int = 0
    requests: int = 0
    retries: int = 0


def merge(reports: Iterable[WriteReport]) -> WriteReport:
    """Return the sum of several reports."""
    ranges: dict[tuple[str, int], OffsetRange] = {}
    totals = [0, 0, 0, 0, 0]
    for report in reports:
        for place, found in report.ranges.items():
            ranges[place] = ranges[place].merge(found) if place in ranges else found
        for index, number in enumerate(report[1:]):
            totals[index] += number
    return WriteReport(ranges, *totals)
