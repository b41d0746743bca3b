"""The portable kernel, which uses numpy and pyarrow only and is the reference for the compiled one.

It groups rows by partition, computes the sizes of records, and encodes V2 records from columns. A record is: length,
attributes 0, timestamp delta, offset delta, key length, key, value length, value, headers (Kafka's DefaultRecord). There
are two paths, chosen by shape and byte-equal by test: rows that are all alike are written in place as fixed-width items
(31 ns a row at 100 B, measured), and all others are joined by Arrow (some 200 ns).
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_producer.kernel.arrays import (
    MAX_BINARY_BYTES,
    BytesArray,
    Int64Array,
    buffer_of,
    from_numbers,
    join,
    take,
    values_of,
)
from spark_producer.kernel.column_views import PIECE_BYTES, BinaryColumn, RecordColumns, encoded_lengths
from spark_producer.kernel.varint import (
    consecutive_sizes,
    consecutive_varints,
    encode_varint,
    varint_column,
    varint_items,
    varint_sizes,
)

RECORD_OVERHEAD = 20
"""Maximum bytes of a record's length (5), timestamp delta (10) and offset delta (5) together."""

_ZERO = b"\x00"
_BINARY = pa.binary()


def group_rows(slots: npt.NDArray[Any], slot_count: int) -> tuple[Int64Array, Int64Array]:
    """Sort rows by slot, keeping their order within one.

    Return (rows, bounds): the rows of slot s are `rows[bounds[s]:bounds[s + 1]]`.
    """
    narrow = slots.astype(np.uint16 if slot_count <= 1 << 16 else np.int32, copy=False)
    rows = np.argsort(narrow, kind="stable")  # 16-bit numbers get a radix sort, which takes 8 ns a row
    bounds = np.zeros(slot_count + 1, dtype=np.int64)
    np.cumsum(np.bincount(narrow, minlength=slot_count), out=bounds[1:])
    return rows, bounds


def record_sizes(columns: RecordColumns) -> Int64Array:
    """Return an upper bound of each row's encoded size: 20 bytes for length, timestamp and offset delta, the rest exact."""
    return columns.body_sizes + RECORD_OVERHEAD


def largest_record(columns: RecordColumns) -> tuple[int, int]:
    """Return the first row with the largest encoded size, and an upper bound of that size; (0, 0) if there are no rows."""
    if len(columns) == 0:
        return 0, 0
    row = 0 if columns.uniform else int(columns.body_sizes.argmax())
    return row, _body_size(columns, row) + RECORD_OVERHEAD


def _body_size(columns: RecordColumns, row: int) -> int:
    """Return `body_sizes` of one row, without computing those of all rows if they are uniform."""
    if not columns.uniform:
        return int(columns.body_sizes[row])
    key_width = columns.key.uniform_length if columns.key else None
    key_size = 1 if key_width is None else _field_size(key_width)
    return 1 + key_size + _field_size(columns.value.uniform_length or 0) + 1  # attributes and header count


def _field_size(width: int) -> int:
    return width + len(encode_varint(width))


class ArrangedRows:
    """Columns with their rows in the order in which they are encoded, so that a run of one partition is a slice.

    The fixed cost per call is paid here once for all runs. Uniform rows are not moved, but gathered as they are encoded.
    """

    def __init__(self, columns: RecordColumns, rows: Int64Array) -> None:
        self.columns = columns
        self.rows = rows
        self.uniform = columns.uniform
        self._gathered: tuple[int, int, list[BytesArray | bytes]] = (0, 0, [])

    def __len__(self) -> int:
        return len(self.rows)

    def timestamp_at(self, position: int) -> int:
        """Return the timestamp of the row at `position`, in milliseconds."""
        return self.columns.timestamp_at(int(self.rows[position]))

    def size_at(self, position: int) -> int:
        """Return an upper bound of the encoded size of the row at `position`."""
        return _body_size(self.columns, int(self.rows[position])) + RECORD_OVERHEAD

    @functools.cached_property
    def _body_sizes(self) -> Int64Array:
        return self.columns.body_sizes[self.rows]

    @functools.cached_property
    def _size_ends(self) -> Int64Array:
        return np.cumsum(self._body_sizes)

    @functools.cached_property
    def _timestamps(self) -> Int64Array | int:
        timestamps = self.columns.timestamps
        return timestamps if isinstance(timestamps, int) else timestamps[self.rows]

    def _after_offset(self, first: int, count: int) -> list[BytesArray | bytes]:
        """Return the parts of rows `first` … `first` + `count` - 1 after their offset deltas: arrays, or shared bytes.

        Runs follow each other, so the rows that are gathered for one run are mostly used for the next ones too.
        """
        begin, end, _ = self._gathered
        if not begin <= first <= first + count <= end:
            self._gathered = 0, 0, []  # free the previous rows before the new ones are gathered
            bytes_before = int(self._size_ends[first - 1]) if first else 0
            end = int(np.searchsorted(self._size_ends, bytes_before + PIECE_BYTES, side="right"))
            begin, end = first, max(first + count, end)
            self._gathered = begin, end, self._gather(begin, end)
        parts = self._gathered[2]
        return [part if isinstance(part, bytes) else part.slice(first - begin, count) for part in parts]

    def _gather(self, first: int, stop: int) -> list[BytesArray | bytes]:
        columns, rows = self.columns, self.rows[first:stop]
        indices = from_numbers(rows)
        parts: list[BytesArray | bytes] = [encode_varint(-1)]
        if columns.key is not None:
            parts = [varint_column(encoded_lengths(columns.key)[rows]), take(columns.key.array, indices)]
        parts += [varint_column(encoded_lengths(columns.value)[rows]), take(columns.value.array, indices)]
        return [*parts, _ZERO if columns.headers is None else take(columns.headers.array, indices)]


def encode_v2(
    arranged: ArrangedRows,
    first: int,
    stop: int,
    base_offset_delta: int,
    base_timestamp: int,
    out: memoryview,
    position: int,
    limit: int,
) -> tuple[int, int, int]:
    """Encode rows `first` … `stop` - 1 into `out[position:limit]`, ending before the first record that does not fit.

    Differences of timestamps are taken in 64 bits, whether they fit or not.
    Return (next row, new position, largest timestamp written or -1).
    """
    encode = _encode_uniform if arranged.uniform else _encode_joined
    max_timestamp = -1
    while first < stop:
        count, position, latest = encode(arranged, first, stop, base_offset_delta, base_timestamp, out, position, limit)
        if count == 0:
            break
        first, base_offset_delta = first + count, base_offset_delta + count
        max_timestamp = max(max_timestamp, latest)
    return first, position, max_timestamp


def _encode_uniform(
    arranged: ArrangedRows,
    first: int,
    stop: int,
    base_offset_delta: int,
    base_timestamp: int,
    out: memoryview,
    position: int,
    limit: int,
) -> tuple[int, int, int]:
    """Encode as many rows as fit and have equally long offset deltas: a template for all, then offsets, keys and values."""
    key, value, timestamp = arranged.columns.key, arranged.columns.value, arranged.columns.timestamp_at(0)
    offset_width = len(encode_varint(base_offset_delta))
    key_width, value_width = (key.uniform_length or 0) if key else 0, value.uniform_length or 0
    before_offset = _ZERO + encode_varint(_difference(timestamp, base_timestamp))
    before_key = encode_varint(key_width if key else -1)
    before_value = encode_varint(value_width)
    body = len(before_offset) + offset_width + len(before_key) + key_width + len(before_value) + value_width + 1
    head = encode_varint(body) + before_offset
    size = len(head) - len(before_offset) + body
    same_width = (1 << (7 * offset_width - 1)) - base_offset_delta
    count = min(stop - first, (limit - position) // size, same_width)
    if count <= 0:
        return 0, position, -1
    template = head + bytes(offset_width) + before_key + bytes(key_width) + before_value + bytes(value_width + 1)
    space = np.ndarray((count, size), dtype=np.uint8, buffer=out, offset=position)
    space[:] = np.frombuffer(template, dtype=np.uint8)
    rows = arranged.rows[first : first + count]
    at = position + len(head)
    _write_items(varint_items(base_offset_delta, base_offset_delta + count), out, at, size)
    if key:
        _write_items(key.uniform_rows[rows], out, at + offset_width + len(before_key), size)
    _write_items(value.uniform_rows[rows], out, position + size - 1 - value_width, size)
    return count, position + count * size, timestamp


def _write_items(items: npt.NDArray[np.void], out: memoryview, at: int, size: int) -> None:
    """Write one item at `at` and every `size` bytes after it."""
    np.ndarray(items.shape, dtype=items.dtype, buffer=out, offset=at, strides=(size,))[...] = items


def _encode_joined(
    arranged: ArrangedRows,
    first: int,
    stop: int,
    base_offset_delta: int,
    base_timestamp: int,
    out: memoryview,
    position: int,
    limit: int,
) -> tuple[int, int, int]:
    """Encode as many rows as fit, joined by Arrow from their parts."""
    free_bytes = limit - position
    bytes_before = int(arranged._size_ends[first - 1]) if first else 0
    stop = min(stop, int(np.searchsorted(arranged._size_ends, bytes_before + free_bytes, side="right")))
    timestamps = arranged._timestamps
    if isinstance(timestamps, int):
        deltas: Int64Array | int = _difference(timestamps, base_timestamp)
    else:
        deltas = timestamps[first:stop] - base_timestamp
    delta_sizes = len(encode_varint(deltas)) if isinstance(deltas, int) else varint_sizes(deltas)
    offset_sizes = consecutive_sizes(base_offset_delta, base_offset_delta + stop - first)
    bodies = arranged._body_sizes[first:stop] + (delta_sizes + offset_sizes)
    ends = np.cumsum(bodies + varint_sizes(bodies))
    count = int(np.searchsorted(ends, free_bytes, side="right"))
    if count == 0:
        return 0, position, -1
    parts: list[BytesArray | bytes] = [varint_column(bodies[:count])]
    parts += [_ZERO + encode_varint(deltas)] if isinstance(deltas, int) else [_ZERO, varint_column(deltas[:count])]
    parts.append(consecutive_varints(base_offset_delta, base_offset_delta + count))
    parts += arranged._after_offset(first, count)
    size = int(ends[count - 1])
    out[position : position + size] = values_of(join(parts))[:size]
    latest = timestamps if isinstance(timestamps, int) else int(timestamps[first : first + count].max())
    return count, position + size, latest


def _difference(timestamp: int, base_timestamp: int) -> int:
    """Return the difference in 64 bits, as arrays, the compiled kernel and Java compute it; callers must ensure that it fits."""
    return (timestamp - base_timestamp + (1 << 63)) % (1 << 64) - (1 << 63)


def encode_headers(counts: Int64Array, keys: BinaryColumn, values: BinaryColumn) -> BinaryColumn:
    """Encode each row's header block: the count, then key length, key, value length (-1 for null) and value of each entry.

    `counts` has one number per row; `keys` and `values` hold the entries of all rows, one after the other.
    """
    key_lengths, value_lengths = encoded_lengths(keys), encoded_lengths(values)
    # A large column may begin beyond the range of 32-bit offsets, even if few of its bytes are used.
    large = pa.types.is_large_binary(keys.array.type) or pa.types.is_large_binary(values.array.type)
    max_size = int(keys.lengths.sum() + values.lengths.sum()) + 10 * (
        len(keys) + len(counts)
    )  # varints of up to 5 bytes
    kind = pa.large_binary() if large or max_size > MAX_BINARY_BYTES else _BINARY
    parts = [varint_column(key_lengths), keys.array, varint_column(value_lengths), values.array]
    entries = join([part.cast(kind) for part in parts], kind)
    joined = BinaryColumn(entries)
    ends = np.zeros(len(counts) + 1, dtype=np.int64)
    np.cumsum(counts, out=ends[1:])
    offsets = np.ascontiguousarray(joined.offsets[ends])
    blocks = pa.Array.from_buffers(kind, len(counts), [None, buffer_of(offsets), entries.buffers()[2]])
    return BinaryColumn(join([varint_column(counts).cast(kind), blocks], kind))
