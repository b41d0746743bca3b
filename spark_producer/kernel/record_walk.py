"""Finds the starts of records with numpy only: a record's length gives the start of the next one.

Runs of equally long records are found in one comparison, all others in a loop of some 80 ns a record (measured at 110 B).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from spark_producer.kernel.arrays import BoolArray, ByteArray, Int64Array
from spark_producer.kernel.decoded_v2 import Limits, V2Batch

VARINT_BYTES, VARLONG_BYTES = 5, 10
"""A zigzag varint of 32 bits takes at most 5 bytes, one of 64 bits 10."""

MIN_RECORD_BYTES = 7
"""The bytes of length, attributes, two deltas, key length, value length and header count."""

MIN_RUN = 32
"""Minimum number of records for which the search for a run of equal lengths pays (12 µs, measured)."""

WINDOW = 1 << 16
"""The bytes that the loop over lengths copies at once."""

_NOTHING: Int64Array = np.zeros(0, dtype=np.int64)


class Walk(NamedTuple):
    """The start of each record, the start of the next one, and the number of records of each batch.

    If `counts` has fewer rows for its last batch than the batch claims, or `position` is not the end of the data of this batch,
    the walk stopped at this position; `full` says that it did so at a limit.
    """

    starts: Int64Array
    nexts: Int64Array
    counts: list[int]
    stopped: bool
    position: int
    full: bool


def walk_records(data: ByteArray, starts: Sequence[int], batches: Sequence[V2Batch], limits: Limits) -> Walk:
    """Find the records of `batches`, whose bytes start at `starts` in `data`, up to the limits of rows and bytes.

    The lengths are not checked here; reading the fields finds the wrong ones.
    """
    pieces: list[Int64Array] = []
    counts: list[int] = []
    rows, used = 0, 0
    position, stopped, full = 0, False, False
    for start, batch in zip(starts, batches, strict=True):
        end = start + len(batch.records)
        allowed = limits.bytes - used if rows else max(limits.bytes, _size_at(data, start, end))
        window = max(start, min(end, start + allowed))
        found = _walk_batch(data, start, window, min(batch.records_count, limits.rows - rows))
        if found[-1] > window:
            found = found[:-1]
        position = int(found[-1])
        pieces.append(found)
        counts.append(len(found) - 1)
        rows, used = rows + counts[-1], used + position - start
        if counts[-1] < batch.records_count:
            stopped, full = True, rows == limits.rows or position + _size_at(data, position, end) > start + allowed
            break
        if position != end:
            stopped = True
            break
    return Walk(
        np.concatenate([_NOTHING, *(piece[:-1] for piece in pieces)]),
        np.concatenate([_NOTHING, *(piece[1:] for piece in pieces)]),
        counts, stopped, position, full,
    )  # fmt: skip


def _size_at(data: ByteArray, position: int, end: int) -> int:
    """Return the bytes of the record at `position`, if its length can be read and fits before `end`; else 0."""
    length, width = varint_at(data[position : min(position + VARINT_BYTES, end)].tobytes())
    return width + length if MIN_RECORD_BYTES - 1 <= length <= end - position - width else 0


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
    length, width = varint_at(field)
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
            length, width = varint_at(region[at : at + VARINT_BYTES])
            at += max(length + width, 1)
    except IndexError:
        return


def varint_at(field: bytes) -> tuple[int, int]:
    """Return the value of a varint of 32 bits and how many bytes it has; (0, 0) if there is none."""
    if field and field[0] < 0x80:
        return (field[0] >> 1) ^ -(field[0] & 1), 1
    raw = 0
    for index, byte in enumerate(field):
        raw |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return ((raw >> 1) ^ -(raw & 1), index + 1) if raw >> 32 == 0 else (0, 0)
    return 0, 0
