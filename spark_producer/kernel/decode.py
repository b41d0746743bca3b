"""Decodes V2 records as columns with numpy only; it is the reference for the compiled decoder.

It finds the positions of the fields of each record, and the first malformed record. `record.record_cursor` explains why a record
is malformed.

A record's length gives the start of the next one, so the starts are found first, in a walk over the lengths alone: runs of
equally long records in one comparison, all others in a loop of some 80 ns a record (measured at 110 B). Then all fields are
read as columns, which also check the result of the walk, so no wrong byte goes unnoticed.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from spark_producer.kernel.arrays import BoolArray, ByteArray, Int64Array

VARINT_BYTES, VARLONG_BYTES = 5, 10
"""A zigzag varint of 32 bits takes at most 5 bytes, one of 64 bits 10."""

MIN_RUN = 32
"""Minimum number of records for which the search for a run of equal lengths pays (12 µs, measured)."""

WINDOW = 1 << 16
"""The bytes that the loop over lengths copies at once."""

MIN_ROWS_BY_COLUMN = 24
"""Minimum number of rows for which reading one header of each as a column is cheaper than row by row."""

MAX_HEADERS = 100_000
"""Maximum number of headers of a record, when read and when written. Kafka has no limit, and real records have fewer than a
hundred; but a header takes two bytes, of which zstd compresses 32,768 into four, and its columns take 32."""

HEADERS_AT_ONCE = 1 << 19
"""Maximum number of headers that one call decodes, unless its first record with headers has more: their columns take 16 MiB."""

_ONE_BIT = np.uint64(1)
_NOTHING: Int64Array = np.zeros(0, dtype=np.int64)


class DecodedV2(NamedTuple):
    """The well-formed records before `stop`, row by row; positions are in bytes of the data, and a length of -1 is null.

    `stop` is the position of the first malformed record, or of surplus bytes after the last record of a batch; -1 if nothing is
    wrong. `full` means that the record at `stop` is well-formed, but would exceed `headers_at_once`.
    `header_counts` has the entries per row; their four columns hold the entries of all rows, one after the other.
    """

    stop: int
    full: bool
    timestamp_deltas: Int64Array
    offset_deltas: Int64Array
    key_starts: Int64Array
    key_lengths: Int64Array
    value_starts: Int64Array
    value_lengths: Int64Array
    header_counts: Int64Array
    header_key_starts: Int64Array
    header_key_lengths: Int64Array
    header_value_starts: Int64Array
    header_value_lengths: Int64Array


def decode_v2(
    data: ByteArray,
    positions: Int64Array,
    ends: Int64Array,
    counts: Int64Array,
    headers_at_once: int = HEADERS_AT_ONCE,
) -> DecodedV2:
    """Decode the records of one or more batches (Kafka's DefaultRecord).

    Batch b claims `counts[b]` records in `data[positions[b]:ends[b]]`. The batches follow each other in `data`, with any bytes
    between them. Nothing outside of them is read as a record, and memory does not grow with the claimed counts. If some
    headers were decoded already, decoding ends before the record that would exceed `headers_at_once`.
    """
    starts, nexts, stop = _walk(data, positions, ends, counts)
    good = len(starts)
    lengths, at, good = read_varints(data, starts, VARINT_BYTES, good)
    good = _first(at + lengths != nexts, good)
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
    left = nexts - at
    wrong = (header_counts < 0) | (header_counts > MAX_HEADERS) | (left < 2 * header_counts)
    well_formed = _first(wrong | ((header_counts == 0) & (left != 0)), good)
    requested = _rows_within(header_counts[:well_formed], headers_at_once)
    headers, good = _read_headers(data, at[:requested], nexts[:requested], header_counts[:requested])
    if good < len(starts):
        stop = int(starts[good])
    rows = slice(good)
    return DecodedV2(
        stop, good == requested < well_formed, timestamp_deltas[rows], offset_deltas[rows], key_starts[rows], key_lengths[rows],
        value_starts[rows], value_lengths[rows], header_counts[rows], *headers,
    )  # fmt: skip


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


def _walk(
    data: ByteArray, positions: Int64Array, ends: Int64Array, counts: Int64Array
) -> tuple[Int64Array, Int64Array, int]:
    """Return the start of each record, the start of the next one, and the end of the first batch of a wrong length (or -1).

    The lengths are not checked here; the columns find wrong ones later.
    """
    starts: list[Int64Array] = [_NOTHING]
    nexts: list[Int64Array] = [_NOTHING]
    stop = -1
    for position, end, count in zip(positions.tolist(), ends.tolist(), counts.tolist(), strict=True):
        found = _walk_batch(data, position, end, count)
        if found[-1] > end:
            found = found[:-1]
        starts.append(found[:-1])
        nexts.append(found[1:])
        if len(found) <= count or found[-1] != end:
            stop = int(found[-1])
            break
    return np.concatenate(starts), np.concatenate(nexts), stop


def _walk_batch(data: ByteArray, position: int, end: int, count: int) -> Int64Array:
    """Return the starts of at most `count` records in `data[position:end]`, and the end of the last one, even past `end`."""
    if count < MIN_RUN and end - position <= WINDOW:
        return _walk_lengths(data, position, end, count)
    pieces: list[Int64Array] = []
    gap = MIN_RUN
    while count > 0 and position < end:
        size, alike = _run_of_equals(data, position, end, count) if count >= MIN_RUN else (0, 0)
        if alike:
            found = np.arange(position, position + size * alike + 1, size, dtype=np.int64)
            gap = MIN_RUN
        else:  # search for the next run after ever longer gaps, so that all searches together cost little
            requested = min(count, gap) if count >= MIN_RUN else count
            found = _walk_lengths(data, position, min(end, position + WINDOW), requested)
            gap *= 2
            if len(found) == 1:
                break
        pieces.append(found[:-1])
        position, count = int(found[-1]), count - len(found) + 1
    pieces.append(np.array([position], dtype=np.int64))
    return np.concatenate(pieces)


def _run_of_equals(data: ByteArray, position: int, end: int, count: int) -> tuple[int, int]:
    """Return (bytes, number) of the records from `position` on with the same length field; number 0 if there are only a few.

    If the same length field is at every multiple of the size that it gives, each one is the length field of a record.
    """
    field = data[position : min(position + VARINT_BYTES, end)].tobytes()
    length, width = _varint_at(field)
    size = length + width
    fitting = min(count, (end - position) // size) if length > 0 else 0
    if fitting < MIN_RUN or data[position + size * MIN_RUN // 2] != field[0]:
        return size, 0
    differ: BoolArray = np.zeros(fitting, dtype=np.bool_)
    for index in range(width):
        differ |= data[position + index : position + size * fitting : size] != field[index]
    first = int(differ.argmax())
    alike = first if differ[first] else fitting
    return size, alike if alike >= MIN_RUN // 2 else 0


def _walk_lengths(data: ByteArray, position: int, end: int, count: int) -> Int64Array:
    """Return the starts of at most `count` records from `position` on, and the position after them."""
    region = data[position:end].tobytes()  # reading bytes of an array takes twice the time; the copy costs 5 % of that
    return np.fromiter(itertools.islice(_starts(region), count + 1), dtype=np.int64) + position


def _starts(region: bytes) -> Iterator[int]:
    """Yield the start of each record whose length field is complete, and then the start of the next one."""
    at = 0
    try:
        while True:
            yield at
            first = region[at]
            if first < 0x80:
                at += (first >> 1) + 1
                continue
            second = region[at + 1]
            if second < 0x80:
                at += (second << 6) + (first >> 1) - 62
                continue
            if at + VARINT_BYTES > len(region):
                return
            length, width = _varint_at(region[at : at + VARINT_BYTES])
            at += max(length + width, 1)
    except IndexError:
        return


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
            length, width = _varint_at(content[at : at + VARINT_BYTES])
            at += width
            if width == 0 or length < smallest or at + length > end:
                return False
            fields += (at, length)
            if length > 0:
                at += length
    entries[:] = np.array(fields, dtype=np.int64).reshape(-1, 4).T
    entries[::2] += start
    return at == end


def _varint_at(field: bytes) -> tuple[int, int]:
    """Return the value of a varint of 32 bits and how many bytes it has; (0, 0) if there is none."""
    if field and field[0] < 0x80:
        return (field[0] >> 1) ^ -(field[0] & 1), 1
    raw = 0
    for index, byte in enumerate(field):
        raw |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return ((raw >> 1) ^ -(raw & 1), index + 1) if raw >> 32 == 0 else (0, 0)
    return 0, 0
