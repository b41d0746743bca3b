"""Arrow columns as the Avro encoders take them: numbers, bytes and offsets in numpy, with the marks of unions beside them."""

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
    "unfit_rows",
]


def avro_column(node: AvroNode, array: ArrowArray, *, top: bool = True) -> AvroColumn:
    """Return the values of `array`, whose type is the one that `node` was planned for.

    The null of a `top` column is no value of the schema: its row has no bytes at all.
    """
    if node.shape is ArrowLayout.CONSTANT:
        return _constants(node, len(array))
    if isinstance(array, pa.DictionaryArray):
        array = array.dictionary_decode()
    valid = is_valid(array) if array.null_count else None
    column = empty_column(NodeKind.VARINT, len(array), node.path, valid, node)
    if valid is not None and node.null_mark == NO_MARK and not top:
        column = column._replace(unfit=(SchemaMismatch(~valid, "it is null, and its schema does not take null"),))
    return _READERS[node.shape](column, node, array)


def _constants(node: AvroNode, length: int) -> AvroColumn:
    """Return as many values as the column has, all alike, whatever is in it."""
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
    offsets, first, last = _list_offsets(array)
    items = cast("Any", array).values.slice(first, last - first)
    child = avro_column(node.children[0], items, top=False)
    return column._replace(
        kind=NodeKind.ARRAY, offsets=scalars.checked(offsets - first, child.length), children=(child,)
    )


def _maps(column: AvroColumn, node: AvroNode, array: ArrowArray) -> AvroColumn:
    offsets, first, last = _list_offsets(array)
    entries = cast("pa.MapArray[Any, Any]", array)
    sides = [side.slice(first, last - first) for side in (entries.keys, entries.items)]
    pair = tuple(avro_column(child, side, top=False) for child, side in zip(node.children, sides, strict=True))
    pairs = empty_column(NodeKind.RECORD, last - first, node.path)._replace(children=pair)
    return column._replace(
        kind=NodeKind.ARRAY, offsets=scalars.checked(offsets - first, pairs.length), children=(pairs,)
    )


def _list_offsets(array: ArrowArray) -> tuple[Int64Array, int, int]:
    data = array.buffers()[1]
    if data is None or not len(array):
        return np.zeros(len(array) + 1, dtype=np.int64), 0, 0
    width: np.dtype[Any] = np.dtype(np.int64 if pa.types.is_large_list(array.type) else np.int32)
    found = view_of(data, width, len(array) + 1, array.offset * width.itemsize).astype(np.int64)
    return found, int(found[0]), int(found[-1])


def _unions(column: AvroColumn, node: AvroNode, array: ArrowArray) -> AvroColumn:
    """Give each value the first branch that takes it and all that is in it. A branch is read only if values are left for it."""
    left = np.ones(len(array), dtype=np.bool_) if column.valid is None else column.valid
    chosen = np.zeros(len(array), dtype=np.int64)
    children: list[AvroColumn] = []
    for place, branch in enumerate(node.children):
        children.append(avro_column(branch, array))
        refused = _refused(children[-1])
        chosen[left if refused is None else left & ~refused] = place
        left = np.zeros(len(array), dtype=np.bool_) if refused is None else left & refused
        if not left.any():
            break
    return column.refusing(left, node.reason)._replace(kind=NodeKind.UNION, longs=chosen, children=tuple(children))


def _refused(column: AvroColumn) -> BoolArray | None:
    """Return which values cannot be encoded, be it for what is in them; None if all can."""
    found = unfit_rows(column)
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
    """Rows that cannot be encoded because of one field: positions in the column, ascending, each once."""

    path: str
    reason: str
    rows: npt.NDArray[np.int64]


def unfit_rows(column: AvroColumn) -> list[SchemaMismatchRows]:
    """Return the rows of a top column that cannot be encoded, by field. A value below a null counts for nothing."""
    return _unfit_below(column, column.valid, None) if _has_unfit(column) else []


def _has_unfit(column: AvroColumn) -> bool:
    return bool(column.unfit) or any(_has_unfit(child) for child in _judged(column))


def _judged(column: AvroColumn) -> tuple[AvroColumn, ...]:
    """Return the children whose unfit values are the column's; a union has made its choice among its own."""
    return () if column.kind is NodeKind.UNION else column.children


def _unfit_below(column: AvroColumn, live: BoolArray | None, owners: Int64Array | None) -> list[SchemaMismatchRows]:
    """`live`: which values their rows have, apart from their own nulls; `owners`: the row of each; None: all, and the same."""
    found = []
    for where, reason in column.unfit:
        places = np.flatnonzero(where if live is None else where & live)
        if len(places):
            found.append(
                SchemaMismatchRows(column.path, reason, np.unique(places if owners is None else owners[places]))
            )
    inner = _both(live, column.valid)
    if column.kind is NodeKind.ARRAY:
        counts = np.diff(column.offsets)
        owners = np.repeat(np.arange(column.length) if owners is None else owners, counts)
        inner = None if inner is None else np.repeat(inner, counts)
    return found + [each for child in _judged(column) for each in _unfit_below(child, inner, owners)]


def _both(first: BoolArray | None, second: BoolArray | None) -> BoolArray | None:
    if first is None or second is None:
        return second if first is None else first
    return first & second
