"""Control batches and transactional ones for tests, built from the layout alone, and not by what writes them here."""

from __future__ import annotations

import struct

from spark_producer.record.batch_v2 import HEADER_SIZE, write_header
from tests.unit.record.test_reading import record_bytes, zigzag

TRANSACTIONAL, CONTROL = 0x10, 0x20


def batch(
    offset: int, producer: int, attributes: int = TRANSACTIONAL, body: bytes = record_bytes(), records: int = 1
) -> bytes:
    content = bytearray(HEADER_SIZE) + body
    write_header(
        memoryview(content), records_count=records, base_timestamp=0, max_timestamp=0, producer_id=producer,
        producer_epoch=0, base_sequence=0, attributes=attributes, base_offset=offset, last_offset_delta=max(records, 1) - 1,
    )  # fmt: skip
    return bytes(content)


def marker_record(kind: int, offset_delta: int = 0) -> bytes:
    """The record of a marker, whose value has the length of EndTransactionMarker's."""
    return record_bytes(
        offset_delta=offset_delta, key=zigzag(4) + struct.pack(">hh", 0, kind), value=zigzag(6) + bytes(6)
    )


def marker(offset: int, producer: int, kind: int) -> bytes:
    return batch(offset, producer, TRANSACTIONAL | CONTROL, marker_record(kind))
