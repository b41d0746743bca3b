"""The portable encoder of Avro: whole columns at a time, field by field (Avro 1.12 specification, Binary Encoding).

The size of every value comes first. Their sums say where each value goes, and every field is then scattered to its places.
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
    """Return the offsets (length + 1) and the bytes of each row's encoded value behind `prefix`. A null row has no bytes.

    No value may be unfit (`unfit_rows`).
    """
    laid = _lay(column)
    sizes = laid.sizes + len(prefix)
    if column.valid is not None:
        sizes = np.where(column.valid, sizes, 0)
    offsets = np.zeros(column.length + 1, dtype=np.int64)
    np.cumsum(sizes, out=offsets[1:])
    out: ByteArray = np.empty(int(offsets[-1]), dtype=np.uint8)
    starts = offsets[:-1]
    live = starts if column.valid is None else starts[column.valid]
    for place, byte in enumerate(prefix):
        out[live + place] = byte
    _write(laid, starts + len(prefix), column.valid, out)
    return offsets, out


def binary_array(offsets: Int64Array, data: ByteArray, valid: BoolArray | None) -> BytesArray:
    """Return encoded rows as an Arrow array: `binary`, or `large_binary` where that does not reach."""
    kind = pa.binary() if len(data) <= MAX_BINARY_BYTES else pa.large_binary()
    narrow = offsets.astype(np.int32) if len(data) <= MAX_BINARY_BYTES else offsets
    bits = None if valid is None else buffer_of(np.packbits(valid, bitorder="little"))
    return pa.Array.from_buffers(kind, len(offsets) - 1, [bits, buffer_of(narrow), buffer_of(data)])


class _Encoded(NamedTuple):
    """A column, the bytes of each of its values with the mark of its union, and its children in the same form."""

    column: AvroColumn
    sizes: Int64Array
    children: tuple[_Encoded, ...]


def _lay(column: AvroColumn) -> _Encoded:
    children = tuple(_lay(child) for child in column.children)
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
        for place, child in enumerate(children):
            sizes = np.where(column.longs == place, child.sizes, sizes)
        return sizes
    if column.kind is NodeKind.RECORD:
        total = np.zeros(column.length, dtype=np.int64)
        for child in children:
            total += child.sizes
        return total
    ends = _ends(children[0].sizes)
    return _block_heads(column) + ends[column.offsets[1:]] - ends[column.offsets[:-1]] + 1


def _ends(sizes: Int64Array) -> Int64Array:
    ends = np.zeros(len(sizes) + 1, dtype=np.int64)
    np.cumsum(sizes, out=ends[1:])
    return ends


def _block_heads(column: AvroColumn) -> Int64Array:
    """Return the bytes of the count before the items of each array; one without items has none."""
    counts = np.diff(column.offsets)
    return np.where(counts > 0, varint_sizes(counts), 0)


def _write(laid: _Encoded, starts: Int64Array, live: BoolArray | None, out: ByteArray) -> None:
    """Write the values to their places; those that are not `live` (None: all are) belong to a null, and have no place."""
    column = laid.column
    if column.value_mark != NO_MARK:
        marks = np.full(column.length, column.value_mark, dtype=np.uint8)
        if column.valid is not None:
            marks[~column.valid] = max(0, column.null_mark)  # without a mark they lie below a null, and are not written
        chosen = slice(None) if live is None else live
        out[starts[chosen]] = marks[chosen]
        starts = starts + 1
    elif column.valid is not None and column.null_mark != NO_MARK:  # a union whose branches bring marks of their own
        nulls = ~column.valid if live is None else live & ~column.valid
        out[starts[nulls]] = column.null_mark
    if column.valid is not None:
        live = column.valid if live is None else live & column.valid
    if column.kind is NodeKind.RECORD:
        for child in laid.children:
            _write(child, starts, live, out)
            starts = starts + child.sizes
    elif column.kind is NodeKind.ARRAY:
        _write_arrays(laid, starts, live, out)
    elif column.kind is NodeKind.UNION:
        for place, child in enumerate(laid.children):
            takes_it = column.longs == place
            _write(child, starts, takes_it if live is None else live & takes_it, out)
    else:
        _write_plain(column, starts, live, out)


def _write_plain(column: AvroColumn, starts: Int64Array, live: BoolArray | None, out: ByteArray) -> None:
    places = starts if live is None else starts[live]
    if column.kind is NodeKind.VARINT:
        _put_varints(out, places, column.longs if live is None else column.longs[live])
    elif column.kind is NodeKind.FIXED:
        values = column.data.reshape(column.length, column.width)
        _put_fixed(out, places, values if live is None else values[live])
    elif column.kind is NodeKind.CONSTANT:
        for byte, value in enumerate(column.data):
            out[places + byte] = value
    else:
        firsts, lengths = column.offsets[:-1], np.diff(column.offsets)
        if live is not None:
            firsts, lengths = firsts[live], lengths[live]
        if column.kind is NodeKind.BYTES:
            _put_varints(out, places, lengths)
            places = places + varint_sizes(lengths)
        _put_bytes(out, places, column.data, firsts, lengths)


def _write_arrays(laid: _Encoded, starts: Int64Array, live: BoolArray | None, out: ByteArray) -> None:
    column, items = laid.column, laid.children[0]
    counts, heads, ends = np.diff(column.offsets), _block_heads(column), _ends(items.sizes)
    inner = starts + heads - ends[column.offsets[:-1]]
    chosen = counts > 0 if live is None else (counts > 0) & live
    _put_varints(out, starts[chosen], counts[chosen])
    closing = inner + ends[column.offsets[1:]]
    out[closing if live is None else closing[live]] = 0
    of_items = None if live is None else np.repeat(live, counts)
    _write(items, np.repeat(inner, counts) + ends[:-1], of_items, out)


def _put_varints(out: ByteArray, places: Int64Array, values: Int64Array) -> None:
    rest = zigzag64(values)
    seven, more = np.uint64(7), np.uint64(0x80)
    while len(places):
        goes_on = rest >= more
        out[places] = (rest & np.uint64(0x7F)) | (goes_on * more)
        places, rest = places[goes_on] + 1, rest[goes_on] >> seven


def _put_fixed(out: ByteArray, places: Int64Array, values: npt.NDArray[np.uint8]) -> None:
    for byte in range(values.shape[1]):
        out[places + byte] = values[:, byte]


def _put_bytes(out: ByteArray, places: Int64Array, data: ByteArray, firsts: Int64Array, lengths: Int64Array) -> None:
    run = np.arange(int(lengths.sum()))
    before = np.cumsum(lengths) - lengths
    out[np.repeat(places - before, lengths) + run] = data[np.repeat(firsts - before, lengths) + run]
