"""The kernel's input: numpy views of the buffers of Arrow columns, without a copy."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_producer.kernel.arrays import BoolArray, ByteArray, BytesArray, Int64Array, is_valid, view_of
from spark_producer.kernel.varint import varint_sizes

PIECE_BYTES = 8 << 20
"""The bytes of rows that are gathered, joined, decoded or encoded at a time if rows must be copied. The fixed cost of a piece is
small compared with that of its bytes, and the copy stays within this bound for a table or batch of any size."""


class BinaryColumn:
    """`n` binary values of an Arrow `binary` or `large_binary` array, which may be a slice.

    `offsets` (n + 1, int32 or int64) index into `data` (the whole values buffer); a null value has length 0 in `lengths`.
    """

    def __init__(self, array: BytesArray) -> None:
        self.array = array
        _, offsets, data = array.buffers()
        width: np.dtype[Any] = _INT64 if isinstance(array, _LARGE) else _INT32
        if offsets is None or len(array) == 0:
            self.offsets: npt.NDArray[Any] = np.zeros(len(array) + 1, dtype=width)
        else:
            self.offsets = view_of(offsets, width, len(array) + 1, array.offset * width.itemsize)
        self.data: ByteArray = view_of(data, _BYTE) if data is not None and data.size else _NO_BYTES

    def __len__(self) -> int:
        return len(self.array)

    @functools.cached_property
    def valid(self) -> BoolArray | None:
        """True for each row that is not null; None when no row is null."""
        if self.array.null_count == 0:
            return None
        return is_valid(self.array)

    @functools.cached_property
    def lengths(self) -> Int64Array:
        """The bytes of each row; 0 for a null."""
        lengths = np.diff(self.offsets).astype(np.int64, copy=False)
        if self.valid is not None:
            lengths = np.where(self.valid, lengths, 0)  # Arrow lets a null cover bytes
        return lengths

    @functools.cached_property
    def uniform_length(self) -> int | None:
        """The length of every row if all rows have the same one and none is null; otherwise None."""
        if len(self) == 0 or self.valid is not None:
            return None
        lengths = self.lengths
        first = int(lengths[0])
        return first if bool((lengths == first).all()) else None

    @functools.cached_property
    def uniform_rows(self) -> npt.NDArray[np.void]:
        """The values as one array of fixed-width items; this needs a `uniform_length` above 0."""
        width = self.uniform_length
        assert width
        start = int(self.offsets[0])
        rows: npt.NDArray[np.void] = self.data[start : start + width * len(self)].view(f"V{width}")
        return rows


_BYTE, _INT32, _INT64 = np.dtype(np.uint8), np.dtype(np.int32), np.dtype(np.int64)
_LARGE = (pa.LargeBinaryArray, pa.LargeStringArray)
_NO_BYTES: ByteArray = np.zeros(0, dtype=_BYTE)


class RecordColumns:
    """The columns of one Arrow batch, checked and ready to encode.

    `key` is None if every key is null. `headers` holds each row's encoded header block (count and entries), or is None when no
    row has headers. `timestamps` holds milliseconds, one per row, or is one int for all. `numbers` holds the number of each row
    in its task, or is that of the first row if they are consecutive. `largest` is the size that `largest_record` returns, or 0
    if it is not needed.
    """

    def __init__(
        self,
        value: BinaryColumn,
        key: BinaryColumn | None = None,
        headers: BinaryColumn | None = None,
        timestamps: Int64Array | int = 0,
        *,
        numbers: Int64Array | int = 0,
        largest: int = 0,
    ) -> None:
        self.value = value
        self.key = key
        self.headers = headers
        self.timestamps = timestamps
        self.numbers = numbers
        self.largest = largest

    def __len__(self) -> int:
        return len(self.value)

    def number_of(self, row: int) -> int:
        """Return the number of a row, given its position here."""
        return int(self.numbers[row]) if isinstance(self.numbers, np.ndarray) else row + int(self.numbers)

    def numbers_of(self, rows: Int64Array) -> Int64Array:
        """Return `number_of` for each of `rows`."""
        return self.numbers[rows] if isinstance(self.numbers, np.ndarray) else rows + self.numbers

    @functools.cached_property
    def uniform(self) -> bool:
        """Whether all records encode to the same bytes except key, value and offset, which is the fast case of ids and hashes."""
        return (
            self.headers is None
            and isinstance(self.timestamps, int)
            and bool(self.value.uniform_length)
            and (self.key is None or bool(self.key.uniform_length))
        )

    @functools.cached_property
    def body_sizes(self) -> Int64Array:
        """The bytes of each record without its length, timestamp delta and offset delta, which depend on the batch."""
        sizes = _field_sizes(self.value) + 1  # attributes
        sizes += 1 if self.key is None else _field_sizes(self.key)
        sizes += 1 if self.headers is None else self.headers.lengths
        return sizes

    @functools.cached_property
    def timestamp_range(self) -> tuple[int, int]:
        """The earliest and the latest timestamp; (0, 0) if there are no rows."""
        if isinstance(self.timestamps, int):
            return self.timestamps, self.timestamps
        if len(self.timestamps) == 0:
            return 0, 0
        return int(self.timestamps.min()), int(self.timestamps.max())

    def timestamp_at(self, row: int) -> int:
        """Return the timestamp of `row` in milliseconds."""
        return self.timestamps if isinstance(self.timestamps, int) else int(self.timestamps[row])


def encoded_lengths(column: BinaryColumn) -> Int64Array:
    """Return the lengths as the record format has them, with -1 for null."""
    if column.valid is None:
        return column.lengths
    return np.where(column.valid, column.lengths, -1)


def _field_sizes(column: BinaryColumn) -> Int64Array:
    return column.lengths + varint_sizes(encoded_lengths(column))
