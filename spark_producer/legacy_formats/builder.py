"""MemoryRecordsBuilder, which fills one record batch, or one message set of the older formats, in a buffer and closes it.

It follows Kafka's MemoryRecordsBuilder. Where buffers come from is decided by `grow`.

Records are uncompressed in the buffer until appends end; then they are compressed in one call and written back after the space
that is reserved for the header. So the expensive step happens once, and producer id, epoch and sequence can change after it.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence

import numpy as np

from spark_producer.errors import RecordBatchError
from spark_producer.kernel import ArrangedRows, RecordColumns, encode_v2
from spark_producer.kernel.arrays import Int64Array
from spark_producer.legacy_formats import message_set
from spark_producer.legacy_formats.batch_format import BatchFormat, BatchProducer
from spark_producer.legacy_formats.single_row import Header, record_size, single_row
from spark_producer.record import batch_v2, lz4_frame
from spark_producer.record.batch_v2 import NO_TIMESTAMP
from spark_producer.record.codecs import Codec, Compressor
from spark_producer.record.compression_ratio import SAFETY

MAX_OFFSET_DELTA, MAX_OFFSET = 2**31 - 1, 2**63 - 1
GROWTH = 1.1
"""A buffer that is too small grows by a tenth, or to the size that is needed."""

_ROW_0 = np.zeros(1, dtype=np.int64)

Grow = Callable[[memoryview, int], memoryview | None]
"""Map (the buffer so far, bytes needed) to a buffer of at least that size that begins with the same bytes, after which the
old one is no longer used; or to None if there is no memory, which makes the batch full."""


class _State(enum.Enum):
    OPEN = "open"
    FILLED = "closed for appends"
    CLOSED = "closed"
    ABORTED = "aborted"


def grow_outside_the_pool(buffer: memoryview, size: int) -> memoryview:
    """Return a copy of `buffer` in `size` bytes of new memory."""
    larger = np.empty(size, dtype=np.uint8).data
    larger[: len(buffer)] = buffer
    return larger


class MemoryRecordsBuilder:
    """Builds one batch; it is used by one thread at a time.

    Args:
        buffer: The memory that holds the records, uncompressed, from its first byte.
        batch_format: The magic, base offset and timestamps.
        compressor: The codec; None for none. It belongs to the thread that ends the appends.
        ratio: The expected compressed bytes per uncompressed byte, above 0.
        write_limit: The bytes that the closed batch should not exceed; None means the size of `buffer`. The first record is
            accepted in any size.
        producer: The producer's id, epoch and sequence; they may be set later.
        grow: How the buffer grows for a large first record, or beyond the limit for records that will be compressed.

    Raises:
        RecordBatchError: The codec is zstd and the format is an older one, or the ratio is 0 or less.
    """

    def __init__(
        self,
        buffer: memoryview,
        batch_format: BatchFormat | None = None,
        *,
        compressor: Compressor | None = None,
        ratio: float = 1.0,
        write_limit: int | None = None,
        producer: BatchProducer | None = None,
        grow: Grow = grow_outside_the_pool,
    ) -> None:
        if not ratio > 0:
            raise RecordBatchError(f"the ratio of compressed to uncompressed bytes must be above 0, not {ratio}")
        self.buffer = buffer
        self.format = batch_format or BatchFormat()
        self.codec = Codec.NONE if compressor is None else compressor.codec
        self.producer = producer or BatchProducer()
        self.write_limit = len(buffer) if write_limit is None else write_limit
        self.records_count = 0
        self.last_offset = self.format.base_offset - 1
        self.compression_ratio = 1.0
        """The compressed bytes per uncompressed byte of the records, once appends have ended."""
        self._compressor = compressor
        self._expansion = 1.0 if self.codec is Codec.NONE else ratio * SAFETY
        self._grow = grow
        self._start = self.format.header_size(self.codec)
        self._position = self._start
        self._uncompressed = 0
        self._latest = NO_TIMESTAMP
        horizon = self.format.delete_horizon
        self._base_timestamp: int | None = None if horizon == NO_TIMESTAMP else horizon
        self._state = _State.OPEN
        self.format.check_codec(self.codec)

    @property
    def uncompressed_size(self) -> int:
        """The bytes of the records before compression, without the batch's header."""
        return self._uncompressed if self._state is not _State.OPEN else self._position - self._start

    @property
    def estimated_size(self) -> int:
        """The bytes of the batch, which are an estimate as long as records are taken, and exact afterwards."""
        if self._state is not _State.OPEN:
            return self._position
        return self._start + int(self.uncompressed_size * self._expansion)

    @property
    def is_full(self) -> bool:
        """Whether the batch takes no further record."""
        if self._state is not _State.OPEN:
            return True
        return self.records_count > 0 and self.write_limit <= self.estimated_size

    @property
    def max_timestamp(self) -> int:
        """The largest timestamp of the records, or their log append time if the format has one; -1 if none has a time."""
        return self.format.log_append_time if self.format.by_broker else self._latest

    def fits(self, timestamp: int, key: bytes | None, value: bytes | None, headers: Sequence[Header] = ()) -> bool:
        """Return whether the record still fits; the first one always does."""
        if self.is_full or self.records_count == 0:
            return not self.is_full
        base_timestamp = timestamp if self._base_timestamp is None else self._base_timestamp
        delta = self.last_offset + 1 - self.format.base_offset
        size = record_size(self.format.magic, timestamp - base_timestamp, delta, key, value, headers)
        return self.write_limit >= self.estimated_size + size

    def append(
        self,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[Header] = (),
        *,
        offset: int | None = None,
    ) -> None:
        """Append one record whether it fits or not; for whole columns see `append_rows`.

        `timestamp` is in milliseconds, -1 for none; if `offset` is None, it is the next one.

        Raises:
            RecordBatchError: The batch is closed, or the record does not suit it.
        """
        row = single_row(timestamp, key, value, headers)
        self._check_append(row, _ROW_0)
        self._append(ArrangedRows(row, _ROW_0), 0, self._offset_of(1, offset))

    def append_rows(self, rows: ArrangedRows, first: int, stop: int, *, offset: int | None = None) -> int:
        """Append rows `first` … `stop` - 1 as long as they fit, and return the number of the next row.

        `offset` is that of row `first`, None for the next one; the others follow it without a gap.

        Raises:
            RecordBatchError: The batch is closed, or cannot reach the offset of the last row.
        """
        self._check_append(rows.columns, rows.rows[first:stop])
        following, at = first, self._offset_of(stop - first, offset)
        if first < stop and self.records_count == 0:
            self._append(rows, first, at)
            following += 1
        while following < stop and not self.is_full:
            begin = following
            following = self._encode(rows, begin, stop, at + begin - first, min(self._fill_limit, len(self.buffer)))
            if following == begin and not self._grow_for(self._size_at(rows, begin)):
                break
        return following

    def close_for_appends(self) -> None:
        """Take no further record, and compress, which is the expensive step, once. If appends have ended, do nothing.

        Raises:
            RecordBatchError: There is no memory for the compressed records of an older format. The batch stays open, as it was.
        """
        if self._state is not _State.OPEN:
            return
        uncompressed = size = self._position - self._start
        if self._compressor is not None and self.codec is not Codec.NONE and self.records_count:
            size = self._compress(self._compressor, uncompressed)
        self._uncompressed, self._position = uncompressed, self._start + size
        self._state = _State.FILLED

    def close(self) -> memoryview:
        """End appends, write the header, and return the batch, which is empty without records. Further calls return the same.

        Raises:
            RecordBatchError: The batch was aborted, or the producer's id, epoch and sequence contradict each other; also as in
                `close_for_appends`.
        """
        if self._state is _State.CLOSED:
            return self.buffer[: self._position]
        if self._state is _State.ABORTED:
            raise RecordBatchError("the batch was aborted; it cannot be closed")
        self.format.check_producer(self.producer)
        self.close_for_appends()
        if self.records_count == 0:
            self._position = 0
        elif self.format.magic == batch_v2.MAGIC:
            self._seal()
        elif self.codec is not Codec.NONE:
            self._wrap()
        self._state = _State.CLOSED
        return self.buffer[: self._position]

    def abort(self) -> None:
        """Abort the batch: its records are discarded, and it takes no more."""
        self._position = self._uncompressed = 0
        self._state = _State.ABORTED

    @property
    def _fill_limit(self) -> int:
        """The position up to which records may lie, uncompressed, so that the batch is expected to stay within its limit."""
        return self._start + int((self.write_limit - self._start) / self._expansion)

    def _append(self, rows: ArrangedRows, row: int, offset: int) -> None:
        """Append one row, whether it fits or not."""
        size = self._size_at(rows, row)
        if not self._reserve(size):
            raise RecordBatchError(f"a record of up to {size} bytes does not fit, and the buffer cannot grow")
        self._encode(rows, row, row + 1, offset, len(self.buffer))

    def _offset_of(self, records: int, offset: int | None = None) -> int:
        """Return the offset of the next record, or the one that is asked for, if `records` can follow each other from there."""
        if offset is None:
            offset = self.last_offset + 1
        if offset <= self.last_offset:
            raise RecordBatchError(f"offset {offset} does not come after {self.last_offset}, the last one")
        last = offset + records - 1
        if last > min(self.format.base_offset + MAX_OFFSET_DELTA, MAX_OFFSET):
            raise RecordBatchError(f"offset {last} is too far from the batch's base offset {self.format.base_offset}")
        return offset

    def _encode(self, rows: ArrangedRows, first: int, stop: int, offset: int, limit: int) -> int:
        """Encode the rows that fit before `limit`, from `offset` on, and return the number of the next row."""
        if self._base_timestamp is None:
            self._base_timestamp = rows.timestamp_at(first)
        if self.format.magic == batch_v2.MAGIC:
            delta = offset - self.format.base_offset
            following, self._position, latest = encode_v2(
                rows, first, stop, delta, self._base_timestamp, self.buffer, self._position, limit
            )
        else:
            following, latest = self._encode_messages(rows, first, stop, offset, limit)
        if following > first:
            self._latest = max(self._latest, latest)
            self.records_count += following - first
            self.last_offset = offset + following - first - 1
        return following

    def _encode_messages(self, rows: ArrangedRows, first: int, stop: int, offset: int, limit: int) -> tuple[int, int]:
        """Do the same as `encode_messages`; in V1, offsets inside a compressed set count from the beginning of the set."""
        packed, magic = self.codec is not Codec.NONE, self.format.magic
        time = self.format.log_append_time if self.format.by_broker and not packed else None
        following, self._position, latest = message_set.encode_messages(
            rows, first, stop, offset - self.format.base_offset if packed and magic else offset, magic, time,
            self.buffer, self._position, limit,
        )  # fmt: skip
        return following, latest if magic else NO_TIMESTAMP

    def _compress(self, compressor: Compressor, size: int) -> int:
        """Replace the `size` bytes of the records by their compressed form, and return the size of that."""
        packed = compressor.compress(self.buffer[self._start : self._position])
        if self.format.magic == 0 and self.codec is Codec.LZ4:
            packed = memoryview(lz4_frame.with_v0_checksum(bytes(packed)))
        if not self._reserve(len(packed) - size):
            if self.format.magic < batch_v2.MAGIC:
                raise RecordBatchError(f"{len(packed)} compressed bytes do not fit, and the buffer cannot grow")
            self.codec = Codec.NONE  # the records do not get smaller, and a V2 batch may stay uncompressed
            return size
        self.compression_ratio = len(packed) / size
        self.buffer[self._start : self._start + len(packed)] = packed
        return len(packed)

    def _size_at(self, rows: ArrangedRows, row: int) -> int:
        """Return the encoded size of one row, or more."""
        if self.format.magic == batch_v2.MAGIC:
            return rows.size_at(row)
        return int(message_set.message_sizes(rows, row, row + 1, self.format.magic)[0])

    def _grow_for(self, size: int) -> bool:
        """Return whether the buffer could grow for a row of at most `size` bytes, within the limit of the batch."""
        if len(self.buffer) >= self._fill_limit:
            return False
        return self._reserve(min(size, self._fill_limit - self._position))

    def _reserve(self, size: int) -> bool:
        """Return whether the buffer has `size` more bytes, or could grow to have them."""
        needed = self._position + size
        if needed <= len(self.buffer):
            return True
        larger = self._grow(self.buffer, max(int(len(self.buffer) * GROWTH), needed))
        self.buffer = self.buffer if larger is None else larger
        return larger is not None

    def _check_append(self, columns: RecordColumns, rows: Int64Array) -> None:
        if self._state is not _State.OPEN:
            raise RecordBatchError(f"the batch is {self._state.value}; it takes no more records")
        self.format.check_records(columns, rows, self._base_timestamp)

    def _seal(self) -> None:
        batch_format, producer = self.format, self.producer
        batch_v2.write_header(
            self.buffer[: self._position],
            records_count=self.records_count, base_timestamp=self._base_timestamp or 0, max_timestamp=self.max_timestamp,
            producer_id=producer.producer_id, producer_epoch=producer.producer_epoch, base_sequence=producer.base_sequence,
            attributes=batch_format.attributes(self.codec, transactional=producer.transactional),
            base_offset=batch_format.base_offset, last_offset_delta=self.last_offset - batch_format.base_offset,
            leader_epoch=batch_format.leader_epoch,
        )  # fmt: skip

    def _wrap(self) -> None:
        message_set.write_wrapper(
            self.buffer[: self._position], self.format.magic, self.codec, self.last_offset, self.format.timestamp_type,
            self.max_timestamp,
        )  # fmt: skip
