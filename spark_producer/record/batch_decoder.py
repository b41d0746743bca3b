"""Converts V2 batches to Arrow columns, many small ones together, so that they share the cost of each call.

The batch headers add offsets and timestamps to the records, which are checked here. Checksums and codecs come before.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from spark_producer.errors import CorruptRecord
from spark_producer.kernel import HEADERS_AT_ONCE, DecodedV2, decode_v2
from spark_producer.kernel.arrays import BinaryArray, BoolArray, ByteArray, Int64Array, TextArray, from_numbers
from spark_producer.record.batch_v2 import TIMESTAMP_TYPE_BIT, BatchHeader
from spark_producer.record.decoded_columns import (
    NO_ENTRIES,
    as_text,
    binary_slices,
    first_invalid_utf8,
    header_lists,
    int32_array,
    record_batch,
)
from spark_producer.record.record_cursor import why_malformed

GROUP_BYTES = 2 * HEADERS_AT_ONCE
"""The bytes of records that are decoded together, 1 MiB, unless one batch has more. A header takes at least two bytes, so only a
batch that is decoded alone can have more headers than one call decodes."""

ROWS_AT_ONCE = 1 << 16
"""The number of records that are decoded at once: in 20 columns of 8 bytes they take 10 MB."""


class BatchGroup:
    """Batches whose records are in one piece of memory: either in `view` itself, or decompressed and joined."""

    def __init__(self, view: memoryview, schema: pa.Schema) -> None:
        self.headers: list[BatchHeader] = []
        self._view = view
        self._schema = schema
        self._unpacked: list[memoryview] = []
        self._positions: list[int] = []
        self._ends: list[int] = []
        self._records = 0

    def fits(self, header: BatchHeader, size: int, position: int) -> bool:
        """Return whether `add` may be called for a batch with `size` bytes of records at `position` in the view."""
        if not self.headers:
            return True
        if bool(header.codec) != bool(self.headers[0].codec):
            return False
        reach = self._ends[-1] + size if header.codec else position + size - self._positions[0]
        return reach <= GROUP_BYTES and self._records + header.records_count <= ROWS_AT_ONCE

    def add(self, header: BatchHeader, records: memoryview, position: int) -> None:
        """Add a batch; `records` are its decompressed bytes after the header, and `position` is their position in the view."""
        if header.codec:
            position = self._ends[-1] if self._ends else 0
            self._unpacked.append(records)
        self.headers.append(header)
        self._positions.append(position)
        self._ends.append(position + len(records))
        self._records += header.records_count

    def decode(self) -> Iterator[pa.RecordBatch]:
        """Yield RecordBatches of the rows.

        Raises:
            CorruptRecord: A record is damaged; the rows before it are yielded first.
        """
        start = 0
        if not self._unpacked:
            start = self._positions[0]  # positions count from there, so that they fit into Arrow's 32 bits
            data = np.frombuffer(self._view[start : self._ends[-1]], dtype=np.uint8)
        else:
            data = np.frombuffer(self._unpacked[0] if len(self._unpacked) == 1 else b"".join(self._unpacked), np.uint8)
        positions, ends = np.array(self._positions) - start, np.array(self._ends) - start
        counts = np.array([header.records_count for header in self.headers], dtype=np.int64)
        remaining, previous = self._records, -1
        while True:
            requested = np.minimum(counts, ROWS_AT_ONCE) if len(counts) == 1 else counts
            decoded = decode_v2(data, positions, ends, requested, HEADERS_AT_ONCE)
            part = _Part(self.headers, decoded, requested, previous)
            batch = part.build(data, self._schema)
            if batch.num_rows:
                yield batch
            if part.reason:
                raise part.corrupt(part.reason)
            if decoded.stop < 0 and part.rows == remaining:
                return
            if len(counts) > 1 or part.rows == remaining or (part.rows < int(requested[0]) and not decoded.full):
                raise part.stopped(data, positions, ends)
            # One batch has more rows or headers than are decoded at once: continue with the next ones.
            remaining, previous = remaining - part.rows, int(decoded.offset_deltas[-1])
            counts = np.array([remaining])
            positions = np.array([decoded.stop if decoded.stop >= 0 else ends[0]])


class _Part:
    """The records that one call decoded. `rows` counts those without a fault; `reason` says what is wrong with the next one."""

    def __init__(self, headers: list[BatchHeader], decoded: DecodedV2, requested: Int64Array, previous: int) -> None:
        self.reason = ""
        self.rows = len(decoded.offset_deltas)
        self._headers = headers
        self._decoded = decoded
        self._requested_ends = np.cumsum(requested)
        self._ends = np.minimum(self._requested_ends, self.rows)
        self._sizes = self._ends.copy()
        self._sizes[1:] -= self._ends[:-1]
        self._previous = previous
        """The last offset delta of the batch before this part of it."""

    def build(self, data: ByteArray, schema: pa.Schema) -> pa.RecordBatch:
        """Return the RecordBatch of the rows without a fault."""
        decoded = self._decoded
        self._check_offsets()
        timestamps = self._timestamps()
        entries = self._entries(data) if "headers" in schema.names else NO_ENTRIES
        rows = slice(self.rows)
        deltas = decoded.offset_deltas[rows]
        return record_batch(
            schema,
            {
                "offset": lambda: from_numbers(
                    self._spread([header.base_offset for header in self._headers])[rows] + deltas
                ),
                "timestamp": lambda: from_numbers(timestamps[rows]),
                "key": lambda: binary_slices(data, decoded.key_starts[rows], decoded.key_lengths[rows]),
                "value": lambda: binary_slices(data, decoded.value_starts[rows], decoded.value_lengths[rows]),
                "headers": lambda: header_lists(decoded.header_counts[rows], *entries),
                "timestamp_type": lambda: int32_array(
                    self._spread([header.timestamp_type for header in self._headers])[rows].astype(np.int32)
                ),
            },
        )

    def _spread(self, values: list[int]) -> Int64Array:
        """Repeat each batch's value for every row of the batch."""
        return np.repeat(np.array(values, dtype=np.int64), self._sizes)

    def _check_offsets(self) -> None:
        deltas = self._decoded.offset_deltas
        earlier = np.empty_like(deltas)
        earlier[1:] = deltas[:-1]
        firsts = (self._ends - self._sizes)[self._sizes > 0]
        earlier[firsts] = -1
        earlier[:1] = self._previous
        last = self._spread([header.last_offset_delta for header in self._headers])
        row = self._end_at((deltas <= earlier) | (deltas > last))
        if row is not None:
            self.reason = (
                f"offset delta {deltas[row]} lies outside of {earlier[row] + 1} … {last[row]}, the rest of the batch"
            )

    def _timestamps(self) -> Int64Array:
        deltas = self._decoded.timestamp_deltas
        base = self._spread([header.base_timestamp for header in self._headers])
        times = base + deltas
        row = self._end_at(((base ^ times) & (deltas ^ times)) < 0)
        if row is not None:
            self.reason = f"timestamp delta {deltas[row]} does not fit into 64 bits with base timestamp {base[row]}"
        by_broker = [header.attributes & TIMESTAMP_TYPE_BIT for header in self._headers]
        if any(by_broker):
            appended = self._spread([header.max_timestamp for header in self._headers])
            times = np.where(self._spread(by_broker), appended, times)
        return times

    def _entries(self, data: ByteArray) -> tuple[TextArray, BinaryArray]:
        """Return the keys and values of the headers of all rows without a fault."""
        decoded = self._decoded
        if not len(decoded.header_key_starts):
            return NO_ENTRIES
        ends = np.cumsum(decoded.header_counts)
        known = int(ends[self.rows - 1]) if self.rows else 0
        keys = binary_slices(data, decoded.header_key_starts[:known], decoded.header_key_lengths[:known])
        try:
            text = as_text(keys)
        except pa.ArrowInvalid:
            row = int(np.searchsorted(ends, first_invalid_utf8(keys), side="right"))
            self.rows, self.reason = row, "a header key is not UTF-8, and the header keys are too long to be repaired"
            known = int(ends[row - 1]) if row else 0
            text = keys[:known].cast(pa.string())
        values = binary_slices(data, decoded.header_value_starts[:known], decoded.header_value_lengths[:known])
        return text, values

    def _end_at(self, wrong: BoolArray) -> int | None:
        """End before the first wrong row, and return it; return None if no row before the end is wrong."""
        row = int(wrong.argmax()) if len(wrong) else 0
        if row >= self.rows or not wrong[row]:
            return None
        self.rows = row
        return row

    def stopped(self, data: ByteArray, positions: Int64Array, ends: Int64Array) -> CorruptRecord:
        """Return the error for the position at which decoding stopped."""
        stop = self._decoded.stop
        batch = int(np.searchsorted(self._requested_ends, self.rows, side="right"))
        if batch < len(ends) and stop >= positions[batch]:
            return self.corrupt(why_malformed(data[stop : ends[batch]].data))
        batch = int(np.searchsorted(ends, stop, side="right"))
        return self.corrupt(f"{ends[batch] - stop} bytes are left after the last record of the batch", batch)

    def corrupt(self, reason: str, batch: int | None = None) -> CorruptRecord:
        """Return the error for the row after the right ones; `batch` is its index, if it is not the batch of this row."""
        if batch is None:
            batch = int(np.searchsorted(self._requested_ends, self.rows, side="right"))
        begin = int(self._ends[batch] - self._sizes[batch])
        previous = self._previous if batch == 0 else -1
        if self.rows > begin:
            previous = int(self._decoded.offset_deltas[self.rows - 1])
        offset = self._headers[batch].base_offset + previous + 1
        return CorruptRecord(f"record at offset {offset}: {reason}", offset=offset)
