"""The cells of a column as timestamps and as partitions, with errors that name the row of a wrong cell."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_producer.kernel.arrays import ArrowArray

Convert = Callable[[ArrowArray], ArrowArray]

_DIGITS = re.compile(r"^-?\d+$", re.ASCII)

_MILLISECONDS, _WITH_ZONE, _WITHOUT = "is a number of milliseconds", "has a zone", "has no zone"
"""The kinds of times, as texts for messages."""


def converted(batch: pa.RecordBatch, column: str, convert: Convert, rows: int) -> ArrowArray:
    """Return a column after `convert`. `rows` is the number of rows before the batch.

    Raises:
        pyarrow.ArrowException: the column has a wrong type; or a cell cannot be converted, and the message has its row; or the
        column mixes kinds of times.
    """
    cells = _decoded(batch.column(column))
    try:
        return convert(cells)
    except pa.ArrowInvalid:
        for at in range(len(cells)):
            try:
                convert(cells.slice(at, 1))
            except pa.ArrowInvalid as error:
                reason = str(error).partition(": expected")[0]  # a zone, or none: both are right
                raise pa.ArrowInvalid(f"row {rows + at + 1}, column {column!r}: {reason}") from error
        raise pa.ArrowInvalid(_two_kinds(cells, column, rows)) from None
    except pa.ArrowException as error:
        raise pa.ArrowInvalid(f"column {column!r}: {error}") from error


def _two_kinds(cells: ArrowArray, column: str, rows: int) -> str:
    """Return the message about the first two times of a column that are of different kinds."""
    first: tuple[int, str] | None = None
    for at in range(len(cells)):
        kind = _kind(cells.slice(at, 1))
        if kind is None:
            continue
        if first is None:
            first = at, kind
        elif kind != first[1]:
            one, other = (repr(cells[number].as_py()) for number in (at, first[0]))
            return (
                f"row {rows + at + 1}, column {column!r}: {one} {kind}, and row {rows + first[0] + 1} ({other}) {first[1]}; "
                "use one kind of time in a column"
            )
    return f"rows {rows + 1} to {rows + len(cells)}, column {column!r}: the times are of different kinds"


def _kind(cell: ArrowArray) -> str | None:
    """Return the kind of a cell's time; None for null."""
    if cell.null_count:
        return None
    cell = _trimmed(cell)
    if _are_digits(cell):
        return _MILLISECONDS
    try:
        _microseconds(cell).cast(pa.timestamp("us"))
    except pa.ArrowInvalid:
        return _WITH_ZONE
    return _WITHOUT


def moments(column: ArrowArray) -> ArrowArray:
    """Return times as milliseconds since 1970; finer ones are rounded down, before 1970 too.

    Integers and strings of digits are milliseconds. Other strings are ISO 8601 with any number of fractional digits; a time
    without a zone is UTC, as in the output of `tail`.
    """
    column = _trimmed(column)
    if pa.types.is_integer(column.type) or _are_digits(column):
        return column.cast(pa.int64())
    if not pa.types.is_timestamp(column.type):
        try:
            column = _microseconds(column).cast(pa.timestamp("us", "UTC"))  # strings with a zone, and dates
        except pa.ArrowInvalid:
            column = _microseconds(column).cast(pa.timestamp("us"))
    unit = cast(pa.TimestampType, column.type).unit
    if unit in ("s", "ms"):
        return column.cast(pa.timestamp("ms", cast(pa.TimestampType, column.type).tz)).cast(pa.int64())
    return _floor_divided(column.cast(pa.int64()), 1_000 if unit == "us" else 1_000_000)


def _floor_divided(column: ArrowArray, by: int) -> ArrowArray:
    """Return integers divided and rounded down. Arrow's own division rounds towards 0, which is up before 1970."""
    filled = cast(Any, column).fill_null(0)
    floors = np.floor_divide(np.from_dlpack(filled), by)
    return pa.array(floors, pa.int64(), mask=np.from_dlpack(cast(Any, column.is_null().cast(pa.int8()))).view(np.bool_))


def _microseconds(column: ArrowArray) -> ArrowArray:
    """Return strings with at most six fractional digits of a second, the most that Arrow parses; other columns unchanged."""
    if not pa.types.is_string(column.type):
        return column
    finer = pc.replace_substring_regex(cast(pa.StringArray, column), r"([.]\d{6})\d+", r"\1")
    return cast(ArrowArray, finer)


def partitions(column: ArrowArray) -> ArrowArray:
    """Return integers and strings of digits as partitions."""
    column = _trimmed(column)
    if pa.types.is_string(column.type) and not _are_digits(column):  # Arrow parses 0x10 as 16
        texts: list[str | None] = cast(Any, column).to_pylist()
        found = next((text for text in texts if text is not None and not _DIGITS.fullmatch(text)), None)
        if found is not None:
            raise pa.ArrowInvalid(f"{found!r} is not the number of a partition")
    return column.cast(pa.int32())


def _decoded(column: ArrowArray) -> ArrowArray:
    """Return a column without dictionary or run-end encoding, its strings of the type `string`."""
    if isinstance(column, pa.DictionaryArray):
        column = column.dictionary_decode()
    if isinstance(column, pa.RunEndEncodedArray):
        column = cast(ArrowArray, cast(Any, pc).run_end_decode(column))
    kind = column.type
    is_text = pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    return column.cast(pa.string()) if is_text else column


def _are_digits(column: ArrowArray) -> bool:
    if not pa.types.is_string(column.type):
        return False
    return bool(pc.all(pc.match_substring_regex(cast(pa.StringArray, column), _DIGITS.pattern)).as_py())


def _trimmed(column: ArrowArray) -> ArrowArray:
    """Return strings without the spaces around them, as in the CSV `1, 2`; other columns unchanged."""
    if not pa.types.is_string(column.type):
        return column
    return cast(ArrowArray, pc.utf8_trim_whitespace(cast(pa.StringArray, column)))
