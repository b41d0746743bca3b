"""The portable kernel: numpy and pyarrow only. The reference for every other twin.

Owns: grouping rows by partition, the exact sizes of records, and the encoding of V2 records from columns.
Must not know: anything but bytes and layouts.

Record: length, attributes 0, timestamp delta, offset delta, key length, key, value length, value, headers
(spec: kafka_producer.md §3.3). Two paths, chosen by shape and byte-equal by test: rows that are all alike are written in
place as fixed-width items (31 ns a row at 100 B, measured), all others are joined by Arrow (some 200 ns).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from spark_producer.kernel.columns import BinaryColumn, Int64Array, RecordColumns, encoded_lengths, varint_sizes
from spark_producer.kernel.varint import encode_varint, varint_column, varint_rows

_ZERO = b"\x00"


def group_rows(slots: npt.NDArray[Any], slot_count: int) -> tuple[Int64Array, Int64Array]:
    """Sort rows by slot, keeping their order within one.

    Returns (rows, bounds): the rows of slot s are `rows[bounds[s]:bounds[s + 1]]`.
    """
    narrow = slots.astype(np.uint16 if slot_count <= 1 << 16 else np.int32, copy=False)
    rows = np.argsort(narrow, kind="stable")  # 16 bits: radix sort, 8 ns a row
    bounds = np.zeros(slot_count + 1, dtype=np.int64)
    np.cumsum(np.bincount(narrow, minlength=slot_count), out=bounds[1:])
    return rows, bounds


def record_sizes(columns: RecordColumns) -> Int64Array:
    """An upper bound of each row's encoded size: exact but for 20 bytes of length, timestamp delta and offset delta."""
    return columns.body_sizes + 20


def encode_v2(
    columns: RecordColumns,
    rows: Int64Array,
    first: int,
    base_offset_delta: int,
    base_timestamp: int,
    out: memoryview,
    position: int,
    limit: int,
) -> tuple[int, int, int]:
    """Encode `rows[first:]` into `out[position:limit]`, stopping before the first record that does not fit.

    Returns (next row, new position, largest timestamp written or -1).
    """
    encode = _encode_uniform if columns.uniform else _encode_joined
    max_timestamp = -1
    while first < len(rows):
        count, position, latest = encode(columns, rows, first, base_offset_delta, base_timestamp, out, position, limit)
        if count == 0:
            break
        first, base_offset_delta = first + count, base_offset_delta + count
        max_timestamp = max(max_timestamp, latest)
    return first, position, max_timestamp


def _encode_uniform(
    columns: RecordColumns,
    rows: Int64Array,
    first: int,
    base_offset_delta: int,
    base_timestamp: int,
    out: memoryview,
    position: int,
    limit: int,
) -> tuple[int, int, int]:
    """As many rows as have equally long offset deltas and fit: a template for all, then offsets, keys and values."""
    timestamp = columns.timestamp_at(0)
    offset_width = len(encode_varint(base_offset_delta))
    key_width = columns.key.uniform_length if columns.key else 0
    value_width = columns.value.uniform_length
    assert key_width is not None
    assert value_width is not None
    before_offset = _ZERO + encode_varint(timestamp - base_timestamp)
    before_key = encode_varint(key_width if columns.key else -1)
    before_value = encode_varint(value_width)
    body = len(before_offset) + offset_width + len(before_key) + key_width + len(before_value) + value_width + 1
    head = encode_varint(body) + before_offset
    size = len(head) - len(before_offset) + body
    same_width = (1 << (7 * offset_width - 1)) - base_offset_delta
    count = min(len(rows) - first, (limit - position) // size, same_width)
    if count <= 0:
        return 0, position, -1
    template = head + bytes(offset_width) + before_key + bytes(key_width) + before_value + bytes(value_width + 1)
    space = np.frombuffer(out, dtype=np.uint8, count=count * size, offset=position)
    space.reshape(count, size)[:] = np.frombuffer(template, dtype=np.uint8)
    chosen = rows[first : first + count]
    _place(space, size, len(head), varint_rows(base_offset_delta, base_offset_delta + count))
    if columns.key:
        _place(space, size, len(head) + offset_width + len(before_key), columns.key.uniform_rows()[chosen])
    _place(space, size, size - 1 - value_width, columns.value.uniform_rows()[chosen])
    return count, position + count * size, timestamp


def _place(space: npt.NDArray[np.uint8], size: int, at: int, items: npt.NDArray[np.void]) -> None:
    """Write one item into each `size` bytes of `space`, `at` bytes from their start."""
    field = np.dtype({"names": ["item"], "formats": [items.dtype], "offsets": [at], "itemsize": size})
    space.view(field)["item"] = items


def _encode_joined(
    columns: RecordColumns,
    rows: Int64Array,
    first: int,
    base_offset_delta: int,
    base_timestamp: int,
    out: memoryview,
    position: int,
    limit: int,
) -> tuple[int, int, int]:
    """A window of rows that probably fits, cut to what does."""
    room = limit - position
    chosen = _window(columns, rows[first:], room)
    timestamps = columns.timestamps
    times = np.full(len(chosen), timestamps) if isinstance(timestamps, int) else timestamps[chosen]
    deltas = times - base_timestamp
    offsets = np.arange(base_offset_delta, base_offset_delta + len(chosen), dtype=np.int64)
    bodies = columns.body_sizes[chosen] + varint_sizes(deltas) + varint_sizes(offsets)
    ends = np.cumsum(bodies + varint_sizes(bodies))
    count = int(np.searchsorted(ends, room, side="right"))
    if count == 0:
        return 0, position, -1
    chosen = chosen[:count]
    encoded = _join(columns, chosen, bodies[:count], deltas[:count], offsets[:count])
    size = int(ends[count - 1])
    out[position : position + size] = memoryview(encoded.buffers()[2]).cast("B")[:size]
    return count, position + size, int(times[:count].max())


def _window(columns: RecordColumns, rows: Int64Array, room: int) -> Int64Array:
    """The first rows that may fit into `room` bytes: judged by the mean size of a sample, since sizing costs per row."""
    sample = columns.body_sizes[rows[:64]]
    return rows[: int(room / (float(sample.mean()) + 3) * 1.1) + 8]


def _join(columns: RecordColumns, rows: Int64Array, bodies: Int64Array, deltas: Int64Array, offsets: Int64Array) -> Any:
    key_lengths, value_lengths = columns.varint_ready
    indices = pa.array(rows)
    parts = [varint_column(bodies)]
    same_delta = bool((deltas == deltas[0]).all())
    parts += [_ZERO + encode_varint(int(deltas[0]))] if same_delta else [_ZERO, varint_column(deltas)]
    parts.append(varint_column(offsets))
    if columns.key is None or key_lengths is None:
        parts.append(encode_varint(-1))
    else:
        parts += [varint_column(key_lengths[rows]), _take(columns.key, indices)]
    parts += [varint_column(value_lengths[rows]), _take(columns.value, indices)]
    parts.append(_ZERO if columns.headers is None else _take(columns.headers, indices))
    constants = [pa.scalar(part, pa.binary()) if isinstance(part, bytes) else part for part in parts]
    separator = pa.scalar(b"", pa.binary())
    return pc.binary_join_element_wise(*constants, separator, null_handling="replace", null_replacement="")


def _take(column: BinaryColumn, indices: Any) -> Any:
    taken = column.array.take(indices)
    return taken if pa.types.is_binary(taken.type) else taken.cast(pa.binary())


def encode_headers(counts: Int64Array, keys: BinaryColumn, values: BinaryColumn) -> BinaryColumn:
    """Each row's header block: the count, then key length, key, value length (-1 for null), value of each entry.

    `counts` has one number per row; `keys` and `values` hold the entries of all rows, one after the other.
    """
    separator = pa.scalar(b"", pa.binary())
    key_lengths, value_lengths = encoded_lengths(keys), encoded_lengths(values)
    entries = pc.binary_join_element_wise(
        varint_column(key_lengths), _small(keys), varint_column(value_lengths), _small(values), separator,
        null_handling="replace", null_replacement="",
    )  # fmt: skip
    ends = np.zeros(len(counts) + 1, dtype=np.int64)
    np.cumsum(counts, out=ends[1:])
    joined = BinaryColumn(entries)
    offsets = np.ascontiguousarray(joined.offsets[ends], dtype=np.int32)
    blocks = pa.Array.from_buffers(pa.binary(), len(counts), [None, pa.py_buffer(offsets), entries.buffers()[2]])
    return BinaryColumn(pc.binary_join_element_wise(varint_column(counts), blocks, separator))


def _small(column: BinaryColumn) -> Any:
    return column.array if pa.types.is_binary(column.array.type) else column.array.cast(pa.binary())
