"""CRC-32 and FNV-1a of every key of a column, as librdkafka's partitioners compute them.

Both work on columns, one byte position at a time. Keys are sorted by falling length, so that those that reach a position are
always the first ones; the rest of a few very long keys is hashed one key at a time.
"""

from __future__ import annotations

import functools
import zlib
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from spark_producer.kernel.arrays import ByteArray, Int64Array
from spark_producer.kernel.column_views import BinaryColumn

UInt32Array = npt.NDArray[np.uint32]

FNV_OFFSET, FNV_PRIME, _MASK = 0x811C9DC5, 0x01000193, 0xFFFFFFFF
_FEW_KEYS = 64
"""If fewer keys than this are left at a position, hashing one key at a time costs less than by the column."""
_POSITIONS = 64
"""The number of byte positions for which CRC-32 has a table; longer keys go one at a time, at zlib's speed."""


def crc32(column: BinaryColumn) -> UInt32Array:
    """Return the CRC-32 (zlib's polynomial) of each row; for a null row it is that of an empty key.

    It is linear: the contribution of a byte depends only on its distance from the end, so contributions are looked up and XORed.
    """
    return _by_falling_length(column, _crc32)


def fnv1a(column: BinaryColumn) -> UInt32Array:
    """Return the 32-bit FNV-1a of each row; for a null row it is that of an empty key."""
    return _by_falling_length(column, _fnv1a)


def fnv1a_one(key: bytes) -> int:
    """Return the 32-bit FNV-1a of one key."""
    return _continued_fnv1a(FNV_OFFSET, key)


def _by_falling_length(
    column: BinaryColumn, hash_sorted: Callable[[ByteArray, Int64Array, Int64Array], UInt32Array]
) -> UInt32Array:
    starts, lengths = column.offsets[:-1].astype(np.int64, copy=False), column.lengths
    if column.uniform_length is not None:
        return hash_sorted(column.data, starts, lengths)
    order = np.argsort(-lengths, kind="stable")
    hashes = np.empty(len(lengths), dtype=np.uint32)
    hashes[order] = hash_sorted(column.data, starts[order], lengths[order])
    return hashes


def _alive(lengths: Int64Array, position: int) -> int:
    """Return how many of the falling `lengths` are above `position`."""
    return len(lengths) - int(lengths[::-1].searchsorted(position, side="right"))


def _crc32(data: ByteArray, starts: Int64Array, lengths: Int64Array) -> UInt32Array:
    longer = _alive(lengths, _POSITIONS)
    hashes = np.empty(len(lengths), dtype=np.uint32)
    for row in range(longer):
        hashes[row] = zlib.crc32(data[starts[row] : starts[row] + lengths[row]].data)
    rest, table, constants = lengths[longer:], *_crc_tables()
    sums = constants[rest]
    ends = starts[longer:] + rest - 1
    for position in range(int(rest[0]) if len(rest) else 0):
        alive = _alive(rest, position)
        sums[:alive] ^= table[position][data[ends[:alive] - position]]
    hashes[longer:] = sums
    return hashes


@functools.cache
def _crc_tables() -> tuple[UInt32Array, UInt32Array]:
    """Return the contribution of a byte at each distance from the end, and the CRC of as many zero bytes, common to all keys."""
    zeros = np.array([zlib.crc32(bytes(length)) for length in range(_POSITIONS + 1)], dtype=np.uint32)
    table = [[zlib.crc32(bytes([byte]) + bytes(position)) for byte in range(256)] for position in range(_POSITIONS)]
    return np.array(table, dtype=np.uint32) ^ zeros[1:, None], zeros


def _fnv1a(data: ByteArray, starts: Int64Array, lengths: Int64Array) -> UInt32Array:
    hashes = np.full(len(lengths), FNV_OFFSET, dtype=np.uint32)
    position, alive = 0, _alive(lengths, 0)
    while alive > _FEW_KEYS:
        hashes[:alive] ^= data[starts[:alive] + position]
        hashes[:alive] *= np.uint32(FNV_PRIME)
        position += 1
        alive = _alive(lengths, position)
    for row in range(alive):
        rest = data[starts[row] + position : starts[row] + lengths[row]].tobytes()
        hashes[row] = _continued_fnv1a(int(hashes[row]), rest)
    return hashes


def _continued_fnv1a(hashed: int, data: bytes) -> int:
    for byte in data:
        hashed = (hashed ^ byte) * FNV_PRIME & _MASK
    return hashed
