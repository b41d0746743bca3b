"""Reads Avro's scalar values from Arrow: numbers, bytes, strings, decimals, enumerations and logical types."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_producer.kernel.arrays import ArrowArray, BoolArray, ByteArray, Int64Array, numbers, view_of
from spark_producer.kernel.avro_nodes import NO_BYTES, ArrowLayout, AvroColumn, AvroNode, NodeKind
from spark_producer.kernel.column_views import BinaryColumn
from spark_producer.kernel.varint import encode_varint

_BYTE = np.dtype(np.uint8)
_UINT64 = np.dtype("<u8")
_DAY_US = 86_400_000_000
_UINT32_MAX = 2**32 - 1

_HEX: npt.NDArray[np.uint8] = np.full(256, 0xFF, dtype=np.uint8)
"""The number of each hexadecimal digit, and 255 for other bytes."""
for _digits, _first in ((b"0123456789", 0), (b"abcdef", 10), (b"ABCDEF", 10)):
    _HEX[np.frombuffer(_digits, _BYTE)] = np.arange(_first, _first + len(_digits), dtype=np.uint8)

_HYPHENS = [8, 13, 18, 23]
_DIGITS = [index for index in range(36) if index not in _HYPHENS]
"""The positions of hyphens and digits in a UUID's text (RFC 9562, section 4)."""


def read_longs(column: AvroColumn, node: AvroNode, array: ArrowArray) -> AvroColumn:
    """Read numbers, and times in the unit of the schema."""
    if not pa.types.is_integer(array.type):
        narrow = pa.types.is_date32(array.type) or pa.types.is_time32(array.type)
        array = array.view(pa.int32() if narrow else pa.int64())
    values = numbers(array).astype(np.int64, copy=False)
    if node.divisor != 1:
        values = np.floor_divide(values, node.divisor)
    if node.low is not None and node.high is not None:
        column = column.refusing((values < node.low) | (values > node.high), node.reason)
    return column._replace(longs=values if node.factor == 1 else values * node.factor)


def read_booleans(column: AvroColumn, _: AvroNode, array: ArrowArray) -> AvroColumn:
    """Read booleans, a bit each in Arrow."""
    bits = array.buffers()[1]
    if bits is None or not len(array):
        return column._replace(kind=NodeKind.FIXED, width=1, data=np.zeros(len(array), dtype=np.uint8))
    flags = np.unpackbits(view_of(bits, _BYTE), count=array.offset + len(array), bitorder="little")
    return column._replace(kind=NodeKind.FIXED, width=1, data=flags[array.offset :])


def read_floats(column: AvroColumn, node: AvroNode, array: ArrowArray) -> AvroColumn:
    """Read floats and doubles, and numbers of other types that they represent exactly."""
    width = 4 if node.shape is ArrowLayout.FLOAT else 8
    if array.type != (pa.float32() if width == 4 else pa.float64()):
        return _converted(column._replace(kind=NodeKind.FIXED, width=width), node, array)
    data = array.buffers()[1]
    found = (
        view_of(data, _BYTE, width * len(array), width * array.offset) if data is not None and len(array) else NO_BYTES
    )
    return column._replace(kind=NodeKind.FIXED, width=width, data=found)


def _converted(column: AvroColumn, node: AvroNode, array: ArrowArray) -> AvroColumn:
    values = numbers(array)
    with np.errstate(over="ignore", invalid="ignore"):
        found = values.astype(np.dtype("<f4" if column.width == 4 else "<f8"))
        if np.issubdtype(values.dtype, np.floating):
            exact = (found.astype(values.dtype) == values) | np.isnan(values)
        else:
            wide = found.astype(np.float64)
            inside = (wide >= -(2.0**63)) & (wide < 2.0**63)
            exact = inside & (np.where(inside, wide, 0.0).astype(np.int64) == values)
    return column.refusing(~exact, node.reason)._replace(data=found.view(np.uint8))


def read_bytes(column: AvroColumn, _: AvroNode, array: ArrowArray) -> AvroColumn:
    """Read bytes, and the bytes of strings."""
    large = pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type)
    found = BinaryColumn(array.view(pa.large_binary() if large else pa.binary()))
    offsets = checked(found.offsets.astype(np.int64, copy=False), len(found.data))
    return column._replace(kind=NodeKind.BYTES, data=found.data, offsets=offsets)


def read_raw(column: AvroColumn, node: AvroNode, array: ArrowArray) -> AvroColumn:
    """Read bytes that must be `width` each, for a type that is fixed."""
    found = read_bytes(column, node, array)._replace(kind=NodeKind.RAW)
    return found.refusing(np.diff(found.offsets) != node.width, f"it does not have {node.width} bytes")


def read_texts(column: AvroColumn, node: AvroNode, array: ArrowArray) -> AvroColumn:
    """Read strings, which Avro needs in UTF-8: Spark's may be any bytes, since a cast of binary does not check them."""
    found = read_bytes(column, node, array)
    data = found.data[found.offsets[0] : found.offsets[-1]]
    if not len(data) or data.max() < 0x80:  # nearly all are ASCII, for which this check is many times faster
        return found
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        bad = np.fromiter((not _is_text(array[index]) for index in range(found.length)), np.bool_, found.length)
        return found.refusing(bad, "it is not UTF-8")
    return found


def _is_text(value: Any) -> bool:
    if value.is_valid:
        try:
            str(value.as_buffer(), "utf-8")
        except UnicodeDecodeError:
            return False
    return True


def read_uuids(column: AvroColumn, node: AvroNode, array: ArrowArray) -> AvroColumn:
    """Read UUIDs from text, and return them as text or as 16 bytes."""
    found = read_bytes(column, node, array)
    firsts, whole = found.offsets[:-1], np.diff(found.offsets) == 36
    texts = np.zeros((found.length, 36), dtype=np.uint8)
    for index in range(36):
        texts[whole, index] = found.data[firsts[whole] + index]
    digits = _HEX[texts[:, _DIGITS]]
    good = (texts[:, _HYPHENS] == ord("-")).all(axis=1) & (digits != 0xFF).all(axis=1)
    found = found.refusing(~good, "it is not a UUID, such as 123e4567-e89b-12d3-a456-426614174000")
    if node.shape is ArrowLayout.UUID_TEXT:
        return found
    packed = np.ascontiguousarray(digits[:, 0::2] << 4 | (digits[:, 1::2] & 0x0F))
    return found._replace(kind=NodeKind.FIXED, width=16, data=packed.reshape(-1))


def read_decimals(column: AvroColumn, node: AvroNode, array: ArrowArray) -> AvroColumn:
    """Read 128-bit little-endian numbers; return them big-endian, without redundant sign bytes, or in a fixed width."""
    data = array.buffers()[1]
    if data is None or not len(array):
        whole: ByteArray = np.zeros((len(array), 16), dtype=np.uint8)
    else:
        whole = view_of(data, _BYTE, 16 * len(array), 16 * array.offset).reshape(-1, 16)[:, ::-1]
    if column.valid is not None:
        whole = np.where(column.valid[:, None], whole, np.uint8(0))
    if node.width:
        return _fixed_decimals(column, whole, node.width)
    lengths = _decimal_lengths(whole)
    kept = np.arange(16) >= 16 - lengths[:, None]
    if node.shape is ArrowLayout.BIG_DECIMAL:
        return _big_decimals(column, whole, kept, lengths, node.scale)
    return column._replace(kind=NodeKind.BYTES, data=whole[kept], offsets=_offsets(lengths))


def _big_decimals(column: AvroColumn, whole: ByteArray, kept: BoolArray, lengths: Int64Array, scale: int) -> AvroColumn:
    """Put the length before each number, and the scale after it (Avro's Java class Conversions.BigDecimalConversion)."""
    count = len(lengths)
    tail = np.frombuffer(encode_varint(scale), _BYTE)
    data = np.concatenate(((2 * lengths)[:, None].astype(np.uint8), whole, np.tile(tail, (count, 1))), axis=1)
    every = np.ones((count, 1), dtype=np.bool_)
    chosen = np.concatenate((every, kept, np.repeat(every, len(tail), axis=1)), axis=1)
    return column._replace(kind=NodeKind.BYTES, data=data[chosen], offsets=_offsets(lengths + 1 + len(tail)))


def _offsets(lengths: Int64Array) -> Int64Array:
    return np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(lengths)))


def _fixed_decimals(column: AvroColumn, whole: ByteArray, width: int) -> AvroColumn:
    """Change each number of 16 bytes to `width` bytes. It fits if the bytes that are dropped only repeat the sign."""
    signs = np.where(whole[:, max(0, 16 - width)] >= 0x80, np.uint8(0xFF), np.uint8(0))[:, None]
    if width > 16:
        whole = np.concatenate((np.repeat(signs, width - 16, axis=1), whole), axis=1)
    else:
        wide = (whole[:, : 16 - width] != signs).any(axis=1)
        column = column.refusing(wide, f"the decimal does not fit into {width} bytes")
        whole = whole[:, 16 - width :]
    return column._replace(kind=NodeKind.FIXED, width=width, data=np.ascontiguousarray(whole).reshape(-1))


def _decimal_lengths(whole: ByteArray) -> Int64Array:
    """Return the bytes that each big-endian number of 16 bytes needs: those of its absolute value and its sign.

    So -128 takes two, like 128, as fastavro writes it; Java writes one. Readers accept both.
    """
    negative = whole[:, 0] >= 0x80
    amount = np.where(negative[:, None], ~whole, whole)
    low, high = (np.ascontiguousarray(half[:, ::-1]).view(_UINT64)[:, 0] for half in (amount[:, 8:], amount[:, :8]))
    one = negative.astype(np.uint64)
    with np.errstate(over="ignore"):
        low = low + one
    high = high + (negative & (low == 0)).astype(np.uint64)
    digits = np.ones(len(whole), dtype=np.int64)
    for index in range(16):
        half, shift = (low, 8 * index + 7) if index < 8 else (high, 8 * index - 57)
        reaches = half >> np.uint64(shift) > 0
        if index < 8:
            reaches |= high > 0
        digits += reaches
    return np.minimum(digits, 16)


def read_durations(column: AvroColumn, _: AvroNode, array: ArrowArray) -> AvroColumn:
    """Read intervals; return months, days and milliseconds, as unsigned little-endian numbers of 32 bits."""
    months, days, micros, rest = _interval_parts(array)
    parts = np.stack((months, days, micros // 1000), axis=1)
    smallest, largest = parts.min(axis=1), parts.max(axis=1)
    column = column.refusing(smallest < 0, "it is negative, which Avro's duration cannot be")
    column = column.refusing(largest > _UINT32_MAX, "a part of it does not fit into Avro's duration")
    column = column.refusing(rest, "it has a fraction of a millisecond, which Avro's duration does not have")
    with np.errstate(over="ignore"):
        data = parts.astype(np.dtype("<u4"))
    return column._replace(kind=NodeKind.FIXED, width=12, data=data.view(np.uint8).reshape(-1))


def _interval_parts(array: ArrowArray) -> tuple[Int64Array, Int64Array, Int64Array, BoolArray]:
    """Return months, days, microseconds, and which rows have a fraction of a millisecond."""
    if pa.types.is_duration(array.type):
        micros = numbers(array.view(pa.int64())).astype(np.int64, copy=False)
        days = np.where(micros >= 0, micros // _DAY_US, 0)
        return np.zeros(len(array), dtype=np.int64), days, micros - days * _DAY_US, micros % 1000 != 0
    data = array.buffers()[1]
    kind = np.dtype([("months", "<i4"), ("days", "<i4"), ("nanos", "<i8")])
    if data is None or not len(array):
        parts = np.zeros(len(array), dtype=kind)
    else:
        parts = np.frombuffer(memoryview(data), kind, len(array), array.offset * kind.itemsize)
    nanos = parts["nanos"].astype(np.int64)
    return parts["months"].astype(np.int64), parts["days"].astype(np.int64), nanos // 1000, nanos % 1_000_000 != 0


def read_enums(column: AvroColumn, node: AvroNode, array: ArrowArray) -> AvroColumn:
    """Read strings, and return the indices of their symbols."""
    encoded = array.dictionary_encode()
    codes_by_symbol: dict[object, int] = {
        symbol.encode(errors="replace"): code for code, symbol in enumerate(node.symbols)
    }
    symbols = encoded.dictionary.cast(pa.large_binary()).to_pylist()  # a string of Spark may not be UTF-8
    known = np.array([codes_by_symbol.get(symbol, -1) for symbol in symbols] or [-1], dtype=np.int64)
    codes = known[numbers(encoded.indices, nulls=0)]
    return column.refusing(codes < 0, node.reason)._replace(longs=codes)


def checked(offsets: Int64Array, end: int) -> Int64Array:
    """Return the offsets, after checking them for the compiled encoder.

    Raises:
        ValueError: They point outside of their values.
    """
    if offsets[0] < 0 or offsets[-1] > end or bool((offsets[1:] < offsets[:-1]).any()):
        raise ValueError("the offsets of an Arrow array point outside of its values: the input is damaged")
    return np.ascontiguousarray(offsets)
