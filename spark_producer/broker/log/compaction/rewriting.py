"""The rewriting of single batches: fewer records with the same offsets, or a delete horizon (Kafka's MemoryRecords.filterTo)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa

from spark_producer.broker.log.validation import MAX_DECOMPRESSED_BYTES
from spark_producer.broker.storage.empty_batch import write_header_like
from spark_producer.errors import CorruptRecord
from spark_producer.kernel.varint import encode_varint
from spark_producer.record.batch_v2 import (
    DELETE_HORIZON_BIT,
    HEADER_SIZE,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE_BIT,
    BatchHeader,
)
from spark_producer.record.codecs import Codec, Compressor, decompress
from spark_producer.record.reading import read_records

MAX_GAP: Final = 2**31 - 1
"""Maximum offset delta of a batch."""


class Row(NamedTuple):
    """The fields of a record that compaction reads."""

    offset: int
    key: bytes | None
    is_tombstone: bool


def rows_of(batch: memoryview) -> list[Row]:
    """Return the records of a batch of data.

    Raises:
        CorruptRecord: the batch cannot be read.
    """
    rows: list[Row] = []
    for part in read_records(batch, verify_crc=False):
        tombstones = pa.compute.is_null(part.column("value")).to_pylist()
        columns: tuple[list[Any], ...] = (part.column("offset").to_pylist(), part.column("key").to_pylist(), tombstones)
        rows += [Row(*each) for each in zip(*columns, strict=True)]
    return rows


def filtered_batch(header: BatchHeader, batch: memoryview, keep: Sequence[int], horizon: int | None) -> bytes:
    """Return the batch with only the records at the offsets `keep`, which ascend. With `horizon`, in milliseconds since 1970, it
    gets this delete horizon.

    Raises:
        CorruptRecord: the batch cannot be read.
    """
    content = decompress(header.codec, batch[HEADER_SIZE:], MAX_DECOMPRESSED_BYTES)
    wanted, base = {offset - header.base_offset for offset in keep}, header.base_timestamp
    fresh = base if horizon is None else horizon
    pieces, latest = [], NO_TIMESTAMP
    for record in _records(content, header.records_count):
        if record.offset_delta in wanted:
            latest = max(latest, base + record.timestamp_delta)
            pieces.append(record.content if fresh == base else _at(record, base - fresh))
    if len(pieces) != len(keep):
        raise CorruptRecord(
            f"record batch at offset {header.base_offset} has other records than when it was first read"
        )
    joined = b"".join(pieces)
    packed = Compressor(Codec(header.codec)).compress(joined) if header.codec else joined
    out = bytearray(HEADER_SIZE + len(packed))
    out[HEADER_SIZE:] = packed
    if header.attributes & TIMESTAMP_TYPE_BIT:
        latest = header.max_timestamp  # the time of all of its records
    attributes = header.attributes | (0 if horizon is None else DELETE_HORIZON_BIT)
    write_header_like(out, header, len(pieces), fresh, latest, attributes)
    return bytes(out)


class _Raw(NamedTuple):
    """A record: its bytes with the length prefix, its attributes, its two deltas, and the bytes after the timestamp delta."""

    content: bytes
    attributes: int
    timestamp_delta: int
    offset_delta: int
    rest: bytes


def _records(content: memoryview, count: int) -> list[_Raw]:
    found, position = [], 0
    try:
        for _ in range(count):
            length, begin = _varint(content, position)
            end = begin + length
            if length < 0 or end > len(content):
                raise CorruptRecord("a record is longer than its batch")
            timestamp_delta, delta_end = _varint(content, begin + 1)
            offset_delta, _ = _varint(content, delta_end)
            raw = _Raw(
                bytes(content[position:end]),
                content[begin],
                timestamp_delta,
                offset_delta,
                bytes(content[delta_end:end]),
            )
            found.append(raw)
            position = end
    except IndexError as error:
        raise CorruptRecord("a record ends within a varint") from error
    return found


def _varint(content: memoryview, position: int) -> tuple[int, int]:
    """Return a zigzag varint, and the position after it."""
    value = shift = 0
    while True:
        byte = content[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), position
        shift += 7


def _at(record: _Raw, shift: int) -> bytes:
    """Return the record with its timestamp delta increased by `shift`."""
    body = bytes([record.attributes]) + encode_varint(record.timestamp_delta + shift) + record.rest
    return encode_varint(len(body)) + body
