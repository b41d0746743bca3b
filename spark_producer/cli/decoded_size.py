"""Cuts the batches of files by the decoded size of their rows, which may be much larger than the file.

A dictionary stores a string once for many rows, a run-end encoded column once for two billion, and nulls take no bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from spark_producer.kernel.arrays import ArrowArray

MAX_ROWS = 20_000
"""The maximum rows of a batch."""

MAX_BYTES = 16 << 20
"""The maximum decoded bytes of a batch that has more than one row."""

MAX_ROW_BYTES = 64 << 20
"""The maximum decoded bytes of a row. A larger row cannot be a record, and would be in memory several times."""

MAX_CELLS = 1 << 19
"""The maximum cells of a batch: each cell that is converted is a Python object for a moment, however short its text."""

_NUMBER = 24
"""The approximate length of a number or a time as text."""

_NAME = 6
"""The length of the quotes, the colon, the comma and the spaces around a name in JSON."""

Sizes = float | npt.NDArray[np.float64]
"""The decoded bytes of each row; a single number if all rows have the same."""


def bounded(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the rows in batches of at most `MAX_ROWS` rows, `MAX_BYTES` bytes and `MAX_CELLS` cells.

    Raises:
        pyarrow.ArrowInvalid: a row is larger than `MAX_ROW_BYTES`; the message has its number, from 1 on.
    """
    rows = 0
    for batch in batches:
        max_rows = min(MAX_ROWS, max(1, MAX_CELLS // max(1, batch.num_columns)))
        for at in range(0, batch.num_rows, max_rows):
            yield from _cut(batch.slice(at, max_rows), rows + at)
        rows += batch.num_rows


def _cut(window: pa.RecordBatch, rows: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a window, which are at most `MAX_ROWS`, in pieces. `rows` is the number of rows before it."""
    sizes = np.broadcast_to(np.asarray(batch_row_bytes(window), np.float64), window.num_rows)
    too_large = np.flatnonzero(sizes > MAX_ROW_BYTES)
    ends = np.cumsum(sizes)
    at = 0
    while at < window.num_rows:
        if len(too_large) and too_large[0] == at:
            raise pa.ArrowInvalid(
                f"row {rows + at + 1} has {int(sizes[at]) >> 20:,} MiB when it is decoded, more than {MAX_ROW_BYTES >> 20} MiB. "
                "Leave it out or split it"
            )
        before = ends[at - 1] if at else 0.0
        end = max(at + 1, int(np.searchsorted(ends, before + MAX_BYTES, side="right")))
        end = min(end, int(too_large[0])) if len(too_large) else end
        yield window.slice(at, end - at)
        at = end


def batch_row_bytes(batch: pa.RecordBatch) -> Sizes:
    """Return the approximate bytes of each row as a JSON object; a dictionary's value counts for each row that has it."""
    total: Sizes = 2.0
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        total = total + (len(name) + _NAME) + row_bytes(column)
    return total


def row_bytes(array: ArrowArray) -> Sizes:
    """Return the approximate bytes of each value of an array, decoded and as text."""
    kind = array.type
    for is_kind, size in _BY_KIND:
        if is_kind(kind):
            return size(array)
    return float(_NUMBER)


def _of_bytes(array: Any) -> Sizes:
    lengths: Sizes = _numbers(pc.binary_length(array)) + 2
    return lengths


def _of_views(array: Any) -> Sizes:
    """Return the lengths of string views: the first four of the sixteen bytes of each."""
    views = np.frombuffer(array.buffers()[1], np.int32).reshape(-1, 4)[array.offset : array.offset + len(array), 0]
    lengths: Sizes = _numbers(array.is_valid().cast(pa.int8())) * views + 2
    return lengths


def _of_dictionary(array: Any) -> Sizes:
    return _taken(row_bytes(array.dictionary), _numbers(array.indices).astype(np.intp))


def _taken(sizes: Sizes, indices: npt.NDArray[np.intp]) -> Sizes:
    if isinstance(sizes, float):
        return sizes
    return sizes[indices] if len(sizes) else 0.0


def _of_runs(array: Any) -> Sizes:
    """Return the size of the largest run, for all rows: there may be two billion of them."""
    sizes = row_bytes(array.values)
    return sizes if isinstance(sizes, float) else float(sizes.max(initial=0.0))


def _of_list(array: Any) -> Sizes:
    ends = _numbers(array.offsets)
    first, last = (int(ends[0]), int(ends[-1])) if len(ends) else (0, 0)
    return _between(row_bytes(array.values.slice(first, last - first)), ends[:-1] - first, ends[1:] - first)


def _of_list_view(array: Any) -> Sizes:
    starts = _numbers(array.offsets)
    return _between(row_bytes(array.values), starts, starts + _numbers(array.sizes))


def _of_fixed_list(array: Any) -> Sizes:
    size = array.type.list_size
    values = row_bytes(array.values.slice(array.offset * size, len(array) * size))
    if isinstance(values, float):
        return cast(float, size * (values + 2) + 2)
    return cast(Sizes, values.reshape(len(array), size).sum(axis=1) + 2 * size + 2)


def _between(values: Sizes, starts: npt.NDArray[np.float64], ends: npt.NDArray[np.float64]) -> Sizes:
    """Return the sizes of lists whose elements are those from `starts` to `ends`, with a comma and a space for each."""
    counts = ends - starts
    if isinstance(values, float):
        return counts * (values + 2) + 2
    before = np.concatenate(([0.0], np.cumsum(values)))
    return cast(Sizes, before[ends.astype(np.intp)] - before[starts.astype(np.intp)] + 2 * counts + 2)


def _of_struct(array: Any) -> Sizes:
    total: Sizes = 2.0
    for number, field in enumerate(array.type):
        total = total + (len(field.name) + _NAME) + row_bytes(array.field(number))
    return total


def _of_union(array: Any) -> Sizes:
    """Return the size of the branch that each row has; for a sparse union, that of all branches together."""
    total: Sizes = 0.0
    fields = [row_bytes(array.field(number)) for number in range(array.type.num_fields)]
    if array.type.mode == "sparse":
        for field in fields:
            total = total + field
        return total
    codes, offsets = _numbers(array.type_codes), _numbers(array.offsets).astype(np.intp)
    for code, field in zip(array.type.type_codes, fields, strict=True):
        chosen = codes == code
        total = total + chosen * _taken(field, np.where(chosen, offsets, 0))
    return total


def _numbers(array: Any) -> npt.NDArray[np.float64]:
    """Return integers as doubles, which do not overflow when they are multiplied; 0 for null."""
    filled = array.fill_null(0) if array.null_count else array
    return cast(npt.NDArray[np.float64], np.from_dlpack(filled).astype(np.float64))  # `to_numpy` would load pandas


_BY_KIND: tuple[tuple[Callable[[pa.DataType], bool], Callable[[Any], Sizes]], ...] = (
    (lambda kind: isinstance(kind, pa.BaseExtensionType), lambda array: row_bytes(array.storage)),
    (pa.types.is_dictionary, _of_dictionary),
    (pa.types.is_run_end_encoded, _of_runs),
    (
        lambda kind: (
            pa.types.is_string(kind)
            or pa.types.is_large_string(kind)
            or pa.types.is_binary(kind)
            or pa.types.is_large_binary(kind)
        ),
        _of_bytes,
    ),
    (lambda kind: pa.types.is_string_view(kind) or pa.types.is_binary_view(kind), _of_views),
    (pa.types.is_fixed_size_binary, lambda array: 2.0 * array.type.byte_width + 2),
    (lambda kind: pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_map(kind), _of_list),
    (lambda kind: pa.types.is_list_view(kind) or pa.types.is_large_list_view(kind), _of_list_view),
    (pa.types.is_fixed_size_list, _of_fixed_list),
    (pa.types.is_struct, _of_struct),
    (pa.types.is_union, _of_union),
)
