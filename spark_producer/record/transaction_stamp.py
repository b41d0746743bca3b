"""Writes producer and transaction into a batch that was encoded before its producer was known."""

from __future__ import annotations

import struct

from spark_producer.errors import CorruptRecord
from spark_producer.record.batch_v2 import CONTROL_BIT, CRC_START, TRANSACTIONAL_BIT, read_header
from spark_producer.record.checksum import crc32c

_ATTRIBUTES = struct.Struct(">h")
_PRODUCER = struct.Struct(">qhi")
_CRC = struct.Struct(">I")
_PRODUCER_AT = 43
_CRC_AT = 17


def stamp(data: bytes | bytearray | memoryview, producer_id: int, producer_epoch: int, base_sequence: int) -> bytearray:
    """Return a copy of one V2 batch with a producer, a sequence, the transactional bit, and a new CRC.

    Without the bit a broker would append it outside of the transaction, without an error.

    Raises:
        CorruptRecord: `data` is not exactly one batch of data, or it has no records.
    """
    header = read_header(data)
    if header.size != len(data):
        raise CorruptRecord(f"a batch of {header.size} bytes was to be stamped, {len(data)} are there")
    if header.is_control or header.records_count < 1 or header.last_offset_delta != header.records_count - 1:
        raise CorruptRecord(
            f"a batch with attributes {header.attributes:#x}, {header.records_count} records and last offset delta "
            f"{header.last_offset_delta} cannot be stamped"
        )
    batch = bytearray(data)
    _ATTRIBUTES.pack_into(batch, CRC_START, (header.attributes | TRANSACTIONAL_BIT) & ~CONTROL_BIT)
    _PRODUCER.pack_into(batch, _PRODUCER_AT, producer_id, producer_epoch, base_sequence)
    _CRC.pack_into(batch, _CRC_AT, crc32c(memoryview(batch)[CRC_START:]))
    return batch
