"""Decodes V2 records as columns with numpy and pyarrow only; it is the reference for the compiled decoder.

The starts of the records are found first (`record_walk`). Then each field is read as a column, which also checks the result of
the walk, so no wrong byte goes unnoticed. `record.record_cursor` explains why a record is malformed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from spark_producer.kernel.arrays import BoolArray, ByteArray, Int64Array, buffer_of, from_numbers
from spark_producer.kernel.binary_slices import binary_slices
from spark_producer.kernel.decoded_v2 import (
    MAX_HEADERS,
    DecodedV2,
    HeaderColumns,
    Limits,
    V2Batch,
    no_header_columns,
)
from spark_producer.kernel.record_walk import VARINT_BYTES, VARLONG_BYTES, Walk, varint_at, walk_records

MIN_ROWS_BY_COLUMN = 24
"""Minimum number of rows for which reading one header of each as a column is cheaper than row by row."""

_ONE_BIT = np.uint64(1)
_NOTHING: Int64Array = np.zeros(0, dtype=np.int64)


class _Fields(NamedTuple):
    """The fields of all records by the column; positions are in bytes of the data, and a length of -1 is null."""

    timestamp_deltas: Int64Array
    offset_deltas: Int64Array
    key_starts: Int64Array
    key_lengths: Int64Array
    value_starts: Int64Array
    value_lengths: Int64Array
    header_counts: Int64Array
    header_starts: Int64Array


def decode_v2(batches: Sequence[V2Batch], columns: frozenset[str], limits: Limits) -> DecodedV2:
    """Decode the records of one or more batches into Arrow arrays of the `columns`, of which `COLUMNS` has the names.

    Every field of every record is checked, whatever the columns. Nothing outside of a batch's records is read, and memory does
    not grow with the claimed counts.

    Raises:
        ValueError: A column would have more bytes than the offsets of `binary` can address; a limit prevents this.
    """
    data, starts = _joined(batches)
    walk = walk_records(data, starts, batches, limits)
    begun = batches[: len(walk.counts)]
    base_offsets = _by_row([batch.base_offset for batch in begun], walk.counts)
    last_deltas = _by_row([batch.last_offset_delta for batch in begun], walk.counts)
    base_timestamps = _by_row([batch.base_timestamp for batch in begun], walk.counts)
    fields, good = _read_fields(data, walk)
    requested = _rows_within(fields.header_counts[:good], limits.headers)
    header_fields, rows = _read_headers(
        data, fields.header_starts[:requested], walk.nexts[:requested], fields.header_counts[:requested]
    )
    rows = _first_wrong_offset(fields.offset_deltas, last_deltas, batches, walk.counts, rows)
    times = base_timestamps + fields.timestamp_deltas
    rows = _first(((base_timestamps ^ times) & (fields.timestamp_deltas ^ times)) < 0, rows)
    full = rows == requested and (requested < good or (good == len(walk.starts) and walk.full))
    batch, row, position, previous = _stop_of(walk, starts, batches, fields.offset_deltas, rows)
    part = slice(rows)
    return DecodedV2(
        rows, batch, row, position, previous, full,
        from_numbers((base_offsets + fields.offset_deltas)[part]) if "offset" in columns else None,
        from_numbers(_timestamps(times, batches, walk.counts)[part]) if "timestamp" in columns else None,
        binary_slices(data, fields.key_starts[part], fields.key_lengths[part]) if "key" in columns else None,
        binary_slices(data, fields.value_starts[part], fields.value_lengths[part]) if "value" in columns else None,
        _header_columns(data, fields.header_counts[part], header_fields) if "headers" in columns else None,
    )  # fmt: skip


def _by_row(values: list[int], counts: list[int]) -> Int64Array:
    """Return the value of its batch for each row; one value if there is one batch, which numpy takes for all rows."""
    column = np.array(values, dtype=np.int64)
    return column if len(values) == 1 else np.repeat(column, counts)


def _joined(batches: Sequence[V2Batch]) -> tuple[ByteArray, list[int]]:
    """Return the records of all batches as one piece of memory, and where those of each batch start in it."""
    starts, end = [], 0
    for batch in batches:
        starts.append(end)
        end += len(batch.records)
    if len(batches) == 1:
        return np.frombuffer(batches[0].records, dtype=np.uint8), starts
    return np.frombuffer(b"".join([batch.records for batch in batches]), dtype=np.uint8), starts


def _read_fields(data: ByteArray, walk: Walk) -> tuple[_Fields, int]:
    """Read all fields but the headers: (columns, number of rows before the first malformed one)."""
    good = len(walk.starts)
    lengths, at, good = read_varints(data, walk.starts, VARINT_BYTES, good)
    good = _first(at + lengths != walk.nexts, good)
    timestamp_deltas, at, good = read_varints(data, at + 1, VARLONG_BYTES, good)  # after the attributes
    offset_deltas, at, good = read_varints(data, at, VARINT_BYTES, good)
    key_lengths, key_starts, good = read_varints(data, at, VARINT_BYTES, good)
    good = _first(key_lengths < -1, good)
    at = key_starts + np.maximum(key_lengths, 0)
    value_lengths, value_starts, good = read_varints(data, at, VARINT_BYTES, good)
    good = _first(value_lengths < -1, good)
    at = value_starts + np.maximum(value_lengths, 0)
    header_counts, at, good = read_varints(data, at, VARINT_BYTES, good)
    # Positions only grow from field to field, so if the last field of a record ends inside it, all fields are inside it.
    left = walk.nexts - at
    wrong = (header_counts < 0) | (header_counts > MAX_HEADERS) | (left < 2 * header_counts)
    good = _first(wrong | ((header_counts == 0) & (left != 0)), good)
    fields = _Fields(
        timestamp_deltas, offset_deltas, key_starts, key_lengths, value_starts, value_lengths, header_counts, at
    )
    return fields, good


def _first_wrong_offset(
    deltas: Int64Array, last: Int64Array, batches: Sequence[V2Batch], counts: list[int], good: int
) -> int:
    """Return the first row whose offset delta does not follow the one before it, or is past its batch's last one, or `good`."""
    earlier = np.empty_like(deltas)
    earlier[1:] = deltas[:-1]
    firsts = np.cumsum([0, *counts[:-1]])
    filled = np.array(counts, dtype=np.int64) > 0
    earlier[firsts[: len(counts)][filled]] = np.array([batch.previous for batch in batches[: len(counts)]])[filled]
    return _first((deltas <= earlier) | (deltas > last), good)


def _timestamps(times: Int64Array, batches: Sequence[V2Batch], counts: list[int]) -> Int64Array:
    """Return the timestamps, which are those of the batch where the broker set them."""
    if all(batch.append_time is None for batch in batches):
        return times
    by_broker = np.repeat([batch.append_time is not None for batch in batches[: len(counts)]], counts)
    appended = np.repeat(np.array([batch.append_time or 0 for batch in batches[: len(counts)]], dtype=np.int64), counts)
    return np.where(by_broker, appended, times)


def _stop_of(
    walk: Walk, starts: list[int], batches: Sequence[V2Batch], deltas: Int64Array, rows: int
) -> tuple[int, int, int, int]:
    """Return `batch`, `row`, `position` and `previous` of `DecodedV2`, if there are `rows` right rows."""
    position = walk.position
    if rows < len(walk.starts):
        batch, position = int(np.searchsorted(np.cumsum(walk.counts), rows, side="right")), int(walk.starts[rows])
    elif walk.stopped:
        batch = len(walk.counts) - 1
    else:
        return len(batches), 0, 0, -1
    row = rows - sum(walk.counts[:batch])
    return batch, row, position - starts[batch], int(deltas[rows - 1]) if row else batches[batch].previous


def _header_columns(
    data: ByteArray, counts: Int64Array, fields: tuple[Int64Array, Int64Array, Int64Array, Int64Array]
) -> HeaderColumns:
    ends = np.zeros(len(counts) + 1, dtype=np.int32)
    np.cumsum(counts, out=ends[1:])
    known = slice(int(ends[-1]))
    if not ends[-1]:
        return no_header_columns(len(counts))
    key_starts, key_lengths, value_starts, value_lengths = (column[known] for column in fields)
    return HeaderColumns(
        buffer_of(ends), binary_slices(data, key_starts, key_lengths), binary_slices(data, value_starts, value_lengths)
    )


def read_varints(data: ByteArray, at: Int64Array, max_bytes: int, good: int) -> tuple[Int64Array, Int64Array, int]:
    """Read the zigzag varints at the positions `at`: (values, positions after them, first row without one, or `good`).

    A position outside of `data` reads some byte of `data`; callers compare the positions after with the ends of the records.
    """
    raw = data.take(at, mode="clip").astype(np.int64)
    after = at + 1
    (rows,) = (raw >= 0x80).nonzero()
    if len(rows):
        good = _read_longer(data, raw, after, rows, max_bytes, good)
    if max_bytes == VARINT_BYTES:
        return (raw >> 1) ^ -(raw & 1), after, good
    unsigned = raw.view(np.uint64)
    return (unsigned >> _ONE_BIT).view(np.int64) ^ -(raw & 1), after, good


def _read_longer(
    data: ByteArray, raw: Int64Array, after: Int64Array, rows: Int64Array, max_bytes: int, good: int
) -> int:
    """Add the second and later bytes of the varints of `rows` to `raw` and `after`."""
    values, at, index = raw[rows] & 0x7F, after[rows], 1
    last = 0x0F if max_bytes == VARINT_BYTES else 0x01
    while len(rows):
        byte = data.take(at, mode="clip").astype(np.int64)
        values |= (byte & 0x7F) << 7 * index
        at += 1
        more = byte >= 0x80
        raw[rows], after[rows] = values, at
        if index == max_bytes - 1:
            over = rows[byte > last]
            return min(good, int(over[0])) if len(over) else good
        rows, values, at = rows[more], values[more], at[more]
        index += 1
    return good


def _first(wrong: BoolArray, good: int) -> int:
    """Return the first wrong row, if it is before `good`, else `good`."""
    found = int(wrong.argmax()) if len(wrong) else 0
    return found if found < good and wrong[found] else good


def _rows_within(counts: Int64Array, headers_at_once: int) -> int:
    """Return the number of rows before the one that exceeds `headers_at_once`, unless it is the first with headers."""
    ends = np.cumsum(counts)
    if not len(ends) or int(ends[-1]) <= headers_at_once:
        return len(counts)
    return _first((ends > headers_at_once) & (ends > counts), len(counts))


def _read_headers(
    data: ByteArray, at: Int64Array, ends: Int64Array, counts: Int64Array
) -> tuple[tuple[Int64Array, Int64Array, Int64Array, Int64Array], int]:
    """Return the header columns of `DecodedV2` for rows that end at `ends`, and the first row with a malformed header, or all."""
    entry_ends = np.cumsum(counts)
    good, total = len(counts), int(entry_ends[-1]) if len(counts) else 0
    if total == 0:
        return (_NOTHING, _NOTHING, _NOTHING, _NOTHING), good
    entries: Int64Array = np.empty((4, total), dtype=np.int64)
    rows: Int64Array = np.flatnonzero(counts)
    at, index = at[rows], 0
    while len(rows) >= MIN_ROWS_BY_COLUMN:
        slots = entry_ends[rows] - counts[rows] + index
        found, at, bad = _read_header(data, at)
        entries[:, slots] = found
        index += 1
        done = counts[rows] == index
        bad = _first(done & (at != ends[rows]), bad)
        if bad < len(rows):
            good = min(good, int(rows[bad]))
            rows, at, done = rows[:bad], at[:bad], done[:bad]
        rows, at = rows[~done], at[~done]
    for row, start in zip(rows.tolist(), at.tolist(), strict=True):
        first, last = int(entry_ends[row] - counts[row]) + index, int(entry_ends[row])
        if not _read_headers_of_row(data[start : ends[row]].tobytes(), start, entries[:, first:last]):
            good = min(good, row)
            break
    known = int(entry_ends[good - 1]) if good else 0
    return (entries[0, :known], entries[1, :known], entries[2, :known], entries[3, :known]), good


def _read_header(data: ByteArray, at: Int64Array) -> tuple[list[Int64Array], Int64Array, int]:
    """Read one header of each row: (its four columns, positions after them, first malformed row or all)."""
    key_lengths, key_starts, bad = read_varints(data, at, VARINT_BYTES, len(at))
    bad = _first(key_lengths < 0, bad)
    at = key_starts + np.maximum(key_lengths, 0)
    value_lengths, value_starts, bad = read_varints(data, at, VARINT_BYTES, bad)
    bad = _first(value_lengths < -1, bad)
    columns = [key_starts, key_lengths, value_starts, value_lengths]
    return columns, value_starts + np.maximum(value_lengths, 0), bad


def _read_headers_of_row(content: bytes, start: int, entries: Int64Array) -> bool:
    """Fill `entries` with the headers of one row, which take all of `content`; return False if they are malformed."""
    at, end = 0, len(content)
    fields: list[int] = []
    for _ in range(entries.shape[1]):
        for smallest in (0, -1):
            length, width = varint_at(content[at : at + VARINT_BYTES])
            at += width
            if width == 0 or length < smallest or at + length > end:
                return False
            fields += (at, length)
            if length > 0:
                at += length
    entries[:] = np.array(fields, dtype=np.int64).reshape(-1, 4).T
    entries[::2] += start
    return at == end
