"""Record batches (V2) → single records, for tools that show what is in a topic.

Owns: the layout of a record inside a batch (spec: kafka_producer.md §3.3) and every check of it.
Must not know: where the bytes came from. It is not on the way of a row: one Python object per record is fine here.

Whatever the bytes are, the only error is `CorruptRecord`, and reading ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from spark_producer.errors import CorruptRecord
from spark_producer.record.batch_v2 import (
    CONTROL_BIT,
    HEADER_SIZE,
    TIMESTAMP_TYPE_BIT,
    BatchHeader,
    batches,
    check_crc,
)

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
"""Names of the codecs, by the number in a batch's attributes."""

VARINT_BYTES, VARLONG_BYTES = 5, 10
"""A zigzag varint of 32 bits takes at most 5 bytes, one of 64 bits 10."""


class Record(NamedTuple):
    """One record. `timestamp` is in milliseconds since 1970; a null key or value is None."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def read_records(data: bytes | bytearray | memoryview) -> Iterator[Record]:
    """The records of all complete batches in `data`; an incomplete batch at the end is left out (legal in Fetch).

    Raises:
        CorruptRecord: as `read_batch`, or a header that cannot be one.
    """
    for header, batch in batches(data):
        yield from read_batch(header, batch)


def read_batch(header: BatchHeader, batch: bytes | bytearray | memoryview) -> Iterator[Record]:
    """The records of one batch, in order; none for a control batch, whose markers are for the broker.

    Raises:
        CorruptRecord: the CRC is wrong, the batch is compressed, or a field contradicts another; names offset and reason.
    """
    view = memoryview(batch)
    if header.size != len(view):
        raise _corrupt(header.base_offset, f"the batch claims {header.size} bytes, {len(view)} are there")
    check_crc(header, view)
    if header.attributes & CONTROL_BIT:
        return
    _check_header(header)
    cursor = _Cursor(bytes(view[HEADER_SIZE:]), header.base_offset)
    previous = -1
    for _ in range(header.records_count):
        record, delta = _read_record(cursor, header)
        if not previous < delta <= header.last_offset_delta:
            raise cursor.corrupt(
                f"offset delta {delta} lies outside {previous + 1} … {header.last_offset_delta}, what is left of the batch"
            )
        previous = delta
        cursor.offset = record.offset + 1
        yield record
    if cursor.position != cursor.limit:
        raise cursor.corrupt(f"{cursor.limit - cursor.position} bytes are left after the last record of the batch")


def codec_name(header: BatchHeader) -> str:
    """`none`, `gzip`, `snappy`, `lz4`, `zstd`; a number that Kafka has not given out is named as such."""
    return CODECS[header.codec] if header.codec < len(CODECS) else f"unknown codec {header.codec}"


def _check_header(header: BatchHeader) -> None:
    if header.codec:
        raise _corrupt(
            header.base_offset,
            f"the batch is compressed ({codec_name(header)}); this version reads uncompressed batches only. Use another "
            "consumer, such as kafka-console-consumer.sh",
        )
    if header.records_count < 0 or header.last_offset_delta < 0:
        raise _corrupt(
            header.base_offset,
            f"the batch claims {header.records_count} records and last offset delta {header.last_offset_delta}",
        )


def _read_record(cursor: _Cursor, header: BatchHeader) -> tuple[Record, int]:
    """The record at the cursor, and its offset delta."""
    size = cursor.varint("record length", VARINT_BYTES)
    end = cursor.position + size
    if size < 0 or end > len(cursor.data):
        raise cursor.corrupt(f"record length is {size}, {len(cursor.data) - cursor.position} bytes are left")
    cursor.limit = end
    cursor.byte("record attributes")
    timestamp_delta = cursor.varint("timestamp delta", VARLONG_BYTES)
    delta = cursor.varint("offset delta", VARINT_BYTES)
    key, value = cursor.sized("key"), cursor.sized("value")
    headers = _read_headers(cursor)
    if cursor.position != end:
        raise cursor.corrupt(f"the record claims {end - cursor.position} bytes more than its fields have")
    cursor.limit = len(cursor.data)
    by_broker = header.attributes & TIMESTAMP_TYPE_BIT
    timestamp = header.max_timestamp if by_broker else header.base_timestamp + timestamp_delta
    return Record(header.base_offset + delta, timestamp, key, value, headers), delta


def _read_headers(cursor: _Cursor) -> tuple[tuple[str, bytes | None], ...]:
    count = cursor.varint("header count", VARINT_BYTES)
    if not 0 <= count <= cursor.limit - cursor.position:  # each header takes two bytes or more
        raise cursor.corrupt(f"header count is {count}, {cursor.limit - cursor.position} bytes are left")
    return tuple(_read_header(cursor) for _ in range(count))


def _read_header(cursor: _Cursor) -> tuple[str, bytes | None]:
    key = cursor.sized("header key")
    if key is None:
        raise cursor.corrupt("a header key is null")
    try:
        return key.decode(), cursor.sized("header value")
    except UnicodeDecodeError:
        raise cursor.corrupt("a header key is not UTF-8") from None


class _Cursor:
    """A place in the records of one batch, which never passes `limit`; `offset` is the one being read, for messages."""

    __slots__ = ("data", "limit", "offset", "position")

    def __init__(self, data: bytes, offset: int) -> None:
        self.data = data
        self.position = 0
        self.limit = len(data)
        self.offset = offset

    def corrupt(self, reason: str) -> CorruptRecord:
        return _corrupt(self.offset, reason)

    def byte(self, what: str) -> int:
        if self.position >= self.limit:
            raise self.corrupt(f"the record ends inside its {what}")
        self.position += 1
        return self.data[self.position - 1]

    def varint(self, what: str, longest: int) -> int:
        """A zigzag varint of at most `longest` bytes."""
        raw = 0
        for place in range(longest):
            byte = self.byte(what)
            raw |= (byte & 0x7F) << (7 * place)
            if byte < 0x80:
                break
        else:
            raise self.corrupt(f"{what} is a varint of more than {longest} bytes")
        if raw >> (32 if longest == VARINT_BYTES else 64):
            raise self.corrupt(f"{what} is a varint out of range")
        return (raw >> 1) ^ -(raw & 1)

    def sized(self, what: str) -> bytes | None:
        """Bytes after their length; length -1 is null."""
        size = self.varint(f"{what} length", VARINT_BYTES)
        if size == -1:
            return None
        if not 0 <= size <= self.limit - self.position:
            raise self.corrupt(f"{what} length is {size}, {self.limit - self.position} bytes are left")
        self.position += size
        return self.data[self.position - size : self.position]


def _corrupt(offset: int, reason: str) -> CorruptRecord:
    return CorruptRecord(f"record at offset {offset}: {reason}", offset=offset)
