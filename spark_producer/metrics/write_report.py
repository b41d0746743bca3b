"""The report of what a task wrote: counts and offset ranges, which are cheap to keep and can be merged on the driver."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple


class OffsetRange(NamedTuple):
    """The first and last offset written to a partition, and the number of records; other writers' may lie between them."""

    first: int
    last: int
    records: int

    def merge(self, other: OffsetRange) -> OffsetRange:
        """Return the range that covers both."""
        return OffsetRange(min(self.first, other.first), max(self.last, other.last), self.records + other.records)


NO_REASONS: Mapping[str, int] = {}
NO_RANGES: Mapping[tuple[str, int], OffsetRange] = {}
"""The defaults of a report, which are never changed. Reports are pickled, so these are plain dictionaries."""


class WriteReport(NamedTuple):
    """All that was acknowledged since the last report. `bytes` are those of the record batches as sent.

    `rejected` counts the rows that went to the dead-letter topic, and `rejected_by` these by class ("size"); `dead_letters` has
    their offsets there. `ranges` and `records` do not count them, but `bytes`, `batches`, `requests` and `retries` do.
    """

    ranges: dict[tuple[str, int], OffsetRange]
    records: int = 0
    bytes: int = 0
    batches: int = 0
    requests: int = 0
    retries: int = 0
    rejected: int = 0
    rejected_by: Mapping[str, int] = NO_REASONS
    dead_letters: Mapping[tuple[str, int], OffsetRange] = NO_RANGES

    def with_dead_letters(self, topic: str, rejected_by: Mapping[str, int]) -> WriteReport:
        """Return this report with the dead-letter topic counted apart; `rejected_by` are the rows that were rejected since."""
        rejected = sum(rejected_by.values())
        return self._replace(
            ranges={tp: found for tp, found in self.ranges.items() if tp[0] != topic},
            records=self.records - rejected,
            rejected=self.rejected + rejected,
            rejected_by=dict(Counter(self.rejected_by) + Counter(rejected_by)),
            dead_letters={**self.dead_letters, **{tp: at for tp, at in self.ranges.items() if tp[0] == topic}},
        )


def merge(reports: Iterable[WriteReport]) -> WriteReport:
    """Return the sum of several reports."""
    ranges: dict[tuple[str, int], OffsetRange] = {}
    dead: dict[tuple[str, int], OffsetRange] = {}
    reasons: Counter[str] = Counter()
    totals = [0, 0, 0, 0, 0, 0]
    for report in reports:
        for into, spans in ((ranges, report.ranges), (dead, report.dead_letters)):
            for tp, found in spans.items():
                into[tp] = into[tp].merge(found) if tp in into else found
        reasons.update(report.rejected_by)
        for index, number in enumerate(report[1:7]):
            totals[index] += number
    records, size, batches, requests, retries, rejected = totals
    return WriteReport(ranges, records, size, batches, requests, retries, rejected, dict(reasons), dead)
