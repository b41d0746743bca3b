"""Finds the messages in a column of Confluent's wire format: schema ids, the paths of messages, and where messages start."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from spark_producer.errors import RecordError
from spark_producer.kernel.arrays import BoolArray, ByteArray, BytesArray, Int64Array
from spark_producer.kernel.column_views import BinaryColumn
from spark_producer.schemas.wire_format import ID_BYTES

NO_FRAME = "it is not in Confluent's wire format, a zero, four bytes of schema id and the indexes of a message"

MAX_PATH = 64
"""Maximum length of a message's path; messages within messages are not declared so deeply."""

_INDEX_BYTES = 5
"""Maximum bytes of an index, which has 31 bits."""

_HEAD = 1 + ID_BYTES


class Frames(NamedTuple):
    """The rows that are frames.

    Attributes:
        rows: Their numbers in the column.
        sources: For each row the index of its pair in `pairs`.
        pairs: The schema ids and paths that occur.
        data: The memory with the messages.
        starts, ends: The positions of each row's message in `data`.
        heads: The bytes before each message.
        odd: The numbers of the other rows that are not null.
    """

    rows: Int64Array
    sources: Int64Array
    pairs: list[tuple[int, tuple[int, ...]]]
    data: ByteArray
    starts: Int64Array
    ends: Int64Array
    heads: Int64Array
    odd: Int64Array


def frames_of(column: BytesArray) -> Frames:
    """Return the frames of a binary column.

    Raises:
        RecordError: the column's offsets are wrong.
    """
    view = BinaryColumn(column)
    starts, ends = view.offsets[:-1].astype(np.int64), view.offsets[1:].astype(np.int64)
    if len(column) and (starts[0] < 0 or ends[-1] > len(view.data) or (starts > ends).any()):
        raise RecordError("the offsets of a binary column are wrong: the input is damaged")
    live: BoolArray = np.ones(len(column), np.bool_) if view.valid is None else view.valid
    framed = live & (ends - starts > _HEAD)
    framed[framed] = view.data[starts[framed]] == 0
    rows = np.flatnonzero(framed)
    places, paths, good = _paths(view.data, starts[rows] + _HEAD, ends[rows])
    framed[rows[~good]] = False
    rows, places, paths = rows[good], places[good], paths[good]
    ids = np.zeros(len(rows), np.int64)
    for index in range(1, _HEAD):
        ids = ids << 8 | view.data[starts[rows] + index]
    sources, pairs = _pairs(ids, paths)
    heads = places - starts[rows]
    return Frames(rows, sources, pairs, view.data, places, ends[rows], heads, np.flatnonzero(live & ~framed))


def _paths(data: ByteArray, starts: Int64Array, ends: Int64Array) -> tuple[Int64Array, Int64Array, BoolArray]:
    """Return where the messages start, the paths as rows that end with -1, and which of them are valid."""
    if len(starts) and not data[starts].any():  # nearly all files have one message
        return starts + 1, np.zeros((len(starts), 1), np.int64), np.ones(len(starts), np.bool_)
    counts, places, good = _varints(data, starts, ends, np.ones(len(starts), np.bool_))
    good &= (counts >= 0) & (counts <= MAX_PATH)
    counts = np.where(good, counts, 0)
    paths = np.full((len(starts), max(1, int(counts.max(initial=0)))), -1, np.int64)
    paths[counts == 0, 0] = 0
    for index in range(int(counts.max(initial=0))):
        here = counts > index
        found, places, read = _varints(data, places, ends, here & good)
        good &= ~here | (read & (found >= 0))
        paths[here, index] = found[here]
    return places, paths, good


def _varints(
    data: ByteArray, places: Int64Array, ends: Int64Array, wanted: BoolArray
) -> tuple[Int64Array, Int64Array, BoolArray]:
    """Return the zigzag varints of the wanted rows, the positions after them, and which rows have one."""
    found, places = np.zeros(len(places), np.int64), places.copy()
    left = wanted & (places < ends)
    done: BoolArray = np.zeros(len(places), np.bool_)
    for index in range(_INDEX_BYTES):
        rows = np.flatnonzero(left)
        byte = data[places[rows]].astype(np.int64)
        found[rows] |= (byte & 0x7F) << 7 * index
        places[rows] += 1
        done[rows[byte < 0x80]] = True
        left = left & ~done & (places < ends)
    return (found >> 1) ^ -(found & 1), places, done


def _pairs(ids: Int64Array, paths: Int64Array) -> tuple[Int64Array, list[tuple[int, tuple[int, ...]]]]:
    keys = np.column_stack((ids, paths))
    if len(keys) and not (keys != keys[0]).any():
        return np.zeros(len(keys), np.int64), [_pair(keys[0])]
    different, sources = np.unique(keys, axis=0, return_inverse=True)
    return sources.reshape(-1).astype(np.int64), [_pair(each) for each in different]


def _pair(key: Int64Array) -> tuple[int, tuple[int, ...]]:
    numbers = key.tolist()
    return numbers[0], tuple(number for number in numbers[1:] if number >= 0)
