"""The portable encoder of Avro: whole columns at a time, field by field (Avro 1.12 specification, Binary Encoding).

The sizes of all values are computed first. Their sums are the positions of the values, to which each field is then scattered.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_producer.kernel.arrays import MAX_BINARY_BYTES, BoolArray, ByteArray, BytesArray, Int64Array, buffer_of
from spark_producer.kernel.avro_nodes import NO_MARK, AvroColumn, NodeKind
from spark_producer.kernel.varint import varint_sizes, zigzag64


def encode_avro(column: AvroColumn, prefix: bytes) -> tuple[Int64Array, ByteArray]:
    """Return the offsets (length + 1) and the bytes of each row: `prefix` and the encoded value. A null row has no bytes.

    Every value must match its schema (`mismatched_rows`).
    """
    encoded = _measure(column)
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


def binary_array(offsets: Int64Array, data: ByteArray, valid: BoolArray | None) -> BytesArray:
    """Return encoded rows as an Arrow array: `binary`, or `large_binary` if they are too long for that."""
    kind = pa.binary() if len(data) <= MAX_BINARY_BYTES else pa.large_binary()
    narrow = offsets.astype(np.int32) if len(data) <= MAX_BINARY_BYTES else offsets
    bits = None if valid is None else buffer_of(np.packbits(valid, bitorder="little"))
    return pa.Array.from_buffers(kind, len(offsets) - 1, [bits, buffer_of(narrow), buffer_of(data)])


class _Encoded(NamedTuple):
    """A column, the bytes of each of its values with the mark of its union, and its children in the same form."""

    column: AvroColumn
    sizes: Int64Array
    children: tuple[_Encoded, ...]


def _measure(column: AvroColumn) -> _Encoded:
    children = tuple(_measure(child) for child in column.children)
    sizes = _body_sizes(column, children)
    if column.value_mark != NO_MARK:
        sizes = sizes + 1
    if column.valid is not None:
        sizes = np.where(column.valid, sizes, 0 if column.null_mark == NO_MARK else 1)
    return _Encoded(column, sizes, children)


def _body_sizes(column: AvroColumn, children: tuple[_Encoded, ...]) -> Int64Array:
    if column.kind is NodeKind.VARINT:
        return varint_sizes(column.longs)
    if column.kind in (NodeKind.FIXED, NodeKind.CONSTANT):
        return np.full(column.length, column.width, dtype=np.int64)
    if column.kind in (NodeKind.BYTES, NodeKind.RAW):
        lengths = np.diff(column.offsets)
        return lengths + varint_sizes(lengths) if column.kind is NodeKind.BYTES else lengths
    if column.kind is NodeKind.UNION:
        sizes = np.zeros(column.length, dtype=np.int64)
        for index, child in enumerate(children):
            sizes = np.where(column.longs == index, child.sizes, sizes)
        return sizes
    if column.kind is NodeKind.RECORD:
        total = np.zeros(column.length, dtype=np.int64)
        for child in children:
            total += child.sizes
        return total
    item_ends = run_ends(children[0].sizes)
    return _block_heads(column) + item_ends[column.offsets[1:]] - item_ends[column.offsets[:-1]] + 1


def run_ends(sizes: Int64Array) -> Int64Array:
    """Return where each of these runs of bytes ends, after a zero."""
    item_ends = np.zeros(len(sizes) + 1, dtype=np.int64)
    np.cumsum(sizes, out=item_ends[1:])
    return item_ends


def _block_heads(column: AvroColumn) -> Int64Array:
    """Return the bytes of the count before the items of each array; 0 for an array without items."""
    counts = np.diff(column.offsets)
    return np.where(counts > 0, varint_sizes(counts), 0)


def _write(encoded: _Encoded, starts: Int64Array, live: BoolArray | None, out: ByteArray) -> None:
    """Write the `live` values (None: all) to their positions; other values belong to a null."""
    column = encoded.column
    if column.value_mark != NO_MARK:
        marks = np.full(column.length, column.value_mark, dtype=np.uint8)
        if column.valid is not None:
            marks[~column.valid] = max(0, column.null_mark)  # without a mark they are below a null, and are not written
        chosen = slice(None) if live is None else live
        out[starts[chosen]] = marks[chosen]
        starts = starts + 1
    elif column.valid is not None and column.null_mark != NO_MARK:  # a union whose branches have their own marks
        nulls = ~column.valid if live is None else live & ~column.valid
        out[starts[nulls]] = column.null_mark
    if column.valid is not None:
        live = column.valid if live is None else live & column.valid
    if column.kind is NodeKind.RECORD:
        for child in encoded.children:
            _write(child, starts, live, out)
            starts = starts + child.sizes
    elif column.kind is NodeKind.ARRAY:
        _write_arrays(encoded, starts, live, out)
    elif column.kind is NodeKind.UNION:
        for index, child in enumerate(encoded.children):
            chosen_here = column.longs == index
            _write(child, starts, chosen_here if live is None else live & chosen_here, out)
    else:
        _write_plain(column, starts, live, out)


def _write_plain(column: AvroColumn, starts: Int64Array, live: BoolArray | None, out: ByteArray) -> None:
    positions = starts if live is None else starts[live]
    if column.kind is NodeKind.VARINT:
        _put_varints(out, positions, column.longs if live is None else column.longs[live])
    elif column.kind is NodeKind.FIXED:
        values = column.data.reshape(column.length, column.width)
        put_fixed(out, positions, values if live is None else values[live])
    elif column.kind is NodeKind.CONSTANT:
        for byte, value in enumerate(column.data):
            out[positions + byte] = value
    else:
        firsts, lengths = column.offsets[:-1], np.diff(column.offsets)
        if live is not None:
            firsts, lengths = firsts[live], lengths[live]
        if column.kind is NodeKind.BYTES:
            _put_varints(out, positions, lengths)
            positions = positions + varint_sizes(lengths)
        put_bytes(out, positions, column.data, firsts, lengths)


def _write_arrays(encoded: _Encoded, starts: Int64Array, live: BoolArray | None, out: ByteArray) -> None:
    column, items = encoded.column, encoded.children[0]
    counts, heads, item_ends = np.diff(column.offsets), _block_heads(column), run_ends(items.sizes)
    inner = starts + heads - item_ends[column.offsets[:-1]]
    chosen = counts > 0 if live is None else (counts > 0) & live
    _put_varints(out, starts[chosen], counts[chosen])
    closing = inner + item_ends[column.offsets[1:]]
    out[closing if live is None else closing[live]] = 0
    of_items = None if live is None else np.repeat(live, counts)
    _write(items, np.repeat(inner, counts) + item_ends[:-1], of_items, out)


def _put_varints(out: ByteArray, positions: Int64Array, values: Int64Array) -> None:
    put_unsigned(out, positions, zigzag64(values))


def put_unsigned(out: ByteArray, positions: Int64Array, rest: npt.NDArray[np.uint64]) -> None:
    """Write numbers without a sign as varints to their positions."""
    seven, more = np.uint64(7), np.uint64(0x80)
    while len(positions):
        more_bytes = rest >= more
        out[positions] = (rest & np.uint64(0x7F)) | (more_bytes * more)
        positions, rest = positions[more_bytes] + 1, rest[more_bytes] >> seven


def put_fixed(out: ByteArray, positions: Int64Array, values: npt.NDArray[np.uint8]) -> None:
    """Write values of equally many bytes, a row of `values` each, to their positions."""
    for byte in range(values.shape[1]):
        out[positions + byte] = values[:, byte]


def put_bytes(out: ByteArray, positions: Int64Array, data: ByteArray, firsts: Int64Array, lengths: Int64Array) -> None:
    """Copy bytes of `data`, from `firsts` on, to their positions."""
    run = np.arange(int(lengths.sum()))
    before = np.cumsum(lengths) - lengths
    out[np.repeat(positions - before, lengths) + run] = data[np.repeat(firsts - before, lengths) + run]
