"""The runs of rows in a batch: which of its records are whose rows, so that a complaint about a record reaches the row.

A run is noted for each append, not for each row. The numbers of its rows take no memory if they are consecutive, and else two
bytes a row where they can.
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
        """Return the numbers but for those at `indices`."""
        steps: Steps = np.arange(self.count, dtype=np.uint32) if self.steps is None else self.steps
        kept: Steps = np.delete(steps, indices)
        return RowNumbers(self.first, len(kept), kept)


class BrokerRejection(NamedTuple):
    """Records that a broker refused for their own sake, in the order of their partition.

    `rows` holds their numbers, `texts` the broker's complaint about each, and `records` their fields, in columns of
    `RECORD_SCHEMA`. `error` is what the batch would have failed with.
    """

    topic_partition: tuple[str, int]
    error: BrokerError
    rows: list[int]
    texts: list[str]
    records: pa.RecordBatch


class DeliveryListener(Protocol):
    """Whoever wants to know what becomes of rows. Task threads call `expect`, the I/O thread the others."""

    has_future: bool
    """whether a future tells of failures, so that nobody else need"""

    def expect(self) -> None:
        """Count one more run that is under way."""

    def written(self, tp: tuple[str, int], offset: int, records: int) -> None:
        """Note that a run was acknowledged. `offset` is that of its first row, -1 if it is unknown."""

    def failed(self, error: Exception, run: RowRange) -> None:
        """Note that a run was refused as a part of its batch."""

    def wants(self, error: BrokerError) -> bool:
        """Whether records that a broker refuses with this error are to be taken out of their batch, and given to `refused`."""

    def rejected(self, rejection: BrokerRejection) -> None:
        """Take records that were taken out of a batch."""


class RowRange(NamedTuple):
    """A run of rows in a batch: whose they are, the index of the first one in the batch, and their numbers.

    `table` wants to know what becomes of them, if it is not None. `account` is that of the thread that sent them.
    """

    listener: DeliveryListener | None
    offset_delta: int
    rows: RowNumbers
    owner: ThreadFailures | None = None


def add_run(runs: list[RowRange], run: RowRange) -> None:
    """Note one more run at the end of a batch, as a part of the last one where they are of one piece."""
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
    """Return the runs in the first `records` records of a batch, and those behind them; one run may be cut in two."""
    before: list[RowRange] = []
    behind: list[RowRange] = []
    for run in runs:
        mine = records - run.offset_delta
        if mine <= 0:
            behind.append(run._replace(offset_delta=-mine))
        elif mine >= len(run.rows):
            before.append(run)
        else:
            if run.listener is not None:
                run.listener.expect()
            before.append(run._replace(rows=run.rows.cut(0, mine)))
            behind.append(run._replace(offset_delta=0, rows=run.rows.cut(mine, len(run.rows))))
    return before, behind


def runs_containing(runs: Sequence[RowRange], indices: Sequence[int]) -> list[tuple[RowRange, list[int]]] | None:
    """Return the runs that have the records at these ascending indices, with the indices of each; None if a record is in none."""
    found: list[tuple[RowRange, list[int]]] = []
    for run in runs:
        begin, end = _within(run, indices)
        if begin < end:
            found.append((run, list(indices[begin:end])))
    return found if sum(len(mine) for _, mine in found) == len(indices) else None


def without_records(runs: Sequence[RowRange], indices: Sequence[int]) -> list[RowRange]:
    """Return the runs of a batch that has lost the records at these ascending indices. A run that lost all is left out."""
    kept: list[RowRange] = []
    for run in runs:
        begin, end = _within(run, indices)
        mine = [index - run.offset_delta for index in indices[begin:end]]
        rows = run.rows.without(mine) if mine else run.rows
        if len(rows):
            kept.append(run._replace(offset_delta=run.offset_delta - begin, rows=rows))
    return kept


def _within(run: RowRange, indices: Sequence[int]) -> tuple[int, int]:
    """Return which of these ascending indices lie in a run: from where, and where they end."""
    return bisect_left(indices, run.offset_delta), bisect_left(indices, run.offset_delta + len(run.rows))


def errors_by_row(runs: Sequence[RowRange], texts: Mapping[int, str], account: ThreadFailures | None) -> dict[int, str]:
    """Return the complaints about records of one thread by the numbers of its rows.

    Nothing is returned if the rows are of several tables, each of which counts its own: then their futures tell.
    """
    found: dict[int, str] = {}
    tables = set()
    for run in runs:
        if run.owner is account:
            for index, text in texts.items():
                if 0 <= index - run.offset_delta < len(run.rows):
                    found[run.rows[index - run.offset_delta]] = text
                    tables.add(id(run.listener))
    return dict(sorted(found.items())) if len(tables) == 1 else {}
