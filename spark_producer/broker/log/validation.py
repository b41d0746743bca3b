"""The validation of a batch's records before it is appended (Kafka's LogValidator).

A header with too many records would use up offsets, and a malformed record would stop every consumer. So, like Kafka, this module
reads each batch to its end, and decompresses it for that. Offset deltas must count from 0; where they do not, Kafka rewrites a
compressed batch, and ignores the fault in others.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from spark_producer.common.error_codes import Code
from spark_producer.errors import BrokerError, CorruptRecord
from spark_producer.kernel import Limits, V2Batch, decode_v2
from spark_producer.kernel.arrays import is_valid, numbers
from spark_producer.record.batch_v2 import HEADER_SIZE, BatchHeader
from spark_producer.record.codecs import decompress
from spark_producer.record.reading import DECOMPRESSED_LIMIT
from spark_producer.record.record_cursor import read_deltas

MIN_RECORD_BYTES: Final = 7
"""Minimum size of a record in bytes: length, attributes, two deltas, key length, value length and header count."""

MAX_DECOMPRESSED_BYTES: Final = DECOMPRESSED_LIMIT
"""Maximum decompressed size of a batch in bytes: that of pyproducer's readers. Kafka decompresses in pieces and has no limit."""

MAX_REQUEST_DECOMPRESSED_BYTES: Final = 4 * MAX_DECOMPRESSED_BYTES
"""Maximum decompressed size of all batches of one request in bytes: one or two seconds of work, in which no other client is
served."""

ROWS_AT_ONCE: Final = 1 << 16
"""Number of records that are validated together; their offsets take 512 KiB."""


MAX_NAMED_RECORDS: Final = 1000
"""The maximum number of refused records of a batch that a response names."""


class DecompressionBudget:
    """Limits the decompressed bytes of each batch of one request, and of all of them together: 4 KB can become 128 MB, and a
    request can have thousands of such batches."""

    def __init__(
        self, batch_limit: int = MAX_DECOMPRESSED_BYTES, request_limit: int = MAX_REQUEST_DECOMPRESSED_BYTES
    ) -> None:
        self._batch_limit = batch_limit
        self._request_limit = self._left = request_limit

    def decompress(self, header: BatchHeader, batch: memoryview) -> memoryview:
        """Return the decompressed records of `batch`.

        Raises:
            CorruptRecord: the records cannot be decompressed.
            BrokerError: REQUEST_TIMED_OUT, for a compressed batch beyond the limit of the request; clients send it again.
        """
        if header.codec and self._left <= 0:
            raise BrokerError(
                f"the batches of this request have more than {self._request_limit} decompressed bytes. Send the rest again",
                code=Code.REQUEST_TIMED_OUT,
            )
        cost = self._batch_limit  # the cost of a batch that cannot be decompressed
        try:
            records = decompress(header.codec, batch[HEADER_SIZE:], self._batch_limit)
            cost = len(records) if header.codec else 0
        finally:
            self._left -= cost
        return records


class RecordsWithoutKey(BrokerError):
    """Records without the key that a compacted topic needs (INVALID_RECORD). `rows` are their numbers in the batch."""

    def __init__(self, rows: NDArray[np.int64]) -> None:
        self.rows = [int(row) for row in rows[:MAX_NAMED_RECORDS]]
        super().__init__(
            f"{len(rows)} records of the batch have no key, first number {self.rows[0]}: a compacted topic needs keys",
            code=Code.INVALID_RECORD,
        )


def check_records(
    header: BatchHeader,
    batch: memoryview,
    decompression: DecompressionBudget | None = None,
    *,
    needs_keys: bool = False,
) -> None:
    """Check that `batch` has `header.records_count` well-formed records with offset deltas 0, 1, 2 … and nothing else. With
    `needs_keys`, for compacted topics, each must have a key.

    Raises:
        BrokerError: INVALID_RECORD, or REQUEST_TIMED_OUT as `DecompressionBudget.decompress`.
    """
    try:
        records = (decompression or DecompressionBudget()).decompress(header, batch)
        if header.records_count > len(records) // MIN_RECORD_BYTES:
            raise CorruptRecord(
                f"{len(records)} bytes cannot hold {header.records_count} records, the number in the header"
            )
        _validate(records, header.records_count, needs_keys=needs_keys)
    except CorruptRecord as error:
        raise BrokerError(f"the record batch is refused: {error}", code=Code.INVALID_RECORD) from error


def _validate(records: memoryview, count: int, *, needs_keys: bool) -> None:
    """Decode `count` records, which must fill `records`; raise CorruptRecord if anything is wrong."""
    position, done = 0, 0
    columns = frozenset({"offset", "key"} if needs_keys else {"offset"})
    limits = Limits(rows=ROWS_AT_ONCE, bytes=max(len(records), 1))
    while done < count:
        batch = V2Batch(records[position:], count - done, 0, count - 1, 0, previous=done - 1)
        decoded = decode_v2([batch], columns, limits)
        assert decoded.offsets is not None
        found = numbers(decoded.offsets)
        expected = np.arange(done, done + len(found), dtype=np.int64)
        if not np.array_equal(found, expected):
            wrong = int((found != expected).argmax())
            raise CorruptRecord(f"record {done + wrong} has offset delta {found[wrong]}")
        if decoded.keys is not None and decoded.keys.null_count:
            raise RecordsWithoutKey(np.flatnonzero(~is_valid(decoded.keys)) + done)
        done += len(found)
        position = len(records) if decoded.batch else position + decoded.position
        if done < count and not decoded.full:
            raise CorruptRecord(_why_stopped(records, position, done, count))
    if position != len(records):
        raise CorruptRecord(f"{len(records) - position} bytes are left after the last of {count} records")


def _why_stopped(records: memoryview, position: int, done: int, count: int) -> str:
    if position == len(records):
        return f"it has {done} records, but {count} in its header"
    try:
        _, delta = read_deltas(records[position:])
    except CorruptRecord as error:
        return f"record {done} of {count}: {error}"
    return f"record {done} has offset delta {delta}"
