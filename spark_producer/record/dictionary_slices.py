"""Converts a RecordBatch to checked columns, in pieces that stay small when dictionaries and views are decoded.

A dictionary holds a value once for any number of rows, and `nbytes` counts it once; decoding copies it for each row. So may the
values of a view. The size of a decoded row is computed from lengths alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import numpy as np
import pyarrow as pa

from spark_producer.kernel.arrays import ArrowArray, Int64Array, is_valid, numbers, view_of
from spark_producer.record.byte_columns import is_bytes, is_view
from spark_producer.record.columns import CheckedColumns, ReadColumns, read_columns, row_locations_only, take_rows
from spark_producer.record.header_column import entry_field, header_entries
from spark_producer.record.rejected import NONE_REJECTED, RejectedRows, RowContext, RowErrorKind, errors_at

_LIMITS = "kafka.max.request.size and kafka.buffer.memory of the producer, 2 GiB of an archive"


class BatchPieces:
    """The rows of a batch as `read_columns` returns them; each piece is read when the iteration reaches it.

    They are numbered from `first_row` on; it may also be an array with the number of each row.

    A piece is a slice that takes at most `limit` bytes to decode, or one row of at most `largest` bytes. A batch without
    dictionaries is one piece, whatever its size; an empty one has none. Iterating again reads the pieces again.

    `rejected` holds the rows that take more than `largest` bytes; they are in no piece. The pieces report all other errors.

    Raises (iteration):
        SchemaError: As in `read_columns`.
    """

    def __init__(
        self,
        batch: pa.RecordBatch,
        limit: int,
        largest: int,
        topic: str | None,
        now_ms: int,
        first_row: int | Int64Array = 0,
        with_headers: bool = True,
    ) -> None:
        self._batch, self._topic, self._now_ms = batch, topic, now_ms
        self._first_row, self._with_headers = first_row, with_headers
        self._valid: Int64Array | None = None
        self.rejected = NONE_REJECTED
        sizes = _decoded_sizes(batch, with_headers)
        if sizes is not None and int(sizes.max(initial=0)) > largest:
            self.rejected = self._too_large(sizes, largest)
            self._valid = np.flatnonzero(sizes <= largest)
            sizes = sizes[self._valid]
        self._bounds = _cut(batch.num_rows, sizes, limit)

    def __len__(self) -> int:
        return len(self._bounds) - 1

    def __iter__(self) -> Iterator[ReadColumns]:
        for first, stop in zip(self._bounds, self._bounds[1:], strict=False):
            yield self._read(first, stop)

    def or_raise(self) -> Iterator[CheckedColumns]:
        """Return the columns of all rows, piece by piece, for callers that need either all rows or none.

        Raises:
            RecordError: A row is rejected: before the first piece if it is too large, else with its piece.
        """
        self.rejected.raise_first()
        return (piece.or_raise() for piece in self)

    def _read(self, first: int, stop: int) -> ReadColumns:
        if self._valid is None:
            whole = stop - first == self._batch.num_rows
            batch = self._batch if whole else self._batch.slice(first, stop - first)
            numbers = self._numbered(first, stop)
        else:
            rows = self._valid[first:stop]
            batch = take_rows(self._batch, rows)
            numbers = self._first_row[rows] if isinstance(self._first_row, np.ndarray) else self._first_row + rows
        return read_columns(
            batch, topic=self._topic, now_ms=self._now_ms, with_headers=self._with_headers, first_row=numbers
        )

    def _numbered(self, first: int, stop: int) -> int | Int64Array:
        """Return the numbers of the rows from one position to another, or the first of them."""
        return self._first_row[first:stop] if isinstance(self._first_row, np.ndarray) else self._first_row + first

    def _too_large(self, sizes: Int64Array, largest: int) -> RejectedRows:
        def message(at: RowContext) -> str:
            return (
                f"row {at.row} of the task takes {at.found} bytes with its dictionaries decoded, more than the {largest} that "
                f"a record may have here ({_LIMITS}). Make the row smaller, or raise them"
            )

        rows = row_locations_only(self._batch, self._topic, self._first_row)
        return RejectedRows.among(rows, [errors_at(sizes > largest, RowErrorKind.SIZE, message, sizes)])


def _cut(count: int, sizes: Int64Array | None, limit: int) -> list[int]:
    """Return where each piece begins, and where the last one ends; without sizes all rows are one piece."""
    if sizes is None:
        return [0, count] if count else [0]
    ends, bounds = np.cumsum(sizes), [0]
    while bounds[-1] < len(sizes):
        before = int(ends[bounds[-1] - 1]) if bounds[-1] else 0
        bounds.append(max(bounds[-1] + 1, int(np.searchsorted(ends, before + limit, side="right"))))
    return bounds


def _decoded_sizes(batch: pa.RecordBatch, with_headers: bool) -> Int64Array | None:
    """Return the decoded bytes of each row's key, value and headers; None where nothing has to be decoded."""
    found: Int64Array | None = None
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        sizes = None
        if name in ("key", "value"):
            sizes = _lengths(column)
        elif name == "headers" and with_headers:
            sizes = _header_lengths(column)
        if sizes is not None:
            found = sizes if found is None else found + sizes
    return found


def _is_encoded(kind: pa.DataType) -> bool:
    return is_view(kind) or bool(pa.types.is_dictionary(kind) and is_bytes(kind.value_type))


def _lengths(column: ArrowArray) -> Int64Array | None:
    """Return the bytes of each value of a dictionary or view of strings or bytes; None for other columns."""
    if is_view(column.type):
        return _view_lengths(column)
    if not (isinstance(column, pa.DictionaryArray) and _is_encoded(column.type)):
        return None
    import pyarrow.compute as pc  # 35 ms and 10 MiB that no other columns need (`python -m benchmarks.imports`)

    lengths = pc.binary_length(cast("pa.BinaryArray", column.dictionary)).take(column.indices)
    found: Int64Array = numbers(lengths, nulls=0).astype(np.int64, copy=False)
    return found


def _view_lengths(column: ArrowArray) -> Int64Array:
    """Return the bytes of each value of a view, whose 16 bytes begin with its length (Arrow, Binary View Layout)."""
    data = column.buffers()[1]
    if data is None or not len(column):
        return np.zeros(len(column), np.int64)
    lengths = view_of(data, np.dtype("<i4"), 4 * len(column), 16 * column.offset)[::4]
    return np.where(is_valid(column), lengths, 0).astype(np.int64)


def _header_lengths(column: ArrowArray) -> Int64Array | None:
    """Return the same as `_lengths`, for all headers of each row."""
    if not any(_is_encoded(kind) for kind in _entry_types(column.type)):
        return None
    counted = header_entries(column)
    if counted is None:
        return None
    counts, entries = counted
    ends = np.zeros(len(entries) + 1, dtype=np.int64)
    for name in ("key", "value"):
        lengths = _lengths(entry_field(entries, name))
        if lengths is not None:
            ends[1:] += np.cumsum(lengths)
    return np.diff(ends[np.concatenate(([0], np.cumsum(counts)))])


def _entry_types(kind: pa.DataType) -> list[pa.DataType]:
    """Return the types of the fields of headers, or nothing if the column does not hold headers."""
    if pa.types.is_map(kind):
        return [kind.key_type, kind.item_type]
    if (pa.types.is_list(kind) or pa.types.is_large_list(kind)) and pa.types.is_struct(kind.value_type):
        return [field.type for field in kind.value_type]
    return []
