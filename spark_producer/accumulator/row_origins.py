"""The runs of rows in a batch, which map its records to rows, so that an error of a record can name the row.

One run is kept for each append, not for each row. The numbers of its rows take no memory if they are consecutive, otherwise
mostly two bytes a row.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from spark_producer.kernel.arrays import Int64Array

if TYPE_CHECKING:
    import pyarrow as pa

    from spark_producer.accumulator.failure_tracking import ThreadFailures
    from spark_producer.errors import BrokerError

_SHORT = 1 << 16

Steps: TypeAlias = npt.NDArray[np.unsignedinteger[Any]]


class RowNumbers:
    """The ascending numbers of some rows: `first`, and the distance of each of the `count` rows from it (None: 0, 1, 2 …)."""

    __slots__ = ("count", "first", "steps")

    def __init__(self, first: int, count: int, steps: Steps | None = None) -> None:
        self.first = first
        self.count = count
        self.steps = steps

    @classmethod
    def of(cls, numbers: Int64Array | int, rows: Int64Array) -> RowNumbers:
        """Return the numbers of the rows at these ascending positions; `numbers` is as in `RecordColumns`."""
        base = 0
        if isinstance(numbers, np.ndarray):
            rows = numbers[rows]
        else:  # an integer of any kind, numpy's too
            base = int(numbers)
        low, high, count = int(rows[0]), int(rows[-1]), len(rows)
        if high - low == count - 1:
            return cls(low + base, count)
        steps: Steps = (rows - low).astype(np.uint16 if high - low < _SHORT else np.uint32)
        return cls(low + base, count, steps)

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> int:
        return self.first + (index if self.steps is None else int(self.steps[index]))

    def cut(self, begin: int, end: int) -> RowNumbers:
        """Return the numbers at `begin` … `end` - 1."""
        if self.steps is None:
            return RowNumbers(self.first + begin, end - begin)
        return RowNumbers(self.first, end - begin, self.steps[begin:end])

    def without(self, indices: Sequence[int]) -> RowNumbers:
        """Return the numbers except those at `indices`."""
        steps: Steps = np.arange(self.count, dtype=np.uint32) if self.steps is None else self.steps
        kept: Steps = np.delete(steps, indices)
        return RowNumbers(self.first, len(kept), kept)


class BrokerRejection(NamedTuple):
    """Single records of a batch that a broker rejected, in the order of their partition (KIP-467).

    `rows` holds their row numbers, `texts` the broker's error message for each, and `records` their fields, in columns of
    `RECORD_SCHEMA`. `error` is the error with which the batch would have failed.
    """

    topic_partition: tuple[str, int]
    error: BrokerError
    rows: list[int]
    texts: list[str]
    records: pa.RecordBatch


class DeliveryListener(Protocol):
    """A listener for the outcome of rows. Task threads call `expect`, the I/O thread the other methods."""

    has_future: bool
    """whether a future reports failures, so that no flush needs to"""

    def expect(self) -> None:
        """Count one more run that is under way."""

    def written(self, tp: tuple[str, int], offset: int, records: int) -> None:
        """Record that a run was acknowledged. `offset` is that of its first row, -1 if it is unknown."""

    def failed(self, error: Exception, run: RowRange) -> None:
        """Record that a run has failed with its batch."""

    def wants(self, error: BrokerError) -> bool:
        """Return whether records that a broker rejects with this error are to be removed from their batch and passed to
        `rejected`.
        """

    def rejected(self, rejection: BrokerRejection) -> None:
        """Take records that were removed from a batch."""


class RowRange(NamedTuple):
    """A run of rows in a batch: the index of the first record in the batch, and the numbers of the rows.

    `listener`, if any, gets their outcome. `owner` is the thread that sent them.
    """

    listener: DeliveryListener | None
    offset_delta: int
    rows: RowNumbers
    owner: ThreadFailures | None = None


def add_run(runs: list[RowRange], run: RowRange) -> None:
    """Add a run at the end of a batch, as a part of the last run if the two are contiguous."""
    last = runs[-1] if runs else None
    if (
        last is None
        or last.listener is not run.listener
        or last.owner is not run.owner
        or last.rows.steps is not None
        or run.rows.steps is not None
        or last.rows.first + last.rows.count != run.rows.first
        or last.offset_delta + last.rows.count != run.offset_delta
    ):
        if run.listener is not None:
            run.listener.expect()
        runs.append(run)
    else:
        runs[-1] = last._replace(rows=RowNumbers(last.rows.first, last.rows.count + run.rows.count))


def cut_runs(runs: list[RowRange], records: int) -> tuple[list[RowRange], list[RowRange]]:
    """Return the runs in the first `records` records of a batch, and those after them; one run may be cut in two."""
    head: list[RowRange] = []
    tail: list[RowRange] = []
    for run in runs:
        mine = records - run.offset_delta
        if mine <= 0:
            tail.append(run._replace(offset_delta=-mine))
        elif mine >= len(run.rows):
            head.append(run)
        else:
            if run.listener is not None:
                run.listener.expect()
            head.append(run._replace(rows=run.rows.cut(0, mine)))
            tail.append(run._replace(offset_delta=0, rows=run.rows.cut(mine, len(run.rows))))
    return head, tail


def runs_containing(runs: Sequence[RowRange], indices: Sequence[int]) -> list[tuple[RowRange, list[int]]] | None:
    """Return the runs with the records at these ascending indices, and the indices of each; None if a record is in no run."""
    found: list[tuple[RowRange, list[int]]] = []
    for run in runs:
        begin, end = _within(run, indices)
        if begin < end:
            found.append((run, list(indices[begin:end])))
    return found if sum(len(mine) for _, mine in found) == len(indices) else None


def without_records(runs: Sequence[RowRange], indices: Sequence[int]) -> list[RowRange]:
    """Return the runs of a batch without the records at these ascending indices. Runs that become empty are left out."""
    kept: list[RowRange] = []
    for run in runs:
        begin, end = _within(run, indices)
        mine = [index - run.offset_delta for index in indices[begin:end]]
        rows = run.rows.without(mine) if mine else run.rows
        if len(rows):
            kept.append(run._replace(offset_delta=run.offset_delta - begin, rows=rows))
    return kept


def _within(run: RowRange, indices: Sequence[int]) -> tuple[int, int]:
    """Return the slice (first, stop) of these ascending indices that are in a run."""
    return bisect_left(indices, run.offset_delta), bisect_left(indices, run.offset_delta + len(run.rows))


def errors_by_row(runs: Sequence[RowRange], texts: Mapping[int, str], owner: ThreadFailures | None) -> dict[int, str]:
    """Return the broker's error messages for the records of one thread, by row number.

    The result is empty if the rows come from several tables, since each table numbers its own rows: the tables' futures report
    these errors.
    """
    found: dict[int, str] = {}
    listeners = set()
    for run in runs:
        if run.owner is owner:
            for index, text in texts.items():
                if 0 <= index - run.offset_delta < len(run.rows):
                    found[run.rows[index - run.offset_delta]] = text
                    listeners.add(id(run.listener))
    return dict(sorted(found.items())) if len(listeners) == 1 else {}
