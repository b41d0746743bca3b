"""Converts Arrow columns to the input of the Protobuf encoders, by a plan: numbers, bytes and offsets in numpy.

What is not written is null in it: absent fields, and defaults of fields without presence.
"""

from __future__ import annotations

import re
from typing import Any, cast

import numpy as np
import pyarrow as pa

from spark_producer.kernel.arrays import ArrowArray, BoolArray, Int64Array, is_valid, numbers, view_of
from spark_producer.kernel.avro_columns import avro_column, list_offsets
from spark_producer.kernel.avro_nodes import AvroColumn, NodeKind, SchemaMismatch, empty_column
from spark_producer.kernel.avro_scalars import checked
from spark_producer.kernel.protobuf_nodes import Oneof, ProtobufNode, Source
from spark_producer.kernel.varint import zigzag64

_MICROS = 1_000_000
_NUMBER = re.compile(rb"-?(0|[1-9][0-9]{0,9})")
"""The number of an enum without a name, as the decoder shows it."""


def protobuf_column(node: ProtobufNode, array: ArrowArray, *, top: bool = True) -> AvroColumn:
    """Return the values of `array`, whose type is the one that `node` was planned for. A null `top` row has no bytes."""
    if isinstance(array, pa.DictionaryArray):
        array = array.dictionary_decode()
    column = _READERS[node.source](node, array)
    if column.valid is not None and node.null_reason and not top:
        column = column._replace(mismatches=(*column.mismatches, SchemaMismatch(~column.valid, node.null_reason)))
    return _without_defaults(column) if node.implicit else column


def _without_defaults(column: AvroColumn) -> AvroColumn:
    """Return the column in which zeros and empty values are null. Only the bits of a zero count, so -0.0 is written."""
    if column.kind is NodeKind.VARINT:
        written: BoolArray = column.longs != 0
    elif column.kind is NodeKind.FIXED:
        written = column.data.view(np.dtype(f"u{column.width}")) != 0
    else:
        written = np.diff(column.offsets) > 0
    if column.valid is not None:
        written &= column.valid
    return column if written.all() else column._replace(valid=written)


def _empty(node: ProtobufNode, array: ArrowArray) -> AvroColumn:
    return empty_column(NodeKind.VARINT, len(array), node.path, is_valid(array) if array.null_count else None)


def _nothing(node: ProtobufNode, array: ArrowArray) -> AvroColumn:
    nulls: BoolArray = np.zeros(len(array), np.bool_)
    return empty_column(NodeKind.VARINT, len(array), node.path, nulls)._replace(longs=np.zeros(len(array), np.int64))


def _scalar(node: ProtobufNode, array: ArrowArray) -> AvroColumn:
    assert node.scalar is not None
    return _number(node, avro_column(node.scalar, array))


def _number(node: ProtobufNode, column: AvroColumn) -> AvroColumn:
    """Return whole numbers in the form in which they are written."""
    if column.kind is not NodeKind.VARINT:
        return column
    if node.width:
        data = column.longs.astype(np.dtype(f"<i{node.width}"), copy=False).view(np.uint8)
        return column._replace(kind=NodeKind.FIXED, width=node.width, data=data)
    return column._replace(longs=zigzag64(column.longs).view(np.int64)) if node.zigzag else column


def _unsigned(node: ProtobufNode, array: ArrowArray) -> AvroColumn:
    column, data = _empty(node, array), array.buffers()[1]
    if data is None or not len(array):
        return _number(node, column._replace(longs=np.zeros(len(array), np.int64)))
    parts = view_of(data, np.dtype("<i8"), 2 * len(array), 16 * array.offset).reshape(-1, 2)
    column = column.refusing(parts[:, 1] != 0, "it is negative, or does not fit into 64 bits")
    return _number(node, column._replace(longs=np.ascontiguousarray(parts[:, 0])))


def _enum(node: ProtobufNode, array: ArrowArray) -> AvroColumn:
    """Read the names of symbols, or their numbers, which a closed enum must have."""
    known = {name.encode(): number for name, number in node.symbols}
    inside = set(known.values())
    column = _empty(node, array)
    if pa.types.is_integer(array.type):
        longs = numbers(array).astype(np.int64, copy=False)
        low, high = -(1 << 31), (1 << 31) - 1
        bad = ~np.isin(longs, list(inside)) if node.closed else (longs < low) | (longs > high)
        return _number(node, column.refusing(bad, _unknown(node))._replace(longs=longs))
    encoded: Any = array.dictionary_encode()
    texts = encoded.dictionary.cast(pa.large_binary()).to_pylist()  # a string of Spark may not be UTF-8
    found = [_symbol(text, known, None if not node.closed else inside) for text in texts] or [None]
    codes = numbers(encoded.indices, nulls=0)
    bad = np.array([each is None for each in found], np.bool_)[codes]
    longs = np.array([each or 0 for each in found], np.int64)[codes]
    return _number(node, column.refusing(bad, _unknown(node))._replace(longs=longs))


def _symbol(text: bytes, known: dict[bytes, int], allowed: set[int] | None) -> int | None:
    number = known.get(text)
    if number is None and _NUMBER.fullmatch(text):
        number = int(text)
        if not -(1 << 31) <= number < 1 << 31 or (allowed is not None and number not in allowed):
            return None
    return number


def _unknown(node: ProtobufNode) -> str:
    assert node.scalar is not None
    return node.scalar.reason


def _struct(node: ProtobufNode, array: ArrowArray) -> AvroColumn:
    struct = cast("pa.StructArray", array)
    fields = (struct.field(struct.type.get_field_index(name)) for name in node.names)  # without the struct's own nulls
    children = tuple(
        protobuf_column(child, field, top=False) for child, field in zip(node.children, fields, strict=True)
    )
    column = _empty(node, array)._replace(kind=NodeKind.RECORD, children=children)
    for oneof in node.oneofs:
        column = column.refusing(_several(children, oneof), oneof.reason)
    return column


def _several(children: tuple[AvroColumn, ...], oneof: Oneof) -> BoolArray:
    """Return which messages have several fields of a oneof."""
    count: Int64Array = np.zeros(children[0].length, np.int64)
    for member in oneof.members:
        valid = children[member].valid
        count += 1 if valid is None else valid
    found: BoolArray = count > 1
    return found


def _wrapped(node: ProtobufNode, array: ArrowArray) -> AvroColumn:
    """Read the value of a message that stands for one that may be null."""
    child = protobuf_column(node.children[0], array)
    return _empty(node, array)._replace(kind=NodeKind.RECORD, children=(child,))


def _time(node: ProtobufNode, array: ArrowArray) -> AvroColumn:
    """Split microseconds into seconds and nanoseconds, which have the sign of the seconds in a duration."""
    micros = numbers(array.view(pa.int64())).astype(np.int64, copy=False)
    seconds = np.floor_divide(micros, _MICROS)
    rest = micros - seconds * _MICROS
    if node.source is Source.DURATION:
        up = (micros < 0) & (rest > 0)
        seconds, rest = seconds + up, rest - up * _MICROS
    parts = zip(node.children, (seconds, rest * 1000), strict=True)
    children = (empty_column(NodeKind.VARINT, len(array), inner.path)._replace(longs=longs) for inner, longs in parts)
    return _empty(node, array)._replace(kind=NodeKind.RECORD, children=tuple(map(_without_defaults, children)))


def _list(node: ProtobufNode, array: ArrowArray) -> AvroColumn:
    offsets, first, last = list_offsets(array)
    items: ArrowArray = cast("Any", array).values.slice(first, last - first)
    return _items(node, array, offsets - first, protobuf_column(node.children[0], items, top=False))


def _map(node: ProtobufNode, array: ArrowArray) -> AvroColumn:
    """Read keys and values, both of which are always written."""
    offsets, first, last = list_offsets(array)
    entries, entry = cast("pa.MapArray[Any, Any]", array), node.children[0]
    sides = [side.slice(first, last - first) for side in (entries.keys, entries.items)]
    pair = tuple(protobuf_column(child, side, top=False) for child, side in zip(entry.children, sides, strict=True))
    pairs = empty_column(NodeKind.RECORD, last - first, entry.path)._replace(children=pair)
    return _items(node, array, offsets - first, pairs)


def _items(node: ProtobufNode, array: ArrowArray, offsets: Int64Array, items: AvroColumn) -> AvroColumn:
    offsets = checked(offsets, items.length)
    return _empty(node, array)._replace(kind=NodeKind.ARRAY, offsets=offsets, children=(items,))


_READERS = {
    Source.SCALAR: _scalar, Source.UNSIGNED: _unsigned, Source.ENUM: _enum, Source.STRUCT: _struct,
    Source.WRAPPED: _wrapped, Source.TIMESTAMP: _time, Source.DURATION: _time, Source.LIST: _list, Source.MAP: _map,
    Source.NOTHING: _nothing,
}  # fmt: skip
