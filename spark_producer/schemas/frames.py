"""Finds the values in a column of Confluent's wire format, for formats without message indexes: schema ids and positions."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from spark_producer.errors import CorruptRecord, RecordError
from spark_producer.kernel.arrays import BoolArray, ByteArray, BytesArray, Int64Array
from spark_producer.kernel.column_views import BinaryColumn
from spark_producer.schemas.header_ids import HeaderIds
from spark_producer.schemas.registry import SchemaKey
from spark_producer.schemas.wire_format import ID_BYTES, split_frame

NO_FRAME = "it is not in Confluent's wire format, a zero and four bytes of schema id"

HEAD = 1 + ID_BYTES
"""The bytes before a value whose header has no id."""


class Frames(NamedTuple):
    """The rows that have a schema's id: their numbers, ascending, and the positions of their values in `data`.

    Attributes:
        ids: For each row its id; a negative number if its header has one. `key` returns the id or GUID of both.
        bad: The numbers of the other rows that are not null, with the reasons.
    """

    rows: Int64Array
    ids: Int64Array
    data: ByteArray
    starts: Int64Array
    ends: Int64Array
    bad: list[tuple[Int64Array, str]]
    header_keys: list[SchemaKey]

    def key(self, number: int) -> SchemaKey:
        """Return the id or GUID of a number in `ids`."""
        return key_of(number, self.header_keys)

    def head(self, number: int) -> int:
        """Return the bytes before values with a number in `ids`."""
        return HEAD if number >= 0 else 0


def key_of(number: int, header_keys: list[SchemaKey]) -> SchemaKey:
    """Return the id or GUID of a number: itself, or a negative one's in the keys of headers."""
    return number if number >= 0 else header_keys[-1 - number]


class Positions(NamedTuple):
    """The rows of a column that are not null, and where each row begins and ends."""

    live: BoolArray
    starts: Int64Array
    ends: Int64Array
    data: ByteArray


def positions_of(column: BytesArray) -> Positions:
    """Return the positions of a column's rows.

    Raises:
        RecordError: the column's offsets are wrong.
    """
    view = BinaryColumn(column)
    starts, ends = view.offsets[:-1].astype(np.int64), view.offsets[1:].astype(np.int64)
    if len(column) and (starts[0] < 0 or ends[-1] > len(view.data) or (starts > ends).any()):
        raise RecordError("the offsets of a binary column are wrong: the input is damaged")
    live: BoolArray = np.ones(len(column), np.bool_) if view.valid is None else view.valid
    return Positions(live, starts, ends, view.data)


def frames_of(column: BytesArray, header: HeaderIds | None = None) -> Frames:
    """Return the frames of a binary column; `header` has the ids that the headers of rows hold.

    Raises:
        RecordError: the column's offsets are wrong.
    """
    live, starts, ends, data = positions_of(column)
    bad: list[tuple[Int64Array, str]] = []
    if header is not None:
        headed: BoolArray = np.zeros(len(column), np.bool_)
        headed[header.rows] = live[header.rows]
        live = live & ~headed
    framed = live & (ends - starts >= HEAD)
    framed[framed] = data[starts[framed]] == 0
    odd = np.flatnonzero(live & ~framed)
    if len(odd):
        bad.append((odd, NO_FRAME))
    rows = np.flatnonzero(framed)
    ids = np.zeros(len(rows), np.int64)
    for index in range(1, HEAD):
        ids = ids << 8 | data[starts[rows] + index]
    if header is None:
        return Frames(rows, ids, data, starts[rows] + HEAD, ends[rows], bad, [])
    good = (header.sources >= 0) & (header.starts == header.ends)
    chosen = headed[header.rows]
    if (chosen & ~good).any():
        bad.append((header.rows[chosen & ~good], header.reason))
    own = header.rows[chosen & good]
    starts[rows] += HEAD
    every = np.concatenate((rows, own))
    order = np.argsort(every)
    ids = np.concatenate((ids, -1 - header.sources[chosen & good]))
    every = every[order]
    return Frames(every, ids[order], data, starts[every], ends[every], bad, header.keys)


class FramedValue(NamedTuple):
    """The id or GUID of the schema of a single value, and the value without its frame."""

    key: SchemaKey
    content: bytes


def framed_value(content: bytes, header: HeaderIds | None) -> FramedValue | None:
    """Return a single value without its frame; None if it has none. `header` has the id that the headers of its record hold.

    Raises:
        CorruptRecord: its header names no schema.
    """
    if header is None:
        framed = split_frame(content)
        return None if framed is None else FramedValue(*framed)
    frames = frames_of(pa.array([content], pa.binary()), header)
    if not len(frames.rows):
        raise CorruptRecord(header.reason)
    return FramedValue(frames.key(int(frames.ids[0])), content)
