"""The result of `send_table`, which has the offsets of all rows of a table."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from concurrent.futures import Future
from typing import NamedTuple

from spark_producer.accumulator.future import run_logging_errors
from spark_producer.accumulator.row_origins import BrokerRejection, RowRange
from spark_producer.errors import BrokerError, IllegalState, RecordsRefused
from spark_producer.metrics import OffsetRange

MAX_ROWS_IN_MESSAGE = 10
"""Maximum number of rejected rows of a table in the text of its error; the error's `rows` has all of them."""


class TableMetadata(NamedTuple):
    """The offsets of the rows of a table: ranges by (topic, partition), ascending and without gaps.

    A range whose offsets are unknown (the broker does not send them for a duplicate batch) is missing, but `records` counts its
    rows.
    """

    ranges: Mapping[tuple[str, int], tuple[OffsetRange, ...]]
    records: int


class TableResult:
    """Gathers the outcomes of a table's runs. `future` is done with the last run, and has the first error if there is one.

    Task threads add runs (`expect`, then `no_more`), and the I/O thread completes them.
    """

    has_future = True

    def __init__(self) -> None:
        self.future: Future[TableMetadata] = Future()
        self.future.set_running_or_notify_cancel()
        self._lock = threading.Lock()
        self._expected = 1  # the table itself, until `no_more`
        self._ranges: dict[tuple[str, int], list[OffsetRange]] = {}
        self._records = 0
        self._rejected_rows: dict[int, str] = {}
        self._error: Exception | None = None

    def expect(self) -> None:
        """Count one more run that is under way."""
        with self._lock:
            self._expected += 1

    def no_more(self, error: Exception | None = None) -> None:
        """Record that no run follows: all were appended, or the `error` of the caller prevents the rest."""
        self._end(error)

    def written(self, tp: tuple[str, int], offset: int, records: int) -> None:
        """Record that a run was acknowledged. `offset` is that of its first row, -1 if it is unknown."""
        with self._lock:
            self._records += records
            if offset >= 0:
                _add(self._ranges.setdefault(tp, []), OffsetRange(offset, offset + records - 1, records))
        self._end(None)

    def failed(self, error: Exception, run: RowRange) -> None:
        """Record that a run has failed, and keep the broker's messages about single records by their row in the table."""
        if isinstance(error, RecordsRefused):
            with self._lock:
                for index, text in error.records.items():
                    if 0 <= index - run.offset_delta < len(run.rows):
                        self._rejected_rows[run.rows[index - run.offset_delta]] = text
        self._end(error)

    def wants(self, error: BrokerError) -> bool:  # noqa: ARG002 - the protocol's signature
        """Return False: all rows of a table are written, or its future raises."""
        return False

    def rejected(self, rejection: BrokerRejection) -> None:
        """Raise `IllegalState`: no records are removed from the batches of a table."""
        raise IllegalState(f"{len(rejection.rows)} records were removed from a batch of a table")

    def _end(self, error: Exception | None) -> None:
        with self._lock:
            self._error = self._error or error
            self._expected -= 1
            if self._expected:
                return
        if self._error is not None:
            reason = self._with_rows(self._error)
            run_logging_errors(lambda: self.future.set_exception(reason))
        else:
            ranges = {tp: tuple(found) for tp, found in self._ranges.items()}
            found = TableMetadata(ranges, self._records)
            run_logging_errors(lambda: self.future.set_result(found))

    def _with_rows(self, error: Exception) -> Exception:
        """Return the first error, with the rows that brokers rejected in any batch of the table."""
        if not isinstance(error, RecordsRefused):
            return error
        rows = dict(sorted(self._rejected_rows.items()))
        named = dict(list(rows.items())[:MAX_ROWS_IN_MESSAGE])
        more = f" and {len(rows) - len(named)} more" if len(rows) > len(named) else ""
        return RecordsRefused(f"{error} Rows of the table: {named}{more}.", **{**error.__dict__, "rows": rows})


def _add(ranges: list[OffsetRange], found: OffsetRange) -> None:
    """Add a range, and merge it with its neighbours.

    Ranges are sorted because batches that were sent to two leaders may be acknowledged out of the order of their offsets.
    """
    ranges.append(found)
    ranges.sort()
    merged = ranges[:1]
    for after in ranges[1:]:
        if after.first == merged[-1].last + 1:
            merged[-1] = merged[-1].merge(after)
        else:
            merged.append(after)
    ranges[:] = merged
