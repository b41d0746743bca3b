"""The records of a batch that a client sends: are they what the header says?

Owns: walking them before they are appended (Kafka's LogValidator).
Must not know: logs, producers.

A header that claims more records than there are would use up offsets, and a malformed record stops every consumer at it. So
Kafka reads each batch to its end, a compressed one too, which it unpacks for that; and so do we. Offsets inside a batch must
count from 0: Kafka writes compressed batches anew where they do not, and overlooks it in others.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from spark_producer.broker import codes
from spark_producer.errors import BrokerError, CorruptRecord
from spark_producer.kernel import decode_v2
from spark_producer.kernel.columns import ByteArray
from spark_producer.record.batch_v2 import HEADER_SIZE, BatchHeader
from spark_producer.record.compression import decompress
from spark_producer.record.record_cursor import why_malformed

SMALLEST_RECORD: Final = 7
"""Bytes: length, attributes, two deltas, key and value length, count of headers."""

LARGEST_UNPACKED: Final = 1 << 27
"""Bytes that a batch may unpack to: as many as our readers take. Kafka unpacks piece by piece, and knows no limit."""

ROWS_AT_ONCE: Final = 1 << 16
"""Records that are looked at together: their columns take 5 MB."""


def check_records(header: BatchHeader, batch: memoryview) -> None:
    """Whether `batch` holds `header.records_count` well-formed records and nothing else, with offset deltas 0, 1, 2 …

    Raises:
        BrokerError: INVALID_RECORD.
    """
    try:
        records = decompress(header.codec, batch[HEADER_SIZE:], LARGEST_UNPACKED)
        if header.records_count > len(records) // SMALLEST_RECORD:
            raise CorruptRecord(
                f"{len(records)} bytes cannot hold {header.records_count} records, as the header claims"
            )
        _walk(np.frombuffer(records, dtype=np.uint8), header.records_count)
    except CorruptRecord as error:
        raise BrokerError(f"the record batch is refused: {error}", code=codes.INVALID_RECORD) from error


def _walk(data: ByteArray, count: int) -> None:
    """Read `count` records, which fill `data`; CorruptRecord says what is wrong."""
    position, done = 0, 0
    ends = np.array([len(data)], dtype=np.int64)
    while done < count:
        asked = min(count - done, ROWS_AT_ONCE)
        decoded = decode_v2(data, np.array([position], dtype=np.int64), ends, np.array([asked], dtype=np.int64))
        found = decoded.offset_deltas
        expected = np.arange(done, done + len(found), dtype=np.int64)
        if not np.array_equal(found, expected):
            wrong = int((found != expected).argmax())
            raise CorruptRecord(f"record {done + wrong} has offset delta {found[wrong]}")
        done += len(found)
        position = decoded.stop if decoded.stop >= 0 else len(data)
        if len(found) < asked and not decoded.full:
            raise CorruptRecord(_why_stopped(data, position, done, count))
    if position != len(data):
        raise CorruptRecord(f"{len(data) - position} bytes are left after the last of {count} records")


def _why_stopped(data: ByteArray, position: int, done: int, count: int) -> str:
    if position == len(data):
        return f"it holds {done} records, its header claims {count}"
    return f"record {done} of {count}: {why_malformed(data[position:].data)}"
