"""Rows that cannot be written, with the reason and what to do.

Checks work on whole columns. Their findings stay in arrays; a message is made only for a row that is read.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from spark_producer.errors import RecordError, RecordTooLarge
from spark_producer.kernel.arrays import BoolArray, Int32Array, Int64Array


class RowContext(NamedTuple):
    """The data of a row for its message: the wrong value, its number in the task, its topic, and both of these as a text."""

    found: int
    row: int
    topic: str | None
    location: str


ErrorMessage = Callable[[RowContext], str]
"""A function that returns the error message of a row."""


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
        """Return the row's error as an exception."""
        return RecordTooLarge(self.message) if self.kind is RowErrorKind.SIZE else RecordError(self.message)


class RowErrors(NamedTuple):
    """The errors that one check has found.

    `rows` holds positions in the columns, beginning with the one that an exception names. `found` holds the wrong value of each
    row, such as its partition, or its bytes if it is too large.
    """

    kind: RowErrorKind
    message: ErrorMessage
    rows: Int64Array
    found: Int64Array | Int32Array


class RowContexts(Protocol):
    """The data of rows that error messages need, by position in the columns."""

    def topic_of(self, row: int) -> str | None:
        """Return the topic of a row, or None if it has none."""

    def row_number(self, row: int) -> int:
        """Return the number of a row in the task."""

    def location(self, row: int) -> str:
        """Return the topic and the number of a row as a text."""


class RejectedRows:
    """Rows of some columns that cannot be written. Iteration yields a `Rejected` for each.

    Every row occurs once, with its first error; errors are in the order of the checks.
    """

    def __init__(self, found: Sequence[tuple[RowContexts, RowErrors]] = ()) -> None:
        """Take errors, each with its columns; use `among` to make an instance."""
        self._found = tuple(found)

    @classmethod
    def among(cls, contexts: RowContexts, errors: Sequence[RowErrors]) -> RejectedRows:
        """Return the rows of some columns that have these errors."""
        return cls([(contexts, error) for error in _first_error_of_each_row(errors)])

    def __len__(self) -> int:
        return sum(len(error.rows) for _, error in self._found)

    def __iter__(self) -> Iterator[Rejected]:
        for contexts, error in self._found:
            for row, found in zip(error.rows.tolist(), error.found.tolist(), strict=True):
                context = RowContext(found, contexts.row_number(row), contexts.topic_of(row), contexts.location(row))
                size = found if error.kind is RowErrorKind.SIZE else None
                yield Rejected(context.row, error.kind, context.topic, size, error.message(context))

    def __add__(self, others: RejectedRows) -> RejectedRows:
        """Return these rows and the others, which must be other rows of the same task."""
        return RejectedRows((*self._found, *others._found))

    def by_kind(self) -> Iterator[tuple[RejectedRows, RowErrorKind]]:
        """Yield the rows of each error, and its kind."""
        for contexts, error in self._found:
            yield RejectedRows([(contexts, error)]), error.kind

    @property
    def positions(self) -> Int64Array:
        """The positions of the rows in the columns that were checked, in the order of iteration."""
        return np.concatenate([np.zeros(0, dtype=np.int64), *(error.rows for _, error in self._found)])

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
    """Return the rows for which `bad` is true: `first`, and then the others, ascending. `found` has an entry for every row."""
    rows = np.flatnonzero(bad)
    if first is not None:
        rows = np.concatenate(([first], rows[rows != first]))
    return RowErrors(kind, message, rows, np.zeros(len(rows), dtype=np.int64) if found is None else found[rows])


def _first_error_of_each_row(errors: Sequence[RowErrors]) -> Sequence[RowErrors]:
    """Return the errors, each without the rows of earlier errors. The cost is linear in the number of rows."""
    kept: list[RowErrors] = []
    seen = np.zeros(1 + max((int(error.rows.max(initial=-1)) for error in errors), default=-1), dtype=np.bool_)
    for error in errors:
        new = ~seen[error.rows]
        seen[error.rows] = True
        if new.any():
            kept.append(error._replace(rows=error.rows[new], found=error.found[new]))
    return kept
