"""The portable encoder of Protobuf: whole columns at a time, field by field (Protobuf, Encoding).

As in `avro`, the sizes of all values are computed first. Fields are written in the order of their numbers.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from spark_producer.kernel.arrays import BoolArray, ByteArray, Int64Array
from spark_producer.kernel.avro import put_bytes, put_fixed, put_unsigned, run_ends
from spark_producer.kernel.avro_nodes import AvroColumn, NodeKind
from spark_producer.kernel.protobuf_nodes import ProtobufNode, Wrapping
from spark_producer.kernel.varint import unsigned_varint_sizes

_END_GROUP = 4
"""The wire type of a group's end; its begin has the one before."""


def encode_protobuf(node: ProtobufNode, column: AvroColumn, prefix: bytes) -> tuple[Int64Array, ByteArray]:
    """Return the offsets (length + 1) and the bytes of each row: `prefix` and the encoded message. A null row has no bytes.

    Every value must match its schema (`mismatched_rows`).

    Args:
        node: The plan of a message.
        column: The values that `protobuf_column` read by that plan.
        prefix: The bytes before each message.
    """
    encoded = _measure(node, column)
    sizes = encoded.sizes + len(prefix)
    if column.valid is not None:
        sizes = np.where(column.valid, sizes, 0)
    offsets = run_ends(sizes)
    out: ByteArray = np.empty(int(offsets[-1]), dtype=np.uint8)
    starts = offsets[:-1]
    live = starts if column.valid is None else starts[column.valid]
    for index, byte in enumerate(prefix):
        out[live + index] = byte
    _write(encoded, starts + len(prefix), column.valid, out)
    return offsets, out


class _Encoded(NamedTuple):
    """A column with the bytes of its values: those of the content, and all of them, which are 0 where nothing is written."""

    node: ProtobufNode
    column: AvroColumn
    contents: Int64Array
    sizes: Int64Array
    written: BoolArray | None
    children: tuple[_Encoded, ...]


def _measure(node: ProtobufNode, column: AvroColumn) -> _Encoded:
    pairs = zip(node.children, column.children, strict=True)
    children = tuple(_measure(inner, child) for inner, child in pairs)
    contents = _content_sizes(column, children)
    tag = int(unsigned_varint_sizes(np.array([node.tag], np.uint64))[0]) if node.tag else 0
    sizes = contents + tag
    if node.wrapping is Wrapping.LENGTH or column.kind is NodeKind.BYTES:
        sizes = sizes + unsigned_varint_sizes(contents.view(np.uint64))
    elif node.wrapping is Wrapping.GROUP:
        sizes = sizes + tag
    written = column.valid
    if column.kind is NodeKind.ARRAY and node.wrapping is Wrapping.LENGTH:
        written = contents > 0 if written is None else written & (contents > 0)
    if written is not None:
        sizes = np.where(written, sizes, 0)
    return _Encoded(node, column, contents, sizes, written, children)


def _content_sizes(column: AvroColumn, children: tuple[_Encoded, ...]) -> Int64Array:
    if column.kind is NodeKind.VARINT:
        return unsigned_varint_sizes(column.longs.view(np.uint64))
    if column.kind is NodeKind.FIXED:
        return np.full(column.length, column.width, dtype=np.int64)
    if column.kind is NodeKind.BYTES:
        return np.diff(column.offsets)
    if column.kind is NodeKind.RECORD:
        total = np.zeros(column.length, dtype=np.int64)
        for child in children:
            total += child.sizes
        return total
    item_ends = run_ends(children[0].sizes)
    return item_ends[column.offsets[1:]] - item_ends[column.offsets[:-1]]


def _write(encoded: _Encoded, starts: Int64Array, live: BoolArray | None, out: ByteArray) -> None:
    """Write the `live` values (None: all) to their positions."""
    node, column = encoded.node, encoded.column
    if encoded.written is not None:
        live = encoded.written if live is None else live & encoded.written
    chosen = slice(None) if live is None else live
    if node.tag:
        starts = starts + _put_same(out, starts[chosen], node.tag)
    if node.wrapping is Wrapping.LENGTH or column.kind is NodeKind.BYTES:
        lengths = encoded.contents.view(np.uint64)
        put_unsigned(out, starts[chosen], lengths[chosen])
        starts = starts + unsigned_varint_sizes(lengths)
    elif node.wrapping is Wrapping.GROUP:
        _put_same(out, (starts + encoded.contents)[chosen], (node.tag & ~7) | _END_GROUP)
    if column.kind is NodeKind.RECORD:
        for child in encoded.children:
            _write(child, starts, live, out)
            starts = starts + child.sizes
    elif column.kind is NodeKind.ARRAY:
        items, counts = encoded.children[0], np.diff(column.offsets)
        item_ends = run_ends(items.sizes)
        inner = np.repeat(starts - item_ends[column.offsets[:-1]], counts) + item_ends[:-1]
        _write(items, inner, None if live is None else np.repeat(live, counts), out)
    elif column.kind is NodeKind.VARINT:
        put_unsigned(out, starts[chosen], column.longs.view(np.uint64)[chosen])
    elif column.kind is NodeKind.FIXED:
        put_fixed(out, starts[chosen], column.data.reshape(column.length, column.width)[chosen])
    else:
        put_bytes(out, starts[chosen], column.data, column.offsets[:-1][chosen], encoded.contents[chosen])


def _put_same(out: ByteArray, positions: Int64Array, value: int) -> int:
    """Write one varint to all positions; return its bytes."""
    size = 0
    while True:
        more = value >= 0x80
        out[positions + size] = value & 0x7F | (0x80 if more else 0)
        size, value = size + 1, value >> 7
        if not more:
            return size
