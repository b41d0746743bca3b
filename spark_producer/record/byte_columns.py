"""Columns of strings or bytes, taken as bytes: the Arrow types that they may have, and their conversion."""

from __future__ import annotations

import pyarrow as pa

from spark_producer.errors import SchemaError
from spark_producer.kernel import BinaryColumn
from spark_producer.kernel.arrays import ArrowArray


def binary_column(name: str, array: ArrowArray) -> BinaryColumn:
    """Return a string or binary column, small or large, as bytes without a copy; a dictionary is decoded, which copies.

    `BatchPieces` keeps that copy small, because it cuts batches before they come here.

    Raises:
        SchemaError: The column has any other type.
    """
    if isinstance(array, pa.BinaryArray | pa.LargeBinaryArray):  # as Spark sends them
        return BinaryColumn(array)
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


def is_bytes(kind: pa.DataType) -> bool:
    """Return whether an Arrow type is string or binary, small or large."""
    types = pa.types
    return bool(
        types.is_string(kind) or types.is_binary(kind) or types.is_large_string(kind) or types.is_large_binary(kind)
    )
