"""What callers of `send_table` wait for: where all rows of a table ended up.

Owns: the gathering of a table's runs. Must not know: how a result became known.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from concurrent.futures import Future
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from spark_producer.accumulator.future import settle
from spark_producer.errors import RecordsRefused
from spark_producer.metrics import OffsetRange

ROWS_SHOWN = 10
"""Refused rows of a table that its error's text names; its `rows` has all of them."""


class TableMetadata(NamedTuple):
    """Where the rows of a table went: for each (topic, partition) its ranges of offsets, ascending and without gaps.

    A range whose offsets the broker did not tell (a batch that was a duplicate) is missing, but counted in `records`.
    """

    ranges: Mapping[tuple[str, int], tuple[OffsetRange, ...]]
    records: int


class PendingRun(NamedTuple):
    """A run of a table's rows in a batch: its first index there, and the number of each of its rows in the table."""

    table: TableResult
    offset_delta: int
    rows: npt.NDArray[np.int64]


class TableResult:
    """Gathers what becomes of a table's runs; `future` is done when the last of them is, with the first error if any.

    Task threads add runs (`expect`, then `no_more`), the I/O thread ends them.
    """

    def __init__(self) -> None:
        self.future: Future[TableMetadata] = Future()
        self.future.set_running_or_notify_cancel()
        self._lock = threading.Lock()
        self._expected = 1  # the table itself, until `no_more`
        self._ranges: dict[tuple[str, int], list[OffsetRange]] = {}
        self._records = 0
        self._refused_rows: dict[int, str] = {}
        self._error: Exception | None = None

    def expect(self) -> None:
        """One more run is under way."""
        with self._lock:
            self._expected += 1

    def no_more(self, error: Exception | None = None) -> None:
        """All runs were appended, or the rest of them never will be."""
        self._end(error)

    def written(self, place: tuple[str, int], offset: int, records: int) -> None:
        """A run was acknowledged; `offset` of its first row, -1 if unknown."""
        with self._lock:
            self._records += records
            if offset >= 0:
                _add(self._ranges.setdefault(place, []), OffsetRange(offset, offset + records - 1, records))
        self._end(None)

    def failed(self, error: Exception, run: PendingRun) -> None:
        """A run was refused; complaints about single records are told by row of the table too."""
        if isinstance(error, RecordsRefused):
            with self._lock:
                for index, text in error.records.items():
                    if 0 <= index - run.offset_delta < len(run.rows):
                        self._refused_rows[int(run.rows[index - run.offset_delta])] = text
        self._end(error)

    def _end(self, error: Exception | None) -> None:
        with self._lock:
            self._error = self._error or error
            self._expected -= 1
            if self._expected:
                return
        if self._error is not None:
            reason = self._with_rows(self._error)
            settle(lambda: self.future.set_exception(reason))
        else:
            ranges = {place: tuple(found) for place, found in self._ranges.items()}
            found = TableMetadata(ranges, self._records)
            settle(lambda: self.future.set_result(found))

    def _with_rows(self, error: Exception) -> Exception:
        """The first error, with the rows that brokers complained about in any batch of the table."""
        if not isinstance(error, RecordsRefused):
            return error
        rows = dict(sorted(self._refused_rows.items()))
        shown = dict(list(rows.items())[:ROWS_SHOWN])
        more = f" and {len(rows) - len(shown)} more" if len(rows) > len(shown) else ""
        return RecordsRefused(f"{error} Rows of the table: {shown}{more}.", **{**error.__dict__, "rows": rows})


def cut_runs(runs: list[PendingRun], records: int) -> tuple[list[PendingRun], list[PendingRun]]:
    """The runs in the first `records` records of a batch, and those behind them; one may lie on both sides."""
    before: list[PendingRun] = []
    behind: list[PendingRun] = []
    for run in runs:
        mine = records - run.offset_delta
        if mine <= 0:
            behind.append(run._replace(offset_delta=-mine))
        elif mine >= len(run.rows):
            before.append(run)
        else:
            run.table.expect()
            before.append(run._replace(rows=run.rows[:mine]))
            behind.append(run._replace(offset_delta=0, rows=run.rows[mine:]))
    return before, behind


def _add(ranges: list[OffsetRange], found: OffsetRange) -> None:
    """Batches are acknowledged in the order of their offsets, but for those that were sent to two leaders."""
    ranges.append(found)
    ranges.sort()
    merged = ranges[:1]
    for after in ranges[1:]:
        if after.first == merged[-1].last + 1:
            merged[-1] = merged[-1].merge(after)
        else:
            merged.append(after)
    ranges[:] = merged
