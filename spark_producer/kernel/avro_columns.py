"""Converts Arrow columns to the input of the Avro encoders: numbers, bytes and offsets in numpy, and the marks of unions."""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_producer.kernel import avro_scalars as scalars
from spark_producer.kernel.arrays import ArrowArray, BoolArray, ByteArray, Int64Array, is_valid, view_of
from spark_producer.kernel.avro_nodes import (
    NO_MARK,
    ArrowLayout,
    AvroColumn,
    AvroNode,
    NodeKind,
    SchemaMismatch,
    empty_column,
)

__all__ = [
    "NO_MARK",
    "ArrowLayout",
    "AvroColumn",
    "AvroNode",
    "NodeKind",
    "SchemaMismatchRows",
    "avro_column",
    "mismatched_rows",
]


def avro_column(node: AvroNode, array: ArrowArray, *, top: bool = True) -> AvroColumn:
    """Return the values of `array`, whose type is the one that `node` was planned for.

    The null of a `top` column is not a value of the schema: its row has no bytes.
    """
    if node.shape is ArrowLayout.CONSTANT:
        return _constants(node, len(array))
    if isinstance(array, pa.DictionaryArray):
        array = array.dictionary_decode()
    valid = is_valid(array) if array.null_count else None
    column = empty_column(NodeKind.VARINT, len(array), node.path, valid, node)
    if valid is not None and node.null_mark == NO_MARK and not top:
        column = column._replace(mismatches=(SchemaMismatch(~valid, "it is null, and its schema does not take null"),))
    return _READERS[node.shape](column, node, array)


def _constants(node: AvroNode, length: int) -> AvroColumn:
    """Return `length` equal values, which do not depend on the Arrow column."""
    data: ByteArray = np.frombuffer(node.constant, dtype=np.uint8)
    column = empty_column(NodeKind.CONSTANT, length, node.path)._replace(data=data, width=len(data))
    return column.refusing(np.ones(length, dtype=np.bool_), node.reason) if node.reason else column


def _records(column: AvroColumn, node: AvroNode, array: ArrowArray) -> AvroColumn:
    struct = cast("pa.StructArray", array)
    children = []
    for child, name in zip(node.children, node.names, strict=True):
        if name is None:
            children.append(_constants(child, len(array)))
        else:
            field = struct.field(struct.type.get_field_index(name))  # without the struct's own nulls
            children.append(avro_column(child, field, top=False))
    return column._replace(kind=NodeKind.RECORD, children=tuple(children))


def _arrays(column: AvroColumn, node: AvroNode, array: ArrowArray) -> AvroColumn:
    offsets, first, last = list_offsets(array)
    items = cast("Any", array).values.slice(first, last - first)
    child = avro_column(node.children[0], items, top=False)
    return column._replace(
        kind=NodeKind.ARRAY, offsets=scalars.checked(offsets - first, child.length), children=(child,)
    )


def _maps(column: AvroColumn, node: AvroNode, array: ArrowArray) -> AvroColumn:
    offsets, first, last = list_offsets(array)
    entries = cast("pa.MapArray[Any, Any]", array)
    sides = [side.slice(first, last - first) for side in (entries.keys, entries.items)]
    pair = tuple(avro_column(child, side, top=False) for child, side in zip(node.children, sides, strict=True))
    pairs = empty_column(NodeKind.RECORD, last - first, node.path)._replace(children=pair)
    return column._replace(
        kind=NodeKind.ARRAY, offsets=scalars.checked(offsets - first, pairs.length), children=(pairs,)
    )


def list_offsets(array: ArrowArray) -> tuple[Int64Array, int, int]:
    """Return the offsets of a list or map, and where its items begin and end."""
    data = array.buffers()[1]
    if data is None or not len(array):
        return np.zeros(len(array) + 1, dtype=np.int64), 0, 0
    width: np.dtype[Any] = np.dtype(np.int64 if pa.types.is_large_list(array.type) else np.int32)
    found = view_of(data, width, len(array) + 1, array.offset * width.itemsize).astype(np.int64)
    return found, int(found[0]), int(found[-1])


def _unions(column: AvroColumn, node: AvroNode, array: ArrowArray) -> AvroColumn:
    """Assign to each value the first branch that can encode all of it. A branch is read only if values remain for it."""
    remaining = np.ones(len(array), dtype=np.bool_) if column.valid is None else column.valid
    chosen = np.zeros(len(array), dtype=np.int64)
    children: list[AvroColumn] = []
    for index, branch in enumerate(node.children):
        children.append(avro_column(branch, array))
        refused = _refused(children[-1])
        chosen[remaining if refused is None else remaining & ~refused] = index
        remaining = np.zeros(len(array), dtype=np.bool_) if refused is None else remaining & refused
        if not remaining.any():
            break
    return column.refusing(remaining, node.reason)._replace(kind=NodeKind.UNION, longs=chosen, children=tuple(children))


def _refused(column: AvroColumn) -> BoolArray | None:
    """Return which values cannot be encoded, also because of their children; None if all can."""
    found = mismatched_rows(column)
    if not found:
        return None
    refused = np.zeros(column.length, dtype=np.bool_)
    for each in found:
        refused[each.rows] = True
    return refused


_READERS = {
    ArrowLayout.LONG: scalars.read_longs, ArrowLayout.BOOLEAN: scalars.read_booleans, ArrowLayout.FLOAT: scalars.read_floats,
    ArrowLayout.DOUBLE: scalars.read_floats, ArrowLayout.BYTES: scalars.read_bytes, ArrowLayout.DECIMAL: scalars.read_decimals,
    ArrowLayout.ENUM: scalars.read_enums, ArrowLayout.RECORD: _records, ArrowLayout.ARRAY: _arrays, ArrowLayout.MAP: _maps,
    ArrowLayout.TEXT: scalars.read_texts, ArrowLayout.RAW: scalars.read_raw, ArrowLayout.UUID_TEXT: scalars.read_uuids,
    ArrowLayout.UUID_BYTES: scalars.read_uuids, ArrowLayout.BIG_DECIMAL: scalars.read_decimals,
    ArrowLayout.DURATION: scalars.read_durations,
    ArrowLayout.UNION: _unions,
}  # fmt: skip


class SchemaMismatchRows(NamedTuple):
    """Rows that cannot be encoded because of one field: ascending positions in the column, each once."""

    path: str
    reason: str
    rows: npt.NDArray[np.int64]


def mismatched_rows(column: AvroColumn) -> list[SchemaMismatchRows]:
    """Return the rows of a top column that cannot be encoded, by field. Values below a null are ignored."""
    return _mismatches_below(column, column.valid, None) if _has_mismatches(column) else []


def _has_mismatches(column: AvroColumn) -> bool:
    return bool(column.mismatches) or any(_has_mismatches(child) for child in _judged(column))


def _judged(column: AvroColumn) -> tuple[AvroColumn, ...]:
    """Return the children whose mismatches count for the column; a union has chosen among its children already."""
    return () if column.kind is NodeKind.UNION else column.children


def _mismatches_below(
    column: AvroColumn, live: BoolArray | None, owners: Int64Array | None
) -> list[SchemaMismatchRows]:
    """Return the mismatched rows of a column and its children.

    `live` says which values their rows have (None: all), and `owners` has the row of each value (None: its own position).
    """
    found = []
    for mismatched, reason in column.mismatches:
        positions = np.flatnonzero(mismatched if live is None else mismatched & live)
        if len(positions):
            found.append(
                SchemaMismatchRows(column.path, reason, np.unique(positions if owners is None else owners[positions]))
            )
    inner = _both(live, column.valid)
    if column.kind is NodeKind.ARRAY:
        counts = np.diff(column.offsets)
        owners = np.repeat(np.arange(column.length) if owners is None else owners, counts)
        inner = None if inner is None else np.repeat(inner, counts)
    return found + [each for child in _judged(column) for each in _mismatches_below(child, inner, owners)]


def _both(first: BoolArray | None, second: BoolArray | None) -> BoolArray | None:
    if first is None or second is None:
        return second if first is None else first
    return first & second
