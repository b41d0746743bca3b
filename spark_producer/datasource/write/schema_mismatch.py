"""Rows that don't match their schema: the error message for each, and their values as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from spark_producer.kernel.arrays import ArrowArray, Int64Array, IntegerArray, from_numbers
from spark_producer.kernel.avro_columns import SchemaMismatchRows
from spark_producer.record.columns import row_locations_only
from spark_producer.record.rejected import ErrorMessage, RejectedRows, RowContext, RowErrorKind, RowErrors


class MismatchedColumn(NamedTuple):
    """A column before its encoding, its rows that do not fit the schema, by field, and the name of the format."""

    name: str
    column: ArrowArray
    rows: Sequence[SchemaMismatchRows]
    form: str

    @property
    def positions(self) -> Int64Array:
        """The positions of these rows, ascending, each once."""
        return np.unique(np.concatenate([each.rows for each in self.rows]))

    def without_them(self) -> ArrowArray:
        """Return the column with null in place of these rows."""
        count = len(self.column)
        bad = np.zeros(count, dtype=np.bool_)
        bad[self.positions] = True
        positions: IntegerArray = pa.array(np.arange(count), type=pa.int64(), mask=bad)
        return self.column.take(positions)


class MismatchedPiece:
    """The rows of a piece of a task that do not fit the schemas of their columns."""

    def __init__(self, encoded: pa.RecordBatch, columns: Sequence[MismatchedColumn]) -> None:
        """`encoded` is the piece with encoded columns."""
        self._encoded = encoded
        self._columns = {each.name: each for each in columns}
        self._refused = {each.name: frozenset(each.positions.tolist()) for each in columns}

    def rejected(self, first_row: int, topic: str | None = None) -> RejectedRows:
        """Return these rows, numbered from `first_row` on, each once, in the order of the piece."""
        found = [(each, column.form) for column in self._columns.values() for each in column.rows]
        found.sort(key=lambda each: int(each[0].rows[0]))
        faults = [
            RowErrors(RowErrorKind.SCHEMA, _message_of(each, form), each.rows, np.zeros(len(each.rows), np.int64))
            for each, form in found
        ]
        return RejectedRows.among(row_locations_only(self._encoded, topic, first_row), faults)

    def fit(self) -> Int64Array:
        """Return the positions of all other rows, ascending."""
        bad = np.concatenate([column.positions for column in self._columns.values()])
        return np.delete(np.arange(self._encoded.num_rows), np.unique(bad))

    def text_of(self, name: str, position: int) -> bytes | None:
        """Return a value as JSON in UTF-8, or None if it fits its schema, and so is encoded."""
        if position not in self._refused.get(name, ()):
            return None
        return _json(self._columns[name].column.take(from_numbers(np.array([position])))).encode()


def _message_of(unfit: SchemaMismatchRows, form: str) -> ErrorMessage:
    """Return the error message of rows that do not fit for one reason."""

    def message(at: RowContext) -> str:
        return (
            f"row {at.row} of the task does not fit its {form} schema: field '{unfit.path}': {unfit.reason}. "
            "Fill or drop such rows, or change the schema to accept them"
        )

    return message


def _json(column: Any) -> str:
    """Return the only value of a column as JSON, as `as_records` does; values without JSON in the form that loses least."""
    from spark_producer.record.rendering import (
        as_json,
    )  # only refused rows need it, and the kernels that it imports

    try:
        return as_json(column, keep_nulls=True)[0].as_py() or "null"
    except pa.ArrowException:  # a text that is not UTF-8, or a time of day after its end
        pass
    kind = column.type
    if pa.types.is_struct(kind):
        fields = zip(kind, column.flatten(), strict=True)
        return f"{{{','.join(f'{_json(pa.array([field.name]))}:{_json(inner)}' for field, inner in fields)}}}"
    if pa.types.is_map(kind):
        first, last = column.offsets[0].as_py(), column.offsets[1].as_py()
        pairs = ((column.keys.slice(at, 1), column.items.slice(at, 1)) for at in range(first, last))
        return f"{{{','.join(f'{_json(key)}:{_json(inner)}' for key, inner in pairs)}}}"
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        items = column.flatten()
        return f"[{','.join(_json(items.slice(at, 1)) for at in range(len(items)))}]"
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return _json(pa.array([column[0].as_buffer().to_pybytes().decode("utf-8", "replace")]))
    return str(column[0].value)
