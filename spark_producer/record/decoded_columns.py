"""Makes Arrow columns of records from the positions of their fields; the schema of these columns."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, cast

import numpy as np
import pyarrow as pa

from spark_producer.kernel import no_header_columns
from spark_producer.kernel.arrays import (
    ArrowArray,
    BinaryArray,
    BoolArray,
    BytesArray,
    Int32Array,
    TextArray,
    buffer_of,
    empty,
    numbers,
)

HeaderLists: TypeAlias = "pa.Array[pa.Scalar[pa.ListType[pa.StructType]]]"
"""The headers of each row, which is a list of structs of key and value."""

_ENTRY_FIELDS: list[pa.Field[pa.DataType]] = [
    pa.field("key", pa.string(), nullable=False),
    pa.field("value", pa.binary()),
]

_FIELDS: list[pa.Field[pa.DataType]] = [
    pa.field("offset", pa.int64(), nullable=False),
    pa.field("timestamp", pa.int64(), nullable=False),
    pa.field("key", pa.binary()),
    pa.field("value", pa.binary()),
    pa.field("headers", pa.list_(pa.field("entry", pa.struct(_ENTRY_FIELDS), nullable=False)), nullable=False),
]
RECORD_SCHEMA = pa.schema(_FIELDS)
"""One row per record. `timestamp` is in milliseconds since 1970, or -1 if there is none; without headers the list is empty."""

TIMESTAMP_TYPE_FIELD: pa.Field[pa.DataType] = pa.field("timestamp_type", pa.int32(), nullable=False)
"""A column for those who name it: 0 is create time, 1 log append time, -1 none, as in `TimestampType`."""

MAX_DATA_BYTES = (1 << 31) - 1
"""Maximum bytes that Arrow's binary offsets can address."""

MAX_REPAIRED_BYTES = 1 << 26
"""Maximum bytes of invalid text that are repaired, because such text passes through Python's strings."""

_REPLACEMENT = "\ufffd".encode()
_SURROGATE = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")
"""Surrogates, whole or cut off: Java has one U+FFFD for each, Python two or three. They agree on all else (76,007 texts)."""

_HEADERS = RECORD_SCHEMA.field("headers").type


def as_text(values: BinaryArray) -> TextArray:
    """Return a binary array without nulls as text; bytes that are not UTF-8 become U+FFFD, as in Java's consumer.

    Raises:
        pyarrow.ArrowInvalid: Some of it is not UTF-8, and all of it together is longer than `MAX_REPAIRED_BYTES`.
    """
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        if values.nbytes > MAX_REPAIRED_BYTES:
            raise
    distinct = values.dictionary_encode()
    repaired = [_SURROGATE.sub(_REPLACEMENT, value) for value in _distinct(distinct)]
    readable = [value.decode(errors="replace") for value in repaired]
    return pa.array(readable, pa.string()).take(distinct.indices)


def first_invalid_utf8(values: BinaryArray) -> int:
    """Return the first value of a binary array that is not UTF-8; casting the array to text must have failed."""
    return int(invalid_utf8(values).argmax())


def invalid_utf8(values: BytesArray) -> BoolArray:
    """Return which values of a binary array are not UTF-8; nulls count as UTF-8. Each distinct value is checked once."""
    encoded = values.dictionary_encode()
    wrong = np.array([False, *map(_is_invalid_utf8, _distinct(encoded))])
    found: BoolArray = wrong[numbers(encoded.indices, nulls=-1) + 1]
    return found


def _distinct(encoded: pa.DictionaryArray[Any, Any]) -> list[bytes]:
    return cast("list[bytes]", encoded.dictionary.to_pylist())


def _is_invalid_utf8(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return True
    return False


def header_lists(rows: int, ends: pa.Buffer, keys: TextArray, values: BinaryArray) -> HeaderLists:
    """Return the headers of each row as a list of entries; row r has those from `ends[r]` to `ends[r + 1]` (32 bits)."""
    entries = pa.StructArray.from_arrays([keys, values], fields=_ENTRY_FIELDS)
    return pa.Array.from_buffers(_HEADERS, rows, [None, ends], children=[entries])


def no_headers(count: int) -> HeaderLists:
    """Return `count` empty lists."""
    ends, _, values = no_header_columns(count)
    return header_lists(count, ends, empty(pa.string()), values)


def record_schema(columns: frozenset[str] | None) -> pa.Schema:
    """Return the schema of the named columns, in the order of `RECORD_SCHEMA` with `timestamp_type` last; None: `RECORD_SCHEMA`.

    Raises:
        ValueError: No column is named, or one that does not exist.
    """
    if columns is None:
        return RECORD_SCHEMA
    fields = [field for field in (*_FIELDS, TIMESTAMP_TYPE_FIELD) if field.name in columns]
    if not fields or len(fields) < len(columns):
        known = ", ".join([*RECORD_SCHEMA.names, TIMESTAMP_TYPE_FIELD.name])
        raise ValueError(f"columns {sorted(columns)} cannot be read. Name some of {known}")
    return pa.schema(fields)


def record_batch(schema: pa.Schema, columns: Mapping[str, Callable[[], ArrowArray]]) -> pa.RecordBatch:
    """Return a RecordBatch of `schema`; the arrays of columns that it does not have are not made."""
    return pa.RecordBatch.from_arrays([columns[name]() for name in schema.names], schema=schema)


def int32_array(values: Int32Array) -> ArrowArray:
    """Return an Arrow array over the memory of `values`."""
    return pa.Array.from_buffers(pa.int32(), len(values), [None, buffer_of(values)])
