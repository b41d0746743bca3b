"""Reads the column of headers: the Arrow types that it may have, and the checks of its rows."""

from __future__ import annotations

from typing import cast

import numpy as np
import pyarrow as pa

from spark_producer.errors import SchemaError
from spark_producer.kernel import MAX_HEADERS, BinaryColumn, encode_headers
from spark_producer.kernel.arrays import ArrowArray, BoolArray, Int64Array, numbers
from spark_producer.record.byte_columns import binary_column
from spark_producer.record.decoded_columns import invalid_utf8
from spark_producer.record.rejected import RowContext, RowErrorKind, RowErrors, errors_at


def header_entries(column: ArrowArray) -> tuple[Int64Array, pa.StructArray] | None:
    """Return the number of headers of each row, and the structs of all headers in order; None if no row has headers.

    Raises:
        SchemaError: The column is neither an array of struct<key, value> nor a map.
    """
    kind = column.type
    if pa.types.is_null(kind):
        return None
    if pa.types.is_map(kind):  # a map has the same layout under another name; Arrow flattens lists only
        column = column.cast(pa.list_(pa.struct([("key", kind.key_type), ("value", kind.item_type)])))
    if not isinstance(column, pa.ListArray | pa.LargeListArray):
        raise SchemaError(
            f"column 'headers' must be an array of struct<key: string, value: binary>, or a map, not {kind}. Cast it"
        )
    entry = column.type.value_type
    if not pa.types.is_struct(entry) or sorted(field.name for field in entry) != ["key", "value"]:
        raise SchemaError(
            f"an entry of column 'headers' must be a struct<key: string, value: binary>, not {entry}. Cast it"
        )
    counts: Int64Array = numbers(column.value_lengths(), nulls=0).astype(np.int64)
    return (counts, cast("pa.StructArray", column.flatten())) if counts.any() else None


def entry_field(entries: pa.StructArray, name: str) -> ArrowArray:
    """Return a field of the structs of `header_entries`; it is null where the struct is null."""
    return entries.flatten()[entries.type.get_field_index(name)]


def header_blocks(column: ArrowArray, faults: list[RowErrors]) -> BinaryColumn | None:
    """Return the header blocks of array<struct<key, value>> or map<key, value>; None if there are none, or a row is invalid."""
    counted = header_entries(column)
    if counted is None:
        return None
    counts, entries = counted
    keys = binary_column("headers.key", entry_field(entries, "key"))
    values = binary_column("headers.value", entry_field(entries, "value"))
    found = []
    if counts[largest := int(counts.argmax())] > MAX_HEADERS:
        found.append(
            errors_at(counts > MAX_HEADERS, RowErrorKind.HEADERS, _many_headers_message, counts, first=largest)
        )
    if keys.valid is not None:
        found.append(errors_at(_rows_of(~keys.valid, counts), RowErrorKind.HEADERS, _null_key_message))
    try:
        keys.array.cast(pa.large_string() if pa.types.is_large_binary(keys.array.type) else pa.string())
    except pa.ArrowInvalid:
        found.append(errors_at(_rows_of(invalid_utf8(keys.array), counts), RowErrorKind.HEADERS, _invalid_key_message))
    faults += found
    return None if found else encode_headers(counts, keys, values)


def _many_headers_message(at: RowContext) -> str:
    return f"a row has {at.found} headers ({at.location}). A record may have {MAX_HEADERS} at most"


def _null_key_message(at: RowContext) -> str:
    return f"a header key is null ({at.location}), which Kafka does not allow. Drop the header, or name it"


def _invalid_key_message(at: RowContext) -> str:
    return f"a header key is not UTF-8 ({at.location}), so consumers cannot read it. Correct it"


def _rows_of(entries: BoolArray, counts: Int64Array) -> BoolArray:
    """Return which rows have any of these header entries."""
    rows = np.zeros(len(counts), dtype=np.bool_)
    rows[np.searchsorted(np.cumsum(counts), np.flatnonzero(entries), side="right")] = True
    return rows
