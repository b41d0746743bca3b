"""Conversions between Arrow arrays and numpy's that use their memory alone, and names for numpy's types.

pyarrow's own conversions (`pa.array`, `pa.scalar`, `fill_null`, `to_numpy`) accept and return anything. To see whether it
belongs to pandas they import pandas wherever it is installed, which costs 270 ms and its memory in every new Python worker.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Int64Array = npt.NDArray[np.int64]
ByteArray = npt.NDArray[np.uint8]
BoolArray = npt.NDArray[np.bool_]

_TYPES: dict[np.dtype[Any], Any] = {
    np.dtype(np.int8): pa.int8(),
    np.dtype(np.int16): pa.int16(),
    np.dtype(np.int32): pa.int32(),
    np.dtype(np.int64): pa.int64(),
}
_LONGEST_BINARY = (1 << 31) - 1
_DTYPES: dict[Any, np.dtype[Any]] = {kind: dtype for dtype, kind in _TYPES.items()}


def buffer_of(values: npt.NDArray[Any]) -> pa.Buffer:
    """Return the memory of `values`, whose items lie side by side, as an Arrow buffer; nothing is copied."""
    return pa.py_buffer(values.data)


def from_numbers(values: npt.NDArray[Any]) -> Any:
    """Return an Arrow array over the memory of `values`; it is copied only if the values do not lie side by side."""
    return pa.Array.from_buffers(_TYPES[values.dtype], len(values), [None, buffer_of(np.ascontiguousarray(values))])


def numbers(array: Any, nulls: int | None = None) -> npt.NDArray[Any]:
    """Return the integers of an Arrow array as a view of its memory, or as a copy with `nulls` where the array has null.

    Without `nulls` the array must have no null, because what lies under a null is undefined.
    """
    dtype = _DTYPES[array.type]
    data = array.buffers()[1]
    if data is None or len(array) == 0:
        return np.zeros(len(array), dtype=dtype)
    found: npt.NDArray[Any] = np.frombuffer(data, dtype=dtype, count=len(array), offset=array.offset * dtype.itemsize)
    return found if nulls is None or not array.null_count else np.where(is_valid(array), found, dtype.type(nulls))


def is_valid(array: Any) -> npt.NDArray[np.bool_]:
    """Return True for each value of an Arrow array that is not null."""
    if len(array) == 0:
        return np.zeros(0, dtype=np.bool_)
    bits = array.is_valid()
    data = bits.buffers()[1]
    flags = np.unpackbits(np.frombuffer(data, dtype=np.uint8), count=bits.offset + len(bits), bitorder="little")
    return flags[bits.offset :].view(np.bool_)


def one_value(value: bytes, kind: Any) -> Any:
    """Return an Arrow scalar of type `kind`, which is binary or large_binary."""
    return _one(value, kind)[0]


def one_row(value: bytes) -> Any:
    """Return an Arrow array of this one value, not copied: binary, or large_binary if the value is too long for binary."""
    return _one(value, pa.binary() if len(value) <= _LONGEST_BINARY else pa.large_binary())


def _one(value: bytes, kind: Any) -> Any:
    width = np.int32 if pa.types.is_binary(kind) else np.int64
    offsets = buffer_of(np.array([0, len(value)], dtype=width))
    return pa.Array.from_buffers(kind, 1, [None, offsets, pa.py_buffer(value)])


def empty(kind: Any) -> Any:
    """Return an Arrow array of type `kind`, strings or binary, without any values."""
    nothing = pa.py_buffer(b"")
    return pa.Array.from_buffers(kind, 0, [None, nothing, nothing])
