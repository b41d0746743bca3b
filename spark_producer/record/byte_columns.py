"""Columns of strings or bytes, taken as bytes: the Arrow types that they may have, and their conversion."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from spark_producer.errors import SchemaError
from spark_producer.kernel import BinaryColumn
from spark_producer.kernel.arrays import ArrowArray, Int64Array, from_numbers


def binary_column(name: str, array: ArrowArray) -> BinaryColumn:
    """Return a string or binary column, small or large, as bytes without a copy. A dictionary is decoded and views are joined,
    which copies.

    `BatchPieces` keeps that copy small, because it cuts batches before they come here.

    Raises:
        SchemaError: The column has any other type.
    """
    if isinstance(array, pa.BinaryArray | pa.LargeBinaryArray):  # as Spark sends them
        return BinaryColumn(array)
    if is_view(array.type):
        array = array.cast(pa.large_binary())
    kind = value_type(array)
    if pa.types.is_null(kind):
        return BinaryColumn(pa.nulls(len(array), pa.binary()))
    if not is_bytes(kind):
        raise SchemaError(f"column {name!r} must be string or binary, not {kind}. Cast it")
    if isinstance(array, pa.DictionaryArray):
        array = array.dictionary_decode()
    large = pa.types.is_large_string(kind) or pa.types.is_large_binary(kind)
    return BinaryColumn(array.view(pa.large_binary() if large else pa.binary()))


def value_type(array: ArrowArray) -> pa.DataType:
    """Return the type of the values of an Arrow array: for a dictionary that of its entries."""
    kind = array.type
    return kind.value_type if isinstance(kind, pa.DictionaryType) else kind


def is_view(kind: pa.DataType) -> bool:
    """Return whether an Arrow type is a view of strings or binary: 16 bytes each, which may refer to the same bytes as others."""
    return bool(pa.types.is_string_view(kind) or pa.types.is_binary_view(kind))


def has_views(kind: pa.DataType) -> bool:
    """Return whether an Arrow type is a view, or that of headers whose keys or values are views."""
    return is_view(kind) or any(has_views(kind.field(index).type) for index in range(kind.num_fields))


def take_column(column: ArrowArray, rows: Int64Array) -> ArrowArray:
    """Return some rows of a column. Arrow has no function for views: their 16 bytes are taken, and their memory is shared."""
    places, kind = from_numbers(rows), column.type
    if not is_view(kind):
        return (column.cast(_without_views(kind)) if has_views(kind) else column).take(places)
    valid, views, *data = column.buffers()
    plain = pa.Array.from_buffers(pa.binary(16), len(column), [valid, views], offset=column.offset)
    return pa.Array.from_buffers(kind, len(rows), [*plain.take(places).buffers(), *data])


def _without_views(kind: Any) -> pa.DataType:
    """Return the type of headers without views, which are lists or maps of two fields."""
    if pa.types.is_map(kind):
        return pa.map_(pa.large_string(), pa.large_binary())
    return pa.list_(pa.struct([pa.field(field.name, pa.large_binary()) for field in kind.value_type]))


def is_bytes(kind: pa.DataType) -> bool:
    """Return whether an Arrow type is string or binary, small or large."""
    types = pa.types
    return bool(
        types.is_string(kind) or types.is_binary(kind) or types.is_large_string(kind) or types.is_large_binary(kind)
    )
