"""What callers of the producer wait for: where a record, or all rows of a table, ended up.

Owns: the results, the callbacks and their order, the gathering of a table's runs.
Must not know: how a result became known.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import NamedTuple, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from spark_producer.errors import RecordsRefused
from spark_producer.metrics import OffsetRange

_log = logging.getLogger(__name__)

Outcome = TypeVar("Outcome")

ROWS_SHOWN = 10
"""Refused rows of a table that its error's text names; its `rows` has all of them."""


class RecordMetadata(NamedTuple):
    """Topic, partition, offset (-1 if the broker did not say) and timestamp (milliseconds) of a written record."""

    topic: str
    partition: int
    offset: int
    timestamp: int


Callback: TypeAlias = Callable[[RecordMetadata, Exception | None], None]
"""Called on the I/O thread before the record's future is done; with offset and timestamp -1 and the error if it failed."""


class TableMetadata(NamedTuple):
    """Where the rows of a table went: for each (topic, partition) its ranges of offsets, ascending and without gaps.

    A range whose offsets the broker did not tell (a batch that was a duplicate) is missing, but counted in `records`.
    """

    ranges: Mapping[tuple[str, int], tuple[OffsetRange, ...]]
    records: int


class PendingRecord(NamedTuple):
    """A future that waits for its batch, and the record's index and timestamp in it."""

    future: Future[RecordMetadata]
    offset_delta: int
    timestamp: int
    callback: Callback | None = None

    def moved(self, by: int) -> PendingRecord:
        """The same record in a batch that begins `by` records later."""
        return self._replace(offset_delta=self.offset_delta - by)


class PendingRun(NamedTuple):
    """A run of a table's rows in a batch: its first index there, and the number of each of its rows in the table."""

    table: TableResult
    offset_delta: int
    rows: npt.NDArray[np.int64]

    def moved(self, by: int) -> PendingRun:
        """The same run in a batch that begins `by` records later."""
        return self._replace(offset_delta=self.offset_delta - by)


Pending: TypeAlias = PendingRecord | PendingRun


class TableResult:
    """Gathers what becomes of a table's runs; `future` is done when the last of them is, with the first error if any.

    Task threads add runs (`expect`, then `no_more`), the I/O thread ends them.
    """

    def __init__(self) -> None:
        self.future: Future[TableMetadata] = Future()
        self.future.set_running_or_notify_cancel()
        self.first_row = 0
        """the number of the first row of the piece of the table that is being appended"""
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
            _settle(self.future.set_exception, self._with_rows(self._error))
        else:
            ranges = {place: tuple(found) for place, found in self._ranges.items()}
            _settle(self.future.set_result, TableMetadata(ranges, self._records))

    def _with_rows(self, error: Exception) -> Exception:
        """The first error, with the rows that brokers complained about in any batch of the table."""
        if not isinstance(error, RecordsRefused):
            return error
        rows = dict(sorted(self._refused_rows.items()))
        shown = dict(list(rows.items())[:ROWS_SHOWN])
        more = f" and {len(rows) - len(shown)} more" if len(rows) > len(shown) else ""
        return RecordsRefused(f"{error} Rows of the table: {shown}{more}.", **{**error.__dict__, "rows": rows})


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


def complete(pending: list[Pending], place: tuple[str, int], base_offset: int, log_append_time: int) -> None:
    """Tell all that wait for a batch: first the callbacks, in the order of the records, then the futures."""
    results: list[tuple[PendingRecord, RecordMetadata]] = []
    for waits in pending:
        offset = base_offset + waits.offset_delta if base_offset >= 0 else -1
        if isinstance(waits, PendingRun):
            waits.table.written(place, offset, len(waits.rows))
            continue
        found = RecordMetadata(*place, offset, waits.timestamp if log_append_time < 0 else log_append_time)
        results.append((waits, found))
        _call(waits, found, None)
    for waits, found in results:
        _settle(waits.future.set_result, found)


def fail(pending: list[Pending], place: tuple[str, int], error: Exception) -> None:
    """As `complete`. Records that the broker named get its complaint, the others of their batch learn who is to blame."""
    failed: list[tuple[PendingRecord, Exception]] = []
    for waits in pending:
        if isinstance(waits, PendingRun):
            waits.table.failed(error, waits)
            continue
        own = _own_error(error, waits.offset_delta)
        failed.append((waits, own))
        _call(waits, RecordMetadata(*place, -1, -1), own)
    for waits, own in failed:
        _settle(waits.future.set_exception, own)


def _own_error(error: Exception, index: int) -> Exception:
    """What the record at `index` of a refused batch is told (KIP-467)."""
    if not isinstance(error, RecordsRefused):
        return error
    said = error.records.get(index)
    if said is None:
        text = f"the record was not written because other records of its batch were refused: {error}"
    else:
        text = f"the broker refused the record: {said}. {error}"
    return RecordsRefused(text, **error.__dict__)


def _call(record: PendingRecord, found: RecordMetadata, error: Exception | None) -> None:
    if record.callback is None:
        return
    try:
        record.callback(found, error)
    except BaseException:  # a sys.exit() in it would end the I/O thread, and nobody else would learn of his records
        _log.exception("a callback failed; the record of topic %r is not affected", found.topic)


def _settle(settle: Callable[[Outcome], None], outcome: Outcome) -> None:
    """Make a future done. It logs the exceptions of its own callbacks, but for those that end threads."""
    try:
        settle(outcome)
    except BaseException:
        _log.exception("a callback of a future failed; what it was told of is not affected")
