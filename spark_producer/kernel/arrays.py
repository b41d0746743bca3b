"""Between Arrow arrays and numpy's, by their memory alone.

Owns: the names of numpy's types, and the conversions of the write path. Those of pyarrow (`pa.array`, `pa.scalar`,
`fill_null`, `to_numpy`) take and give anything, and to look whether it is of pandas they import it wherever it is installed:
270 ms and its memory in every new Python worker. Must not know: what the values mean.
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


def from_numbers(values: npt.NDArray[Any]) -> Any:
    """An Arrow array of the memory of `values`; copied only if they do not lie side by side."""
    return pa.Array.from_buffers(_TYPES[values.dtype], len(values), [None, pa.py_buffer(np.ascontiguousarray(values))])


def numbers(array: Any, nulls: int | None = None) -> npt.NDArray[Any]:
    """The integers of an Arrow array, a view of its memory; or a copy with `nulls` where it has null.

    Without `nulls` there must be none: what lies under them is undefined.
    """
    dtype = _DTYPES[array.type]
    data = array.buffers()[1]
    if data is None or len(array) == 0:
        return np.zeros(len(array), dtype=dtype)
    found: npt.NDArray[Any] = np.frombuffer(data, dtype=dtype, count=len(array), offset=array.offset * dtype.itemsize)
    return found if nulls is None or not array.null_count else np.where(is_valid(array), found, dtype.type(nulls))


def is_valid(array: Any) -> npt.NDArray[np.bool_]:
    """True for each value of an Arrow array that is not null."""
    if len(array) == 0:
        return np.zeros(0, dtype=np.bool_)
    bits = array.is_valid()
    data = bits.buffers()[1]
    flags = np.unpackbits(np.frombuffer(data, dtype=np.uint8), count=bits.offset + len(bits), bitorder="little")
    return flags[bits.offset :].view(np.bool_)


def one_value(value: bytes, kind: Any) -> Any:
    """An Arrow scalar of type `kind`, binary or large_binary."""
    return _one(value, kind)[0]


def one_row(value: bytes) -> Any:
    """An Arrow array of this one value, not copied: binary, or large_binary if it is too long for that."""
    return _one(value, pa.binary() if len(value) <= _LONGEST_BINARY else pa.large_binary())


def _one(value: bytes, kind: Any) -> Any:
    width = np.int32 if pa.types.is_binary(kind) else np.int64
    offsets = pa.py_buffer(np.array([0, len(value)], dtype=width))
    return pa.Array.from_buffers(kind, 1, [None, offsets, pa.py_buffer(value)])


def empty(kind: Any) -> Any:
    """An Arrow array of no strings or binary values."""
    nothing = pa.py_buffer(b"")
    return pa.Array.from_buffers(kind, 0, [None, nothing, nothing])
