"""Finds the messages in a column of Confluent's wire format: schema ids, the paths of messages, and where messages start."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from spark_producer.kernel.arrays import BoolArray, ByteArray, BytesArray, Int64Array
from spark_producer.schemas.frames import HEAD, key_of, positions_of
from spark_producer.schemas.header_ids import HeaderIds
from spark_producer.schemas.registry import SchemaKey

NO_FRAME = "it is not in Confluent's wire format, a zero, four bytes of schema id and the indexes of a message"

MAX_PATH = 64
"""Maximum length of a message's path; messages within messages are not declared so deeply."""

_INDEX_BYTES = 5
"""Maximum bytes of an index, which has 31 bits."""


class Frames(NamedTuple):
    """The rows that are frames.

    Attributes:
        rows: Their numbers in the column.
        sources: For each row the index of its pair in `pairs`.
        pairs: The schema ids or GUIDs, and the paths, that occur.
        data: The memory with the messages.
        starts, ends: The positions of each row's message in `data`.
        heads: The bytes before each message.
        bad: The numbers of the other rows that are not null, with the reasons.
    """

    rows: Int64Array
    sources: Int64Array
    pairs: list[tuple[SchemaKey, tuple[int, ...]]]
    data: ByteArray
    starts: Int64Array
    ends: Int64Array
    heads: Int64Array
    bad: list[tuple[Int64Array, str]]


def frames_of(column: BytesArray, header: HeaderIds | None = None) -> Frames:
    """Return the frames of a binary column; `header` has the ids that the headers of rows hold, and the paths.

    Raises:
        RecordError: the column's offsets are wrong.
    """
    live, starts, ends, data = positions_of(column)
    bare: BoolArray = np.zeros(len(column), np.bool_)
    if header is not None:
        bare[header.rows] = True
    framed = live & ~bare & (ends - starts > HEAD)
    framed[framed] = data[starts[framed]] == 0
    rows = np.flatnonzero(framed)
    places, paths, good = _paths(data, starts[rows] + HEAD, ends[rows])
    framed[rows[~good]] = False
    rows, places, paths = rows[good], places[good], paths[good]
    ids = np.zeros(len(rows), np.int64)
    for index in range(1, HEAD):
        ids = ids << 8 | data[starts[rows] + index]
    odd = np.flatnonzero(live & ~framed & ~bare)
    bad = [(odd, NO_FRAME)] if len(odd) else []
    heads = places - starts[rows]
    if header is not None:
        own, own_ids, own_paths, wrong = _of_header(header, live)
        bad += [(wrong, header.reason + " and the indexes of a message")] if len(wrong) else []
        order = np.argsort(np.concatenate((rows, own)))
        rows = np.concatenate((rows, own))[order]
        places, heads = (
            np.concatenate((places, starts[own]))[order],
            np.concatenate((heads, np.zeros(len(own), np.int64)))[order],
        )
        ids, paths = np.concatenate((ids, own_ids))[order], _stacked(paths, own_paths)[order]
    sources, numbered = _pairs(ids, paths)
    keys = [] if header is None else header.keys
    pairs = [(key_of(number, keys), path) for number, path in numbered]
    return Frames(rows, sources, pairs, data, places, ends[rows], heads, bad)


def _of_header(header: HeaderIds, live: BoolArray) -> tuple[Int64Array, Int64Array, Int64Array, Int64Array]:
    """Return the rows with an id in their header, the numbers of the ids, and the paths; and the rows with a wrong header."""
    found = np.flatnonzero((header.sources >= 0) & (header.starts < header.ends) & live[header.rows])
    places, paths, good = _paths(header.data, header.starts[found], header.ends[found])
    good &= places == header.ends[found]
    own = header.rows[found[good]]
    wrong = np.setdiff1d(header.rows[live[header.rows]], own)
    return own, -1 - header.sources[found[good]], paths[good], wrong


def _stacked(first: Int64Array, second: Int64Array) -> Int64Array:
    """Return paths below each other; shorter ones end with -1."""
    found = np.full((len(first) + len(second), max(first.shape[1], second.shape[1])), -1, np.int64)
    found[: len(first), : first.shape[1]] = first
    found[len(first) :, : second.shape[1]] = second
    return found


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
