"""Zigzag varints, encoded one at a time and by the column (Kafka's ByteUtils)."""

from __future__ import annotations

import functools

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_producer.kernel.arrays import BinaryArray, ByteArray, Int64Array, buffer_of, from_numbers

TABLE_SIZE = 1 << 16
"""Values -1 … 65534 are looked up (8 ns each, measured); rarer ones are computed (some 40 ns)."""


@functools.lru_cache(maxsize=4096)
def encode_varint(value: int) -> bytes:
    """Return `value` as a zigzag varint."""
    rest = (value << 1) ^ (value >> 63)
    out = bytearray()
    while rest >= 0x80:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def varint_column(values: Int64Array) -> BinaryArray:
    """Return `values` as an Arrow binary array of zigzag varints."""
    if len(values) and int(values.min()) >= -1 and int(values.max()) < TABLE_SIZE - 1:
        return _table().take(from_numbers(values + 1))
    return _computed(values)


def consecutive_varints(first: int, last: int) -> BinaryArray:
    """Return the varints of first … last - 1 as an Arrow binary array, which is a slice of the table if that reaches so far."""
    if first >= 0 and last < TABLE_SIZE:
        return _table().slice(first + 1, last - first)
    return _computed(np.arange(first, last, dtype=np.int64))


def consecutive_sizes(first: int, last: int) -> Int64Array:
    """Return how many bytes each of first … last - 1 takes as a zigzag varint."""
    if first >= 0 and last < TABLE_SIZE:
        return _table_sizes()[first + 1 : last + 1]
    return varint_sizes(np.arange(first, last, dtype=np.int64))


def varint_items(first: int, last: int) -> npt.NDArray[np.void]:
    """Return the varints of first … last - 1 as fixed-width items; all of them must take equally many bytes."""
    width = len(encode_varint(first))
    if first >= 0 and last < TABLE_SIZE:
        start = 1 << 7 * (width - 1) - 1 if width > 1 else 0
        return _items_of_width(width)[first - start : last - start]
    return _items(first, last, width)


@functools.cache
def _items_of_width(width: int) -> npt.NDArray[np.void]:
    """Return all non-negative varints of `width` bytes, as far as the table reaches."""
    return _items(1 << 7 * (width - 1) - 1 if width > 1 else 0, min(1 << 7 * width - 1, TABLE_SIZE), width)


def _items(first: int, last: int, width: int) -> npt.NDArray[np.void]:
    rest = zigzag64(np.arange(first, last, dtype=np.int64))
    rows = np.empty((last - first, width), dtype=np.uint8)
    for index in range(width):
        rows[:, index] = (rest & np.uint64(0x7F)) | np.uint64(0x80 if index < width - 1 else 0)
        rest = rest >> np.uint64(7)
    items: npt.NDArray[np.void] = rows.reshape(-1).view(f"V{width}")
    return items


@functools.cache
def _table() -> BinaryArray:
    return _computed(np.arange(-1, TABLE_SIZE - 1, dtype=np.int64))


@functools.cache
def _table_sizes() -> Int64Array:
    return varint_sizes(np.arange(-1, TABLE_SIZE - 1, dtype=np.int64))


def _computed(values: Int64Array) -> BinaryArray:
    sizes = varint_sizes(values)
    offsets = np.zeros(len(values) + 1, dtype=np.int32)
    np.cumsum(sizes, out=offsets[1:])
    data: ByteArray = np.empty(int(offsets[-1]), dtype=np.uint8)
    starts, rest = offsets[:-1].astype(np.int64), zigzag64(values)
    alive = np.arange(len(values))
    while len(alive):
        more = rest >= np.uint64(0x80)
        data[starts] = (rest & np.uint64(0x7F)) | np.where(more, np.uint64(0x80), np.uint64(0))
        alive, starts, rest = alive[more], starts[more] + 1, rest[more] >> np.uint64(7)
    return pa.Array.from_buffers(pa.binary(), len(values), [None, buffer_of(offsets), buffer_of(data)])


def varint_sizes(values: Int64Array) -> Int64Array:
    """Return how many bytes each value takes as a zigzag varint."""
    return unsigned_varint_sizes(zigzag64(values))


def unsigned_varint_sizes(values: npt.NDArray[np.uint64]) -> Int64Array:
    """Return how many bytes each value takes as a varint without zigzag."""
    sizes = np.ones(len(values), dtype=np.int64)
    if len(values) == 0:
        return sizes
    top = int(values.max())
    threshold = 7
    while threshold < 64 and top >= 1 << threshold:
        sizes += values >= np.uint64(1 << threshold)
        threshold += 7
    return sizes


def zigzag64(values: Int64Array) -> npt.NDArray[np.uint64]:
    """Map 0, -1, 1, -2 … to 0, 1, 2, 3 …"""
    return ((values << 1) ^ (values >> 63)).view(np.uint64)
