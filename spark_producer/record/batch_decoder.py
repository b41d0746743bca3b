"""Converts V2 batches to Arrow columns, many small ones together, so that they share the cost of each call and each RecordBatch.

Checksums and codecs come before. The records of a batch are read where they are, in the fetched data or in the memory that they
were decompressed into, and copied once, into the columns.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from spark_producer.errors import CorruptRecord
from spark_producer.kernel import DecodedV2, Limits, V2Batch, decode_v2
from spark_producer.kernel.arrays import ArrowArray, numbers, view_of
from spark_producer.record.batch_v2 import TIMESTAMP_TYPE_BIT, BatchHeader, TimestampType
from spark_producer.record.decoded_columns import as_text, first_invalid_utf8, header_lists, int32_array, record_batch
from spark_producer.record.record_cursor import read_deltas

GROUP_BYTES = 1 << 20
"""The bytes of batches that are decoded together, unless one batch has more. With 4 MiB, what a checksum has just read is out of
the processor's cache: 165 instead of 131 ns a record at 1,000 B. Spark's time per row is the same from 0.2 to 6 MiB."""

BYTES_AT_ONCE = 4 << 20
"""The bytes of records of a RecordBatch, unless one record has more. A larger batch becomes several RecordBatches."""

ROWS_AT_ONCE = 1 << 16
"""The maximum number of rows of a RecordBatch: its columns besides keys, values and headers take 2 MB."""

HEADERS_AT_ONCE = 1 << 19
"""The maximum number of headers of a RecordBatch, unless one row has more: their columns take 4 MiB and their bytes."""


_INT32 = np.dtype(np.int32)


class BatchGroup:
    """Batches that are decoded together."""

    def __init__(self, schema: pa.Schema) -> None:
        self.batches: list[V2Batch] = []
        self._schema = schema
        self._columns = frozenset(schema.names)
        self._size = 0

    def fits(self, size: int) -> bool:
        """Return whether `add` may be called for a batch with `size` bytes of records."""
        return not self.batches or self._size + size <= GROUP_BYTES

    def add(self, header: BatchHeader, records: memoryview) -> None:
        """Add a batch; `records` are its decompressed bytes after the header."""
        by_broker = header.attributes & TIMESTAMP_TYPE_BIT
        self.batches.append(
            V2Batch(
                records, header.records_count, header.base_offset, header.last_offset_delta, header.base_timestamp,
                header.max_timestamp if by_broker else None,
            )
        )  # fmt: skip
        self._size += len(records)

    def decode(self) -> Iterator[pa.RecordBatch]:
        """Yield RecordBatches of the rows.

        Raises:
            CorruptRecord: A record is damaged; the rows before it are yielded first.
        """
        batches = self.batches
        while batches:
            decoded = decode_v2(batches, self._columns, Limits(ROWS_AT_ONCE, HEADERS_AT_ONCE, BYTES_AT_ONCE))
            rows, damage = _build(self._schema, batches, decoded)
            if rows.num_rows:
                yield rows
            if damage is not None:
                raise damage
            batches = _rest(batches, decoded)


def _rest(batches: list[V2Batch], decoded: DecodedV2) -> list[V2Batch]:
    """Return what is not decoded yet."""
    rest = batches[decoded.batch :]
    if rest:
        first = rest[0]
        rest[0] = first._replace(
            records=first.records[decoded.position :],
            records_count=first.records_count - decoded.row,
            previous=decoded.previous,
        )
    return rest


def _build(
    schema: pa.Schema, batches: list[V2Batch], decoded: DecodedV2
) -> tuple[pa.RecordBatch, CorruptRecord | None]:
    """Return the decoded rows, and the error if the record after them is damaged."""
    rows, damage, headers = decoded.rows, _damage(batches, decoded), None
    if decoded.headers is not None:
        ends, keys, values = decoded.headers
        try:
            headers = header_lists(rows, ends, as_text(keys), values)
        except pa.ArrowInvalid:
            entry = first_invalid_utf8(keys)
            rows = int(np.searchsorted(view_of(ends, _INT32), entry, side="right")) - 1
            damage = _not_text(batches, rows)
            text = keys.slice(0, entry).cast(pa.string())
            headers = header_lists(rows, ends, text, values.slice(0, entry))
    return record_batch(
        schema,
        {
            "offset": lambda: _column(decoded.offsets, rows),
            "timestamp": lambda: _column(decoded.timestamps, rows),
            "key": lambda: _column(decoded.keys, rows),
            "value": lambda: _column(decoded.values, rows),
            "headers": lambda: _column(headers, rows),
            "timestamp_type": lambda: _timestamp_types(batches, decoded)[:rows],
        },
    ), damage


def _column(column: ArrowArray | None, rows: int) -> ArrowArray:
    assert column is not None
    return column if len(column) == rows else column.slice(0, rows)


def _timestamp_types(batches: list[V2Batch], decoded: DecodedV2) -> ArrowArray:
    counts = [batch.records_count for batch in batches[: decoded.batch]]
    if decoded.batch < len(batches):
        counts.append(decoded.row)
    types = [
        TimestampType.CREATE_TIME if batch.append_time is None else TimestampType.LOG_APPEND_TIME
        for batch in batches[: len(counts)]
    ]
    return int32_array(np.repeat(np.array(types, dtype=np.int32), counts))


def _damage(batches: list[V2Batch], decoded: DecodedV2) -> CorruptRecord | None:
    """Return the error of the record at which decoding stopped; None if it did not, or only at a limit."""
    if decoded.full or decoded.batch == len(batches):
        return None
    batch = batches[decoded.batch]
    return _corrupt(batch.base_offset + decoded.previous + 1, _why_wrong(batch, decoded))


def _why_wrong(batch: V2Batch, decoded: DecodedV2) -> str:
    rest = batch.records[decoded.position :]
    if decoded.row == batch.records_count:
        return f"{len(rest)} bytes are left after the last record of the batch"
    try:
        timestamp_delta, offset_delta = read_deltas(rest)
    except CorruptRecord as error:
        return str(error)
    first, last = decoded.previous + 1, batch.last_offset_delta
    if not first <= offset_delta <= last:
        return f"offset delta {offset_delta} lies outside of {first} … {last}, the rest of the batch"
    return f"timestamp delta {timestamp_delta} does not fit into 64 bits with base timestamp {batch.base_timestamp}"


def _not_text(batches: list[V2Batch], row: int) -> CorruptRecord:
    """Return the error of a row whose header keys cannot be repaired."""
    offsets = decode_v2(batches, frozenset({"offset"}), Limits(row + 1, HEADERS_AT_ONCE, BYTES_AT_ONCE)).offsets
    assert offsets is not None
    reason = "a header key is not UTF-8, and the header keys are too long to be repaired"
    return _corrupt(int(numbers(offsets)[row]), reason)


def _corrupt(offset: int, reason: str) -> CorruptRecord:
    return CorruptRecord(f"record at offset {offset}: {reason}", offset=offset)
