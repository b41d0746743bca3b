"""The check that the records of a batch are what its header says, before the batch is appended (Kafka's LogValidator).

A header that claims more records than there are would use up offsets, and a malformed record would stop every consumer. So, like
Kafka, this module reads each batch to its end, and unpacks a compressed one for that. Offsets inside a batch must count from 0;
where they do not, Kafka writes a compressed batch anew, and overlooks the fault in others.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from spark_producer.common.error_codes import Code
from spark_producer.errors import BrokerError, CorruptRecord
from spark_producer.kernel import decode_v2
from spark_producer.kernel.arrays import ByteArray
from spark_producer.record.batch_v2 import HEADER_SIZE, BatchHeader
from spark_producer.record.codecs import decompress
from spark_producer.record.reading import DECOMPRESSED_LIMIT
from spark_producer.record.record_cursor import why_malformed

MIN_RECORD_BYTES: Final = 7
"""The bytes of the smallest record: length, attributes, two deltas, key and value length, and count of headers."""

MAX_DECOMPRESSED_BYTES: Final = DECOMPRESSED_LIMIT
"""The most bytes that a batch may unpack to: as many as our readers take. Kafka unpacks piece by piece and sets no limit."""

MAX_REQUEST_DECOMPRESSED_BYTES: Final = 4 * MAX_DECOMPRESSED_BYTES
"""The most bytes that the batches of one request may unpack to: a second's work or two, in which nobody else is served."""

ROWS_AT_ONCE: Final = 1 << 16
"""The records that are checked together; their columns take 5 MB."""


MAX_NAMED: Final = 1000
"""The maximum number of refused records of a batch that a response names."""


class DecompressionBudget:
    """Limits the bytes that each batch of one request unpacks to, and all of them together: 4 KB can become 128 MB, and a request
    can have thousands of such batches."""

    def __init__(self, largest: int = MAX_DECOMPRESSED_BYTES, most: int = MAX_REQUEST_DECOMPRESSED_BYTES) -> None:
        self._largest = largest
        self._most = self._left = most

    def decompress(self, header: BatchHeader, batch: memoryview) -> memoryview:
        """Return the records of `batch`, unpacked.

        Raises:
            CorruptRecord: the records cannot be unpacked.
            BrokerError: REQUEST_TIMED_OUT, for a packed batch after too much was unpacked; clients send it again.
        """
        if header.codec and self._left <= 0:
            raise BrokerError(
                f"the batches of this request unpack to more than {self._most} bytes: send the rest again",
                code=Code.REQUEST_TIMED_OUT,
            )
        cost = self._largest  # a batch that cannot be unpacked counts for so much
        try:
            records = decompress(header.codec, batch[HEADER_SIZE:], self._largest)
            cost = len(records) if header.codec else 0
        finally:
            self._left -= cost
        return records


class RecordsWithoutKey(BrokerError):
    """Records that have no key, which a compacted topic needs (INVALID_RECORD). `rows` are their numbers in the batch."""

    def __init__(self, rows: NDArray[np.int64]) -> None:
        self.rows = [int(row) for row in rows[:MAX_NAMED]]
        super().__init__(
            f"{len(rows)} records of the batch have no key, the first is number {self.rows[0]}: a compacted topic needs keys",
            code=Code.INVALID_RECORD,
        )


def check_records(
    header: BatchHeader,
    batch: memoryview,
    decompression: DecompressionBudget | None = None,
    *,
    needs_keys: bool = False,
) -> None:
    """Check that `batch` holds `header.records_count` well-formed records with offset deltas 0, 1, 2 … and nothing else. With
    `needs_keys`, which is for compacted topics, each must have a key.

    Raises:
        BrokerError: INVALID_RECORD, or REQUEST_TIMED_OUT as `DecompressionBudget.unpack`.
    """
    try:
        records = (decompression or DecompressionBudget()).decompress(header, batch)
        if header.records_count > len(records) // MIN_RECORD_BYTES:
            raise CorruptRecord(
                f"{len(records)} bytes cannot hold {header.records_count} records, as the header claims"
            )
        _walk(np.frombuffer(records, dtype=np.uint8), header.records_count, needs_keys=needs_keys)
    except CorruptRecord as error:
        raise BrokerError(f"the record batch is refused: {error}", code=Code.INVALID_RECORD) from error


def _walk(data: ByteArray, count: int, *, needs_keys: bool) -> None:
    """Read `count` records, which must fill `data`; raise CorruptRecord if anything is wrong."""
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
        if needs_keys and (decoded.key_lengths < 0).any():
            raise RecordsWithoutKey(np.flatnonzero(decoded.key_lengths < 0) + done)
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
