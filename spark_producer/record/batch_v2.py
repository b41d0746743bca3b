"""The header of a V2 record batch: layout, reading, sealing, CRC-32C.

Owns: the 61 bytes before the records (spec: kafka_producer.md §3.3; Kafka's DefaultRecordBatch).
Must not know: how records are encoded (`kernel`), where the buffer came from, or when a batch is sent.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from crc32c import crc32c

from spark_producer.errors import CorruptRecord

MAGIC = 2
HEADER_SIZE = 61
LOG_OVERHEAD = 12
"""base offset and batch length: the bytes that `batch_length` does not count"""
CRC_START = 21
"""CRC-32C covers attributes to the end, so leader epoch and base offset can change without a new one"""

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
NO_LEADER_EPOCH = -1

CODEC_MASK = 0x07
TIMESTAMP_TYPE_BIT = 0x08
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20

_HEADER = struct.Struct(">qiibIhiqqqhii")
_CRC = struct.Struct(">I")


class BatchHeader(NamedTuple):
    """The fields of the header, in wire order. `size` is the whole batch in bytes."""

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
        """Bytes of the whole batch, header included."""
        return self.batch_length + LOG_OVERHEAD

    @property
    def last_offset(self) -> int:
        """Offset of the batch's last record."""
        return self.base_offset + self.last_offset_delta

    @property
    def codec(self) -> int:
        """0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd."""
        return self.attributes & CODEC_MASK


def read_header(data: bytes | bytearray | memoryview, position: int = 0) -> BatchHeader:
    """Read the header at `position`.

    Raises:
        CorruptRecord: fewer than 61 bytes, an unknown magic, or an impossible length.
    """
    if len(data) - position < HEADER_SIZE:
        raise CorruptRecord(f"a record batch needs {HEADER_SIZE} header bytes, {len(data) - position} are there")
    header = BatchHeader._make(_HEADER.unpack_from(data, position))
    if header.magic != MAGIC:
        raise CorruptRecord(f"record batch at byte {position} has magic {header.magic}; only {MAGIC} is read")
    if header.batch_length < HEADER_SIZE - LOG_OVERHEAD:
        raise CorruptRecord(f"record batch at byte {position} claims {header.batch_length} bytes, less than its header")
    return header


def batches(data: bytes | bytearray | memoryview) -> Iterator[tuple[BatchHeader, memoryview]]:
    """The complete batches in `data`, each with its bytes; an incomplete one at the end is left out (legal in Fetch)."""
    view = memoryview(data)
    position = 0
    while len(view) - position >= HEADER_SIZE:
        header = read_header(view, position)
        if position + header.size > len(view):
            return
        yield header, view[position : position + header.size]
        position += header.size


def check_crc(header: BatchHeader, batch: memoryview) -> None:
    """Compare the CRC-32C of `batch` with its header's.

    Raises:
        CorruptRecord: they differ.
    """
    found = crc32c(batch[CRC_START : header.size])
    if found != header.crc:
        raise CorruptRecord(
            f"record batch at offset {header.base_offset}: CRC is {found:#010x}, header says {header.crc:#010x}"
        )


def seal(
    batch: memoryview,
    *,
    records_count: int,
    base_timestamp: int,
    max_timestamp: int,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    attributes: int = 0,
) -> None:
    """Write the header into the first 61 bytes of `batch`, whose records are already there, and its CRC.

    Called at drain, again after an epoch bump: everything in the header may change until the bytes are sent.
    """
    _HEADER.pack_into(
        batch, 0, 0, len(batch) - LOG_OVERHEAD, NO_LEADER_EPOCH, MAGIC, 0, attributes, records_count - 1,
        base_timestamp, max_timestamp, producer_id, producer_epoch, base_sequence, records_count,
    )  # fmt: skip
    _CRC.pack_into(batch, 17, crc32c(batch[CRC_START:]))


def assign_base_offset(batch: memoryview, base_offset: int, leader_epoch: int) -> None:
    """What a broker does on append: set base offset and leader epoch, which the CRC does not cover."""
    struct.pack_into(">q", batch, 0, base_offset)
    struct.pack_into(">i", batch, LOG_OVERHEAD, leader_epoch)
