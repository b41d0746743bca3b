"""Rows that cannot be written, as values: which rows they are, why, and what to do about them.

Checks look at whole columns. Their findings stay in arrays; a text is made only for each row that is asked about.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from spark_producer.errors import RecordError, RecordTooLarge
from spark_producer.kernel.arrays import BoolArray, Int32Array, Int64Array


class RowContext(NamedTuple):
    """What a message says about a row: what was found there, its number in the task, its topic, and both of these in words."""

    found: int
    row: int
    topic: str | None
    location: str


ErrorMessage = Callable[[RowContext], str]
"""A function that says what is wrong with a row, and what to do."""


class RowErrorKind(enum.StrEnum):
    """The part of a row that is wrong."""

    TOPIC = "topic"
    HEADERS = "headers"
    TIMESTAMP = "timestamp"
    PARTITION = "partition"
    SIZE = "size"
    SCHEMA = "schema"


class Rejected(NamedTuple):
    """A row that cannot be written.

    `row` is its number in the task. `topic` is None if it has none. `size` is in bytes for rows that are too large, else None.
    `message` says what is wrong, with topic and number, and what to do.
    """

    row: int
    kind: RowErrorKind
    topic: str | None
    size: int | None
    message: str

    def error(self) -> RecordError:
        """Return the same as an exception."""
        return RecordTooLarge(self.message) if self.kind is RowErrorKind.SIZE else RecordError(self.message)


class RowErrors(NamedTuple):
    """The finding of one check.

    `rows` holds positions in the columns, beginning with the one that an exception names. `found` holds what is wrong with each
    row, such as the partition that it asks for, or its bytes if it is too large.
    """

    kind: RowErrorKind
    message: ErrorMessage
    rows: Int64Array
    found: Int64Array | Int32Array


class RowContexts(Protocol):
    """The information about rows, by position, that messages need from columns."""

    def topic_of(self, row: int) -> str | None:
        """Return the topic of a row, or None if it has none."""

    def row_number(self, row: int) -> int:
        """Return the number of a row in the task."""

    def location(self, row: int) -> str:
        """Return the topic and the number of a row in words."""


class RejectedRows:
    """Rows of some columns that cannot be written. Iteration yields a `Rejected` for each.

    Every row is there once, with the fault that was found first; faults are in the order in which they were looked for.
    """

    def __init__(self, found: Sequence[tuple[RowContexts, RowErrors]] = ()) -> None:
        """Take each fault with the columns that have it; use `among` to make an instance."""
        self._found = tuple(found)

    @classmethod
    def among(cls, contexts: RowContexts, faults: Sequence[RowErrors]) -> RejectedRows:
        """Return the rows of some columns in which `faults` were found."""
        return cls([(contexts, fault) for fault in _each_row_once(faults)])

    def __len__(self) -> int:
        return sum(len(fault.rows) for _, fault in self._found)

    def __iter__(self) -> Iterator[Rejected]:
        for places, fault in self._found:
            for row, found in zip(fault.rows.tolist(), fault.found.tolist(), strict=True):
                spot = RowContext(found, places.row_number(row), places.topic_of(row), places.location(row))
                size = found if fault.kind is RowErrorKind.SIZE else None
                yield Rejected(spot.row, fault.kind, spot.topic, size, fault.message(spot))

    def __add__(self, others: RejectedRows) -> RejectedRows:
        """Return these rows and the others, which must be other rows of the same task."""
        return RejectedRows((*self._found, *others._found))

    def by_kind(self) -> Iterator[tuple[RejectedRows, RowErrorKind]]:
        """Yield the rows of each fault, and its kind."""
        for places, fault in self._found:
            yield RejectedRows([(places, fault)]), fault.kind

    @property
    def positions(self) -> Int64Array:
        """The positions of the rows in the columns that were checked, in the order of iteration."""
        return np.concatenate([np.zeros(0, dtype=np.int64), *(fault.rows for _, fault in self._found)])

    def raise_first(self) -> None:
        """Raise the error of the first row, if there is any.

        Raises:
            RecordError, RecordTooLarge: There is such a row.
        """
        if self._found:
            raise next(iter(self)).error()


NONE_REJECTED = RejectedRows()


def errors_at(
    bad: BoolArray,
    kind: RowErrorKind,
    message: ErrorMessage,
    found: Int64Array | Int32Array | None = None,
    first: int | None = None,
) -> RowErrors:
    """Return the rows where `bad` is true, ascending, except that `first` comes first; `found` has an entry for every row."""
    rows = np.flatnonzero(bad)
    if first is not None:
        rows = np.concatenate(([first], rows[rows != first]))
    return RowErrors(kind, message, rows, np.zeros(len(rows), dtype=np.int64) if found is None else found[rows])


def _each_row_once(faults: Sequence[RowErrors]) -> Sequence[RowErrors]:
    """Return the faults, each without the rows of the faults before it. The work follows the number of rows, not of pairs."""
    kept: list[RowErrors] = []
    told = np.zeros(1 + max((int(fault.rows.max(initial=-1)) for fault in faults), default=-1), dtype=np.bool_)
    for fault in faults:
        new = ~told[fault.rows]
        told[fault.rows] = True
        if new.any():
            kept.append(fault._replace(rows=fault.rows[new], found=fault.found[new]))
    return kept
