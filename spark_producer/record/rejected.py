"""Rows that cannot be written, as values: which ones, why, and what to do about them.

Owns: what is said of such a row, and which rows are told of. Must not know: how a check finds them, or what becomes of them.

Checks look at whole columns. What they find stays in arrays; texts are made one by one, for those who ask.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from spark_producer.errors import RecordError, RecordTooLarge
from spark_producer.kernel.arrays import BoolArray, Int64Array


class Spot(NamedTuple):
    """A row as texts speak of it: what was found there, its number in the task, its topic; both of these in words."""

    found: int
    row: int
    topic: str | None
    place: str


Tell = Callable[[Spot], str]
"""What is wrong with a row, and what to do."""


class Kind(enum.StrEnum):
    """Which part of a row is wrong."""

    TOPIC = "topic"
    HEADERS = "headers"
    TIMESTAMP = "timestamp"
    PARTITION = "partition"
    SIZE = "size"


class Rejected(NamedTuple):
    """A row that cannot be written.

    `row`: its number in the task. `topic`: None if it has none. `size`: its bytes, of rows that are too large, else None.
    `message`: what is wrong, with topic and number, and what to do.
    """

    row: int
    kind: Kind
    topic: str | None
    size: int | None
    message: str

    def error(self) -> RecordError:
        """The same as an exception."""
        return RecordTooLarge(self.message) if self.kind is Kind.SIZE else RecordError(self.message)


class Fault(NamedTuple):
    """What one check has found.

    `rows`: positions in the columns, the one that an exception names first. `found`: what is wrong with each of them, such as
    the partition that it asks for; its bytes, if it is too large.
    """

    kind: Kind
    tell: Tell
    rows: Int64Array
    found: npt.NDArray[np.integer[Any]]


class Places(Protocol):
    """What is asked of columns about their rows, by position."""

    def topic_of(self, row: int) -> str | None:
        """The topic of a row, None if it has none."""

    def row_number(self, row: int) -> int:
        """The number of a row in the task."""

    def place(self, row: int) -> str:
        """Both in words."""


class RejectedRows:
    """Rows of some columns that cannot be written. Iteration gives a `Rejected` for each.

    Every row is there once, with the fault that was found first; faults are in the order in which they were looked for.
    """

    def __init__(self, found: Sequence[tuple[Places, Fault]] = ()) -> None:
        """Each fault with the columns that have it; `among` is the way to make one."""
        self._found = tuple(found)

    @classmethod
    def among(cls, places: Places, faults: Iterable[Fault]) -> RejectedRows:
        """The rows of some columns in which `faults` were found."""
        return cls([(places, fault) for fault in _each_row_once(faults)])

    def __len__(self) -> int:
        return sum(len(fault.rows) for _, fault in self._found)

    def __iter__(self) -> Iterator[Rejected]:
        for places, fault in self._found:
            for row, found in zip(fault.rows.tolist(), fault.found.tolist(), strict=True):
                spot = Spot(found, places.row_number(row), places.topic_of(row), places.place(row))
                size = found if fault.kind is Kind.SIZE else None
                yield Rejected(spot.row, fault.kind, spot.topic, size, fault.tell(spot))

    def __add__(self, others: RejectedRows) -> RejectedRows:
        """These and those; for other rows of the same task."""
        return RejectedRows((*self._found, *others._found))

    @property
    def positions(self) -> Int64Array:
        """Where the rows are in the columns that were checked, in the order of iteration."""
        return np.concatenate([np.zeros(0, dtype=np.int64), *(fault.rows for _, fault in self._found)])

    def raise_first(self) -> None:
        """Nothing, if there are no such rows.

        Raises:
            RecordError, RecordTooLarge: the first of them.
        """
        if self._found:
            raise next(iter(self)).error()


NONE_REJECTED = RejectedRows()


def fault_where(
    bad: BoolArray, kind: Kind, tell: Tell, found: npt.NDArray[np.integer[Any]] | None = None, first: int | None = None
) -> Fault:
    """The rows where `bad` is true, ascending, but for the one that goes `first`; `found` has an entry for every row."""
    rows = np.flatnonzero(bad)
    if first is not None:
        rows = np.concatenate(([first], rows[rows != first]))
    return Fault(kind, tell, rows, np.zeros(len(rows), dtype=np.int64) if found is None else found[rows])


def _each_row_once(faults: Iterable[Fault]) -> Sequence[Fault]:
    """Faults without the rows of those before them."""
    kept: list[Fault] = []
    for fault in faults:
        new = np.ones(len(fault.rows), dtype=np.bool_)
        for before in kept:
            new &= ~np.isin(fault.rows, before.rows)
        if new.any():
            kept.append(fault._replace(rows=fault.rows[new], found=fault.found[new]))
    return kept
