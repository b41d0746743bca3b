"""Message sets, the formats before Kafka 0.11: V0 (before 0.10, no timestamps) and V1 (0.10).

The layout, the CRC-32 and the wrapper message that holds a compressed set are those of Kafka's LegacyRecord. The module
serves archives and tools of that time: brokers from 4.0 on take V2 only. Rows are written as columns; the CRC, one for
each message, costs a call for each row.
"""

from __future__ import annotations

import struct
import zlib
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_producer.kernel import ArrangedRows
from spark_producer.kernel.arrays import BinaryArray, Int64Array, buffer_of, from_numbers, join, take, values_of
from spark_producer.kernel.column_views import encoded_lengths
from spark_producer.record.batch_v2 import LOG_OVERHEAD, TIMESTAMP_TYPE_BIT, TimestampType

OVERHEAD = (14, 22)
"""The bytes of a message besides key and value, by magic."""
CRC_START = 16
"""The CRC covers everything from the magic to the end of the value."""
_CRC_AT = 12

_COMMON = [("offset", ">i8"), ("size", ">i4"), ("crc", ">u4"), ("magic", "i1"), ("attributes", "i1")]
_HEADS = (
    np.dtype([*_COMMON, ("key_length", ">i4")]),
    np.dtype([*_COMMON, ("timestamp", ">i8"), ("key_length", ">i4")]),
)
"""The layout of a message up to its key, by magic."""
_WRAPPERS = (struct.Struct(">qiIbbii"), struct.Struct(">qiIbbqii"))
_CRC = struct.Struct(">I")


def message_sizes(rows: ArrangedRows, first: int, stop: int, magic: int) -> Int64Array:
    """Return the exact bytes of the messages of rows `first` … `stop` - 1, offset and size included."""
    columns, chosen = rows.columns, rows.rows[first:stop]
    sizes = columns.value.lengths[chosen] + (LOG_OVERHEAD + OVERHEAD[magic])
    return sizes if columns.key is None else sizes + columns.key.lengths[chosen]


def encode_messages(
    rows: ArrangedRows,
    first: int,
    stop: int,
    first_offset: int,
    magic: int,
    timestamp: int | None,
    out: memoryview,
    position: int,
    limit: int,
) -> tuple[int, int, int]:
    """Write rows `first` … `stop` - 1 as messages into `out[position:limit]`, ending before the first that does not fit.

    Offsets count up from `first_offset`. `timestamp` is that of all messages, with the bit for log append time; if it is
    None, each row has its own. Messages cannot hold headers: the caller must ensure that there are none.
    Return (next row, new position, largest timestamp of the rows or -1).
    """
    # Only as many rows are taken as could fit, and one more; otherwise each set would measure all remaining rows.
    stop = min(stop, first + 1 + max(0, limit - position) // (LOG_OVERHEAD + OVERHEAD[magic]))
    ends = np.cumsum(message_sizes(rows, first, stop, magic)) + position
    count = int(np.searchsorted(ends, limit, side="right"))
    if count == 0:
        return first, position, -1
    stop, ends = first + count, ends[:count]
    starts = np.concatenate(([position], ends[:-1]))
    own_times = _timestamps(rows, first, stop)
    heads = np.zeros(count, dtype=_HEADS[magic])
    heads["offset"] = np.arange(count) + first_offset
    heads["size"] = ends - starts - LOG_OVERHEAD
    heads["magic"] = magic
    if magic:
        heads["timestamp"] = own_times if timestamp is None else timestamp
        heads["attributes"] = 0 if timestamp is None else TIMESTAMP_TYPE_BIT
    _fill(heads, rows, first, stop, out[position : int(ends[-1])])
    _write_crcs(out, starts, ends)
    return stop, int(ends[-1]), int(np.max(own_times))


def _timestamps(rows: ArrangedRows, first: int, stop: int) -> Int64Array | int:
    timestamps = rows.columns.timestamps
    return timestamps if isinstance(timestamps, int) else timestamps[rows.rows[first:stop]]


def _fill(heads: npt.NDArray[Any], rows: ArrangedRows, first: int, stop: int, out: memoryview) -> None:
    """Write heads, keys, value lengths and values, row by row."""
    chosen = rows.rows[first:stop]
    key, value = rows.columns.key, rows.columns.value
    heads["key_length"] = -1 if key is None else encoded_lengths(key)[chosen]
    indices, parts = from_numbers(chosen), [_items(heads)]
    if key is not None:
        parts.append(take(key.array, indices))
    parts += [_items(encoded_lengths(value)[chosen].astype(">i4")), take(value.array, indices)]
    out[:] = values_of(join(parts))[: len(out)]


def _items(values: npt.NDArray[Any]) -> BinaryArray:
    """Return an array of equally wide items as an Arrow binary array."""
    offsets = np.arange(len(values) + 1, dtype=np.int32) * np.int32(values.itemsize)
    return pa.Array.from_buffers(pa.binary(), len(values), [None, buffer_of(offsets), buffer_of(values)])


def _write_crcs(out: memoryview, starts: Int64Array, ends: Int64Array) -> None:
    spans = zip((starts + CRC_START).tolist(), ends.tolist(), strict=True)
    crcs = np.array([zlib.crc32(out[start:end]) for start, end in spans], dtype=">u4")
    positions = (starts + _CRC_AT)[:, np.newaxis] + np.arange(4)
    np.frombuffer(out, dtype=np.uint8)[positions] = crcs.view(np.uint8).reshape(-1, 4)


def wrapper_size(magic: int) -> int:
    """Return the bytes of a wrapper message before the compressed set that is its value."""
    return LOG_OVERHEAD + OVERHEAD[magic]


def write_wrapper(
    message: memoryview, magic: int, codec: int, last_offset: int, timestamp_type: TimestampType, timestamp: int
) -> None:
    """Write a wrapper message around its value, the compressed set, which is already in `message`.

    `last_offset` is that of the last inner message. `timestamp` is the largest of theirs, or the log append time.
    """
    size = len(message) - LOG_OVERHEAD
    attributes = codec | (TIMESTAMP_TYPE_BIT if timestamp_type is TimestampType.LOG_APPEND_TIME else 0)
    times = (timestamp,) if magic else ()
    value_length = len(message) - wrapper_size(magic)
    _WRAPPERS[magic].pack_into(message, 0, last_offset, size, 0, magic, attributes, *times, -1, value_length)
    _CRC.pack_into(message, _CRC_AT, zlib.crc32(message[CRC_START:]))
