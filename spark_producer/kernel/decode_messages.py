"""Decodes V0 and V1 messages as columns with numpy only.

It finds the positions of the fields of each message (Kafka's LegacyRecord), and the first malformed message.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from spark_producer.kernel.arrays import BoolArray, ByteArray, Int64Array

_LOG_OVERHEAD = 12
"""The size of offset and size."""
_SIZE_AND_MAGIC = struct.Struct(">i4xb")
_MIN_SIZE = 14
_KEY_V0, _KEY_V1 = 18, 26
"""The position of the key length in V0, and in V1, which has a timestamp before it."""


class DecodedMessages(NamedTuple):
    """The well-formed messages before the first malformed one, row by row; positions are in bytes, a length of -1 is null.

    `timestamps` holds -1 for V0, which has none.
    """

    offsets: Int64Array
    checksums: Int64Array
    magics: Int64Array
    attributes: Int64Array
    timestamps: Int64Array
    key_starts: Int64Array
    key_lengths: Int64Array
    value_starts: Int64Array
    value_lengths: Int64Array


def message_starts(data: memoryview, position: int, max_size: int) -> Int64Array:
    """Return the start of each complete V0 or V1 message from `position` on, and the position after the last one.

    It stops before another magic, an impossible size, one above `max_size`, or one that `data` does not hold.
    """
    return np.fromiter(_starts(data, position, max_size), dtype=np.int64)


def _starts(data: memoryview, at: int, max_size: int) -> Iterator[int]:
    read, last = _SIZE_AND_MAGIC.unpack_from, len(data) - _KEY_V0
    limit = max_size - _LOG_OVERHEAD
    while True:
        yield at
        if at > last:
            return
        size, magic = read(data, at + 8)
        if magic >> 1 or not _MIN_SIZE <= size <= limit or at + _LOG_OVERHEAD + size > len(data):
            return
        at += _LOG_OVERHEAD + size


def decode_messages(data: ByteArray, starts: Int64Array) -> DecodedMessages:
    """Decode the messages that start at `starts`, whose last element is the position after the last message.

    Each has at least the 26 bytes of an empty V0 message and a magic of 0 or 1, as `message_starts` finds them.
    """
    begins, ends = starts[:-1], starts[1:]
    magics = _integers(data, begins + 16, "u1")
    key_at = begins + np.where(magics == 1, _KEY_V1, _KEY_V0)
    key_lengths = _integers(data, key_at, ">i4")
    value_at = key_at + 4 + np.maximum(key_lengths, 0)
    value_lengths = _integers(data, value_at, ">i4")
    key_starts, value_starts = key_at + 4, value_at + 4
    wrong: BoolArray = (key_lengths < -1) | (value_lengths < -1)
    wrong |= value_starts + np.maximum(value_lengths, 0) != ends
    good = int(wrong.argmax()) if wrong.any() else len(begins)
    rows = slice(good)
    return DecodedMessages(
        _integers(data, begins[rows], ">i8"),
        _integers(data, begins[rows] + 12, ">u4"),
        magics[rows],
        _integers(data, begins[rows] + 17, "u1"),
        np.where(magics[rows] == 1, _integers(data, begins[rows] + 18, ">i8"), -1),
        key_starts[rows],
        key_lengths[rows],
        value_starts[rows],
        value_lengths[rows],
    )


def _integers(data: ByteArray, at: Int64Array, kind: str) -> Int64Array:
    """Return the integers of type `kind` at any positions; a position outside of `data` yields another integer."""
    width = np.dtype(kind).itemsize
    every = np.ndarray((len(data) - width + 1,), dtype=kind, buffer=data, strides=(1,))
    return every[np.minimum(at, len(every) - 1)].astype(np.int64)
