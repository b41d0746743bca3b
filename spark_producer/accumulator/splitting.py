"""Cutting the records of a batch in two where they lie, for batches that a broker finds too large (KIP-126).

Owns: the walk over V2 records, and the rewriting of their offset deltas.
Must not know: batches, headers, pools. It looks at record after record in Python: a batch is cut once in a blue moon.
"""

from __future__ import annotations

from typing import NamedTuple

from spark_producer.kernel.varint import encode_varint


class Halves(NamedTuple):
    """Where records were cut: the `records` of the first part, its end, and the end of the second; the largest timestamp
    delta of each."""

    records: int
    cut: int
    end: int
    head_latest: int
    tail_latest: int


def cut_in_half(buffer: memoryview, first: int, end: int, records_count: int) -> Halves:
    """Cut the `records_count` (two or more) records in `buffer[first:end]` near the middle of their bytes.

    The second part is rewritten in place to count its offset deltas from 0, which never makes a record longer; its
    timestamp deltas keep their base.
    """
    middle = first + (end - first) // 2
    position, records, latest = first, 0, -(1 << 63)
    while records < records_count - 1 and (records == 0 or position < middle):
        body, after = _record_at(buffer, position)
        latest = max(latest, _varint(buffer, body + 1)[0])
        position, records = after, records + 1
    cut = write_at = position
    tail_latest = -(1 << 63)
    for delta in range(records_count - records):
        body, after = _record_at(buffer, position)
        timestamp_delta, offset_at = _varint(buffer, body + 1)
        _, rest = _varint(buffer, offset_at)
        tail_latest = max(tail_latest, timestamp_delta)
        fields = bytes(buffer[body:offset_at]) + encode_varint(delta) + bytes(buffer[rest:after])
        record = encode_varint(len(fields)) + fields
        buffer[write_at : write_at + len(record)] = record
        write_at += len(record)
        position = after
    return Halves(records, cut, write_at, latest, tail_latest)


def _record_at(buffer: memoryview, position: int) -> tuple[int, int]:
    """Where the body of the record at `position` begins, and where it ends."""
    length, body = _varint(buffer, position)
    return body, body + length


def _varint(buffer: memoryview, position: int) -> tuple[int, int]:
    """A zigzag varint, and the position behind it."""
    raw = shift = 0
    while True:
        byte = buffer[position]
        position += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (raw >> 1) ^ -(raw & 1), position
        shift += 7
