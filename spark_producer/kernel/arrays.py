"""Conversions between Arrow and numpy arrays that only share memory, names for their types, and joins of binary arrays.

pyarrow's own conversions (`pa.array`, `pa.scalar`, `fill_null`, `to_numpy`) accept and return anything. To check for objects
of pandas they import pandas if it is installed, which costs 270 ms and its memory in every new Python worker.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Int64Array = npt.NDArray[np.int64]
Int32Array = npt.NDArray[np.int32]
ByteArray = npt.NDArray[np.uint8]
BoolArray = npt.NDArray[np.bool_]

# These are strings because pyarrow's classes take parameters only in its stubs, which also have more classes of types.
ArrowArray: TypeAlias = "pa.Array[pa.Scalar[pa.DataType]]"
"""An Arrow array of any type."""
BinaryArray: TypeAlias = "pa.Array[pa.Scalar[pa.lib.BinaryType]]"
TextArray: TypeAlias = "pa.Array[pa.Scalar[pa.lib.StringType]]"
BytesType: TypeAlias = "pa.lib.BinaryType | pa.lib.LargeBinaryType"
BytesArray: TypeAlias = "pa.Array[pa.Scalar[BytesType]]"
"""An Arrow array of binary or large_binary."""

IntegerArray: TypeAlias = "pa.Array[pa.Scalar[pa.lib.Int64Type]]"

_Type = TypeVar("_Type", bound=pa.DataType)
_Item = TypeVar("_Item", bound=np.generic)
_BYTE = np.dtype(np.uint8)

_DTYPES: dict[pa.DataType, np.dtype[Any]] = {
    pa.int8(): np.dtype(np.int8),
    pa.int16(): np.dtype(np.int16),
    pa.int32(): np.dtype(np.int32),
    pa.int64(): np.dtype(np.int64),
    pa.float32(): np.dtype(np.float32),
    pa.float64(): np.dtype(np.float64),
}
_BINARY = pa.binary()

MAX_BINARY_BYTES = (1 << 31) - 1
"""Maximum bytes that the offsets of Arrow's `binary` can address; `large_binary` has no such bound."""


def buffer_of(values: npt.NDArray[Any]) -> pa.Buffer:
    """Return the memory of `values`, whose items lie side by side, as an Arrow buffer; nothing is copied."""
    return pa.py_buffer(values.data)


def view_of(buffer: pa.Buffer, dtype: np.dtype[_Item], count: int = -1, offset: int = 0) -> npt.NDArray[_Item]:
    """Return `count` items of an Arrow buffer (-1: all), from byte `offset` on; nothing is copied."""
    return np.frombuffer(memoryview(buffer), dtype, count, offset)


def values_of(array: BytesArray) -> memoryview:
    """Return the memory that contains all values of `array`, one after the other; it may be longer than the values."""
    data = array.buffers()[2]
    assert data is not None
    return memoryview(data).cast("B")


def from_numbers(values: Int64Array) -> IntegerArray:
    """Return an Arrow array over the memory of `values`; it is copied only if the values do not lie side by side."""
    return pa.Array.from_buffers(pa.int64(), len(values), [None, buffer_of(np.ascontiguousarray(values, np.int64))])


def numbers(array: ArrowArray, nulls: int | None = None) -> npt.NDArray[Any]:
    """Return the numbers of an Arrow array as a view of its memory, or as a copy with `nulls` where the array has null.

    Without `nulls` the array must have no null, because the number below a null is undefined.
    """
    dtype = _DTYPES[array.type]
    data = array.buffers()[1]
    if data is None or len(array) == 0:
        return np.zeros(len(array), dtype=dtype)
    found = view_of(data, dtype, len(array), array.offset * dtype.itemsize)
    return found if nulls is None or not array.null_count else np.where(is_valid(array), found, dtype.type(nulls))


def is_valid(array: ArrowArray) -> BoolArray:
    """Return True for each value of an Arrow array that is not null."""
    if len(array) == 0:
        return np.zeros(0, dtype=np.bool_)
    bits = array.is_valid()
    data = bits.buffers()[1]
    assert data is not None
    flags = np.unpackbits(view_of(data, _BYTE), count=bits.offset + len(bits), bitorder="little")
    return flags[bits.offset :].view(np.bool_)


def one_value(value: bytes, kind: BytesType) -> pa.Scalar[BytesType]:
    """Return an Arrow scalar of type `kind`, which is binary or large_binary."""
    return _one(value, kind)[0]


def one_row(value: bytes) -> BytesArray:
    """Return an Arrow array of this one value, not copied: binary, or large_binary if the value is too long for binary."""
    return _one(value, pa.binary() if len(value) <= MAX_BINARY_BYTES else pa.large_binary())


def _one(value: bytes, kind: BytesType) -> BytesArray:
    width = np.int32 if pa.types.is_binary(kind) else np.int64
    offsets = buffer_of(np.array([0, len(value)], dtype=width))
    return pa.Array.from_buffers(kind, 1, [None, offsets, pa.py_buffer(value)])


def empty(kind: _Type) -> pa.Array[pa.Scalar[_Type]]:
    """Return an Arrow array of type `kind`, strings or binary, without any values."""
    nothing = pa.py_buffer(b"")
    return pa.Array.from_buffers(kind, 0, [None, nothing, nothing])


_SEPARATORS = {kind: one_value(b"", kind) for kind in (_BINARY, pa.large_binary())}


def take(array: BytesArray, indices: IntegerArray) -> BinaryArray:
    """Copy rows that together fit into `binary`."""
    return array.take(indices).cast(_BINARY)


def join(parts: Sequence[BytesArray | bytes], kind: BytesType = _BINARY) -> BytesArray:
    """Concatenate the parts, all of one kind, row by row; bytes are the same for every row, and null is empty."""
    import pyarrow.compute as pc  # this takes 35 ms and 10 MiB of a worker, which rows of one length do not need

    strings = [one_value(part, kind) if isinstance(part, bytes) else part for part in parts]
    found: BytesArray = pc.binary_join_element_wise(  # type: ignore[call-overload]  # in the stubs either arrays or scalars
        *strings, _SEPARATORS[kind], null_handling="replace", null_replacement=""
    )
    return found
