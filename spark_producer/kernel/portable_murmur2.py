"""murmur2 of every key of a column, as Kafka's clients compute it (Kafka's Utils.murmur2)."""

from __future__ import annotations

import struct

import numpy as np
import numpy.typing as npt

from spark_producer.kernel.arrays import ByteArray, Int64Array
from spark_producer.kernel.column_views import BinaryColumn

SEED = 0x9747B28C
M = 0x5BD1E995
_MASK = 0xFFFFFFFF
_BLOCK = struct.Struct("<I")
_FEW_KEYS = 32
"""Up to this number of long keys cost less one at a time than as a column, if each has as many blocks left (measured: a step of
the column takes some 6 µs; a key alone takes 5 µs, and 0.06 µs a block)."""
_PIECE = 1 << 16
"""The bytes of a long key that are processed together, so that memory does not grow with its length."""
_ROWS = 1 << 15
"""The number of keys that are hashed together, so that the arrays in use stay in the cache, and keys of one length need not be
sorted because of a key of another length elsewhere."""
_SHORT = (1 << 16) - 1
"""Lengths up to this are sorted as 16-bit numbers, for which numpy counts instead of comparing (measured: 4 times faster)."""

UInt32Array = npt.NDArray[np.uint32]


def murmur2(column: BinaryColumn) -> UInt32Array:
    """Return one unsigned 32-bit hash per row; for a null row it is that of an empty key."""
    lengths = column.lengths
    count = len(lengths)
    if count == 0:
        return np.zeros(0, dtype=np.uint32)
    data = column.data if len(column.data) >= 4 else np.concatenate([column.data, np.zeros(4, dtype=np.uint8)])
    hashes = np.empty(count, dtype=np.uint32)
    for first in range(0, count, _ROWS):
        of_rows = lengths[first : first + _ROWS]
        stop, length = first + len(of_rows), int(of_rows[0])
        if column.valid is None and bool((of_rows == length).all()):
            hashes[first:stop] = _equal_lengths(data, int(column.offsets[first]), len(of_rows), length)
        else:
            order = _by_falling_length(of_rows)
            starts = column.offsets[first:stop].astype(np.int64)
            hashes[first:stop][order] = _mixed_lengths(data, starts[order], of_rows[order])
    return _finish(hashes)


def murmur2_one(key: bytes) -> int:
    """Return the hash of one key."""
    blocks = len(key) // 4
    hashed = (SEED ^ len(key)) & _MASK
    for (block,) in _BLOCK.iter_unpack(memoryview(key)[: 4 * blocks]):
        scrambled = block * M & _MASK
        hashed = hashed * M & _MASK ^ (scrambled ^ scrambled >> 24) * M & _MASK
    if len(key) % 4:
        hashed = (hashed ^ int.from_bytes(key[4 * blocks :], "little")) * M & _MASK
    hashed = (hashed ^ hashed >> 13) * M & _MASK
    return hashed ^ hashed >> 15


def _by_falling_length(lengths: Int64Array) -> Int64Array:
    """Return the rows, the longest first."""
    order: Int64Array = np.argsort(_SHORT - np.minimum(lengths, _SHORT).astype(np.uint16), kind="stable")
    long = int(np.count_nonzero(lengths >= _SHORT))
    if long > 1:
        order[:long] = order[:long][np.argsort(-lengths[order[:long]], kind="stable")]
    return order


def _blocks(data: ByteArray, positions: Int64Array) -> UInt32Array:
    """Return the block of four bytes at each position, little-endian; positions must be four or more bytes before the end."""
    view: npt.NDArray[np.uint32] = np.ndarray((len(data) - 3,), dtype="<u4", buffer=data, strides=(1,))
    return view[positions]


def _tail_blocks(data: ByteArray, positions: Int64Array, tails: Int64Array) -> UInt32Array:
    """Return the 1 to 3 bytes at each position as a block, without reading past the end of the data."""
    clamped = np.minimum(positions, len(data) - 4)
    blocks = _blocks(data, clamped) >> ((positions - clamped) * 8).astype(np.uint32)
    kept: UInt32Array = blocks & ((1 << (tails * 8)) - 1).astype(np.uint32)
    return kept


def _scrambled(blocks: UInt32Array) -> UInt32Array:
    blocks = blocks * np.uint32(M)
    blocks ^= blocks >> np.uint32(24)
    blocks *= np.uint32(M)
    return blocks


def _mix_block(hashes: UInt32Array, blocks: UInt32Array) -> UInt32Array:
    hashes = hashes * np.uint32(M)
    hashes ^= _scrambled(blocks)
    return hashes


def _equal_lengths(data: ByteArray, start: int, count: int, length: int) -> UInt32Array:
    """Hash contiguous keys of one length: their blocks are at equal distances, so nothing is gathered."""
    hashes = np.full(count, SEED ^ length & _MASK, dtype=np.uint32)
    for block in range(length // 4):
        blocks: UInt32Array = np.ndarray(
            (count,), dtype="<u4", buffer=data, offset=start + 4 * block, strides=(length,)
        )
        hashes = _mix_block(hashes, blocks)
    for byte in range(length // 4 * 4, length):
        tail: ByteArray = np.ndarray((count,), dtype=np.uint8, buffer=data, offset=start + byte, strides=(length,))
        hashes ^= tail.astype(np.uint32) << np.uint32(8 * (byte % 4))
    return hashes * np.uint32(M) if length % 4 else hashes


def _mixed_lengths(data: ByteArray, starts: Int64Array, lengths: Int64Array) -> UInt32Array:
    """Hash keys sorted by falling length, so that the keys that still have a block are always the first ones."""
    hashes = (np.uint32(SEED) ^ lengths.astype(np.uint32)).astype(np.uint32)
    blocks = lengths // 4
    ends = -blocks  # rising
    done, alive = 0, int(np.count_nonzero(blocks))
    while alive > min(_FEW_KEYS, int(blocks[0]) - done):
        hashes[:alive] = _mix_block(hashes[:alive], _blocks(data, starts[:alive] + 4 * done))
        done += 1
        alive = int(ends.searchsorted(-done, side="left"))
    for row in range(alive):
        hashes[row] = _hash_blocks(data, int(starts[row]), done, int(blocks[row]), int(hashes[row]))
    tails = lengths % 4
    tailed = np.flatnonzero(tails)
    if len(tailed):
        tail_blocks = _tail_blocks(data, starts[tailed] + blocks[tailed] * 4, tails[tailed])
        hashes[tailed] = (hashes[tailed] ^ tail_blocks) * np.uint32(M)
    return hashes


def _hash_blocks(data: ByteArray, start: int, done: int, blocks: int, hashed: int) -> int:
    """Hash the remaining blocks of one long key: they are scrambled as a column, and only chained one by one."""
    stop = start + 4 * blocks
    for first in range(start + 4 * done, stop, _PIECE):
        chained = _scrambled(data[first : min(first + _PIECE, stop)].view("<u4")).tolist()
        for block, following in zip(chained[::2], chained[1::2], strict=False):
            hashed = (hashed * M ^ block) * M & _MASK ^ following  # one mask for two: high bits never move down
        if len(chained) % 2:
            hashed = hashed * M & _MASK ^ chained[-1]
    return hashed


def _finish(hashes: UInt32Array) -> UInt32Array:
    hashes = hashes ^ (hashes >> np.uint32(13))
    hashes *= np.uint32(M)
    hashes ^= hashes >> np.uint32(15)
    return hashes
