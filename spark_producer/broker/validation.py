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

from spark_producer.codes import Code
from spark_producer.errors import BrokerError, CorruptRecord
from spark_producer.kernel import decode_v2
from spark_producer.kernel.arrays import ByteArray
from spark_producer.record.batch_v2 import HEADER_SIZE, BatchHeader
from spark_producer.record.codecs import decompress
from spark_producer.record.record_cursor import why_malformed

SMALLEST_RECORD: Final = 7
"""Bytes: length, attributes, two deltas, key and value length, count of headers."""

LARGEST_UNPACKED: Final = 1 << 27
"""Bytes that a batch may unpack to: as many as our readers take. Kafka unpacks piece by piece, and knows no limit."""

MOST_UNPACKED: Final = 4 * LARGEST_UNPACKED
"""Bytes that the batches of one request may unpack to: a second's work or two, in which nobody else is served."""

ROWS_AT_ONCE: Final = 1 << 16
"""Records that are looked at together: their columns take 5 MB."""


class Unpacking:
    """What the batches of one request may still unpack to: 4 KB can be 128 MB, and a request may have thousands of them."""

    def __init__(self) -> None:
        self._left = MOST_UNPACKED

    def unpack(self, header: BatchHeader, batch: memoryview) -> memoryview:
        """The records of `batch`.

        Raises:
            CorruptRecord: they cannot be unpacked.
            BrokerError: REQUEST_TIMED_OUT, for packed batches after too much was unpacked: clients send them again.
        """
        if header.codec and self._left <= 0:
            raise BrokerError(
                f"the batches of this request unpack to more than {MOST_UNPACKED} bytes: send the rest again",
                code=Code.REQUEST_TIMED_OUT,
            )
        cost = LARGEST_UNPACKED  # of a batch that cannot be unpacked
        try:
            records = decompress(header.codec, batch[HEADER_SIZE:], LARGEST_UNPACKED)
            cost = len(records) if header.codec else 0
        finally:
            self._left -= cost
        return records


def check_records(header: BatchHeader, batch: memoryview, unpacking: Unpacking | None = None) -> None:
    """Whether `batch` holds `header.records_count` well-formed records and nothing else, with offset deltas 0, 1, 2 …

    Raises:
        BrokerError: INVALID_RECORD, or REQUEST_TIMED_OUT as `Unpacking`.
    """
    try:
        records = (unpacking or Unpacking()).unpack(header, batch)
        if header.records_count > len(records) // SMALLEST_RECORD:
            raise CorruptRecord(
                f"{len(records)} bytes cannot hold {header.records_count} records, as the header claims"
            )
        _walk(np.frombuffer(records, dtype=np.uint8), header.records_count)
    except CorruptRecord as error:
        raise BrokerError(f"the record batch is refused: {error}", code=Code.INVALID_RECORD) from error


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
