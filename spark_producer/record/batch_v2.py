"""The header of a V2 record batch, which is the 61 bytes before the records (Kafka's DefaultRecordBatch).

It is read and written here, with its CRC-32C, and so are the fields that a broker changes.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Iterator
from typing import NamedTuple

from spark_producer.errors import CorruptRecord
from spark_producer.record.checksum import crc32c
from spark_producer.record.sequence_numbers import add_to_sequence

MAGIC = 2
HEADER_SIZE = 61
LOG_OVERHEAD = 12
"""The size of base offset and batch length, which `batch_length` does not count."""
CRC_START = 21
"""CRC-32C covers the attributes and all later bytes, so leader epoch and base offset can change without a new one."""

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
NO_TIMESTAMP = -1
NO_LEADER_EPOCH = -1

CODEC_MASK = 0x07
TIMESTAMP_TYPE_BIT = 0x08
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20
DELETE_HORIZON_BIT = 0x40

_HEADER = struct.Struct(">qiibIhiqqqhii")
_CRC = struct.Struct(">I")
_CRC_AT = 17
_LOW_ATTRIBUTES_AT = 22
_BASE_OFFSET = struct.Struct(">q")
_LEADER_EPOCH = struct.Struct(">i")


class TimestampType(enum.IntEnum):
    """The source of a record's timestamp. Message format V0 has no timestamps."""

    NONE = -1
    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class BatchHeader(NamedTuple):
    """The fields of the header, in wire order. `size` is that of the whole batch in bytes."""

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records_count: int

    @property
    def size(self) -> int:
        """The size of the whole batch in bytes, header included."""
        return self.batch_length + LOG_OVERHEAD

    @property
    def last_offset(self) -> int:
        """The offset of the batch's last record."""
        return self.base_offset + self.last_offset_delta

    @property
    def codec(self) -> int:
        """The number of the codec (`record.codecs.Codec`)."""
        return self.attributes & CODEC_MASK

    @property
    def timestamp_type(self) -> TimestampType:
        """Create time, or log append time, with which all records have `max_timestamp`."""
        return TimestampType.LOG_APPEND_TIME if self.attributes & TIMESTAMP_TYPE_BIT else TimestampType.CREATE_TIME

    @property
    def is_transactional(self) -> bool:
        """Whether the records belong to a transaction."""
        return bool(self.attributes & TRANSACTIONAL_BIT)

    @property
    def is_control(self) -> bool:
        """Whether the records are markers for brokers and clients instead of user data."""
        return bool(self.attributes & CONTROL_BIT)

    @property
    def delete_horizon(self) -> int | None:
        """The milliseconds since 1970 at which compaction may drop the tombstones and markers of the batch (KIP-534)."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON_BIT else None

    @property
    def last_sequence(self) -> int:
        """The sequence number of the last record, or -1 if the batch has none."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return add_to_sequence(self.base_sequence, self.last_offset_delta)


def read_header(data: bytes | bytearray | memoryview, position: int = 0) -> BatchHeader:
    """Read the header at `position`.

    Raises:
        CorruptRecord: There are fewer than 61 bytes, the magic is unknown, or the length is impossible.
    """
    if len(data) - position < HEADER_SIZE:
        raise CorruptRecord(f"a record batch needs {HEADER_SIZE} header bytes, {len(data) - position} are there")
    header = BatchHeader._make(_HEADER.unpack_from(data, position))
    if header.magic != MAGIC:
        raise CorruptRecord(f"record batch at byte {position} has magic {header.magic}; only {MAGIC} is read")
    if header.batch_length < HEADER_SIZE - LOG_OVERHEAD:
        raise CorruptRecord(f"record batch at byte {position} claims {header.batch_length} bytes, less than its header")
    return header


def is_transactional(batch: memoryview | None) -> bool:
    """Return whether the bytes have the mark of a batch in a transaction, if they are a batch."""
    return batch is not None and len(batch) >= HEADER_SIZE and bool(batch[_LOW_ATTRIBUTES_AT] & TRANSACTIONAL_BIT)


def batches(data: bytes | bytearray | memoryview) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Yield the complete batches in `data`, each with its bytes; an incomplete one at the end is left out (legal in Fetch)."""
    view = memoryview(data)
    position = 0
    while len(view) - position >= HEADER_SIZE:
        header = read_header(view, position)
        if position + header.size > len(view):
            return
        yield header, view[position : position + header.size]
        position += header.size


def check_crc(header: BatchHeader, batch: memoryview) -> None:
    """Compare the CRC-32C of `batch` with the one in its header.

    Raises:
        CorruptRecord: They differ.
    """
    found = crc32c(batch[CRC_START : header.size])
    if found != header.crc:
        raise CorruptRecord(
            f"record batch at offset {header.base_offset}: CRC is {found:#010x}, header says {header.crc:#010x}",
            offset=header.base_offset,
        )


def batch_attributes(
    *,
    codec: int = 0,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    transactional: bool = False,
    delete_horizon: bool = False,
) -> int:
    """Return the attributes of a batch: bits 0-2 codec, 3 log append time, 4 transactional, 6 delete horizon."""
    return (
        codec
        | (TIMESTAMP_TYPE_BIT if timestamp_type is TimestampType.LOG_APPEND_TIME else 0)
        | (TRANSACTIONAL_BIT if transactional else 0)
        | (DELETE_HORIZON_BIT if delete_horizon else 0)
    )


def write_header(
    batch: memoryview,
    *,
    records_count: int,
    base_timestamp: int,
    max_timestamp: int,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    attributes: int = 0,
    base_offset: int = 0,
    last_offset_delta: int | None = None,
    leader_epoch: int = NO_LEADER_EPOCH,
) -> None:
    """Write the header, with its CRC, into the first 61 bytes of `batch`, whose records are already there.

    If `last_offset_delta` is None, the offsets have no gaps. The header is written when a batch is drained, and again after
    an epoch bump: every field may change until the bytes are sent.
    """
    delta = records_count - 1 if last_offset_delta is None else last_offset_delta
    _HEADER.pack_into(
        batch, 0, base_offset, len(batch) - LOG_OVERHEAD, leader_epoch, MAGIC, 0, attributes, delta,
        base_timestamp, max_timestamp, producer_id, producer_epoch, base_sequence, records_count,
    )  # fmt: skip
    _CRC.pack_into(batch, _CRC_AT, crc32c(batch[CRC_START:]))


def assign_base_offset(batch: memoryview, base_offset: int, leader_epoch: int) -> None:
    """Set base offset and leader epoch, which the CRC does not cover, as a broker does on append."""
    _BASE_OFFSET.pack_into(batch, 0, base_offset)
    _LEADER_EPOCH.pack_into(batch, LOG_OVERHEAD, leader_epoch)
