"""Texts: joined row by row, escaped for JSON as Jackson does, and bytes as base64."""

from __future__ import annotations

import binascii
from typing import Any

import numpy as np

from spark_producer.kernel.arrays import buffer_of, join, numbers, view_of
from spark_producer.record.rendering.untyped import Column, pa, pc

TEXT = pa.large_string()
"""The type of all texts here, since the texts of one batch may exceed 2 GiB, the maximum of `string`."""

_SHORT = {"\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r", '"': '\\"', "\\": "\\\\"}
_ESCAPES = {chr(code): f"\\u{code:04X}" for code in range(0x20)} | _SHORT
"""The escapes that RFC 8259 (7) demands, with hexadecimal digits in upper case, as Jackson writes them for Spark."""

_SPECIAL = np.zeros(256, np.bool_)
_SPECIAL[[ord(character) for character in _ESCAPES]] = True

_OFFSET = np.dtype(np.int64)
_BYTE = np.dtype(np.uint8)
_PADS = pa.array([b"", b"\0", b"\0\0"], pa.large_binary())


def joined(*parts: Column | str, nulls: str | None = None) -> Column:
    """Return the parts joined row by row. A null part makes its row null, or is replaced by `nulls`."""
    handling = {} if nulls is None else {"null_handling": "replace", "null_replacement": nulls}
    texts = [pa.scalar(part, TEXT) if isinstance(part, str) else part for part in parts]
    return pc.binary_join_element_wise(*texts, pa.scalar("", TEXT), **handling)


def constant(text: str, rows: int) -> Column:
    """Return the text in every row."""
    return pa.repeat(pa.scalar(text, TEXT), rows)


def unlike_nulls(text: Column, column: Column) -> Column:
    """Return the text with null in the rows where the column is null."""
    return text if column.null_count == 0 else pc.if_else(column.is_valid(), text, pa.scalar(None, TEXT))


def checked(column: Column) -> Column:
    """Return a column of strings as `TEXT`.

    Raises:
        pyarrow.ArrowInvalid: a string is not UTF-8. Arrow does not check that when it reads a file.
    """
    try:
        column.validate(full=True)
    except pa.ArrowInvalid as error:
        if "UTF8" not in str(error):
            raise
        raise pa.ArrowInvalid("a text is not UTF-8. Cast the column to binary") from error
    return column.cast(TEXT)


def escaped(column: Column) -> Column:
    """Return texts with the escapes of JSON, without its quotes."""
    # The backslash comes first, since the other escapes contain one.
    for character in sorted(_present(column), key=lambda found: found != "\\"):
        column = pc.replace_substring(column, character, _ESCAPES[character])
    return column


def _present(column: Column) -> list[str]:
    """Return the characters in the texts that need an escape, including those in the bytes under a null."""
    _, offsets, data = column.buffers()
    if data is None or offsets is None or len(column) == 0:
        return []
    ends = view_of(offsets, _OFFSET, len(column) + 1, column.offset * 8)
    data_bytes = view_of(data, _BYTE)[ends[0] : ends[-1]]
    return [chr(code) for code in np.unique(data_bytes[_SPECIAL[data_bytes]])]


def quoted(column: Column) -> Column:
    """Return texts as JSON strings, in quotes and escaped."""
    return joined('"', escaped(column), '"')


def base64(column: Column) -> Column:
    """Return bytes as base64 with its padding (RFC 4648, 4).

    All rows are encoded in one call, each padded to a multiple of three.
    """
    column = column.cast(pa.large_binary())
    lengths = numbers(pc.binary_length(column), 0)
    missing = -lengths % 3
    filled: Column = join([column, _PADS.take(pa.array(missing))], pa.large_binary())
    starts = view_of(filled.buffers()[1], _OFFSET, len(filled) + 1, filled.offset * 8)
    data = view_of(filled.buffers()[2] or pa.py_buffer(b""), _BYTE)[starts[0] : starts[-1]]
    encoded = np.frombuffer(bytearray(binascii.b2a_base64(data.data, newline=False)), np.uint8)
    ends = (starts - starts[0]) // 3 * 4
    encoded[ends[1:][missing > 0] - 1] = ord("=")
    encoded[ends[1:][missing > 1] - 2] = ord("=")
    return unlike_nulls(_texts(ends, encoded), column)


def uuids(column: Column) -> Column:
    """Return UUIDs, as 16 bytes each, in their canonical form (RFC 9562, 4)."""
    filled = pc.fill_null(column, pa.scalar(bytes(16), column.type))
    data = join([filled.cast(pa.large_binary())], pa.large_binary()).buffers()[2] or b""
    digits = np.frombuffer(binascii.hexlify(memoryview(data)[: len(column) * 16]), np.uint8).reshape(-1, 32)
    found = np.insert(digits, [8, 12, 16, 20], ord("-"), axis=1)
    return unlike_nulls(_texts(np.arange(len(column) + 1, dtype=np.int64) * 36, found.reshape(-1)), column)


def _texts(ends: Any, data: Any) -> Column:
    return pa.Array.from_buffers(TEXT, len(ends) - 1, [None, buffer_of(np.ascontiguousarray(ends)), buffer_of(data)])
