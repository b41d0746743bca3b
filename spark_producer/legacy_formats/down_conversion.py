"""Converts records of a newer format to an older one, for archives and for readers that know nothing else.

It also counts the data that the older formats cannot hold (Kafka's RecordsUtil).
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, cast

import numpy as np
import pyarrow as pa

from spark_producer.errors import RecordBatchError
from spark_producer.kernel import ArrangedRows, BinaryColumn, RecordColumns
from spark_producer.kernel.arrays import ArrowArray, Int64Array, numbers
from spark_producer.legacy_formats.batch_format import BatchFormat
from spark_producer.legacy_formats.builder import MAX_OFFSET, MAX_OFFSET_DELTA, MemoryRecordsBuilder
from spark_producer.record.batch_v2 import MAGIC, NO_PRODUCER_ID, NO_TIMESTAMP, BatchHeader, TimestampType
from spark_producer.record.codecs import Compressor


class ConversionLoss(NamedTuple):
    """The data of records and their producer that were lost; every field is zero or False without a loss.

    Batches also lose two fields of the log, which are not counted: the partition leader epoch and the delete horizon.
    `headers` and `timestamps` count the records that had some. `producer` stands for id, epoch and sequences, without which
    duplicates can no longer be detected. `transaction` means that transactional records are now like any others.
    `control_records` counts markers.
    """

    headers: int = 0
    timestamps: int = 0
    producer: bool = False
    transaction: bool = False
    control_records: int = 0

    def plus(self, other: ConversionLoss) -> ConversionLoss:
        """Return the sum of both."""
        return ConversionLoss(
            self.headers + other.headers,
            self.timestamps + other.timestamps,
            self.producer or other.producer,
            self.transaction or other.transaction,
            self.control_records + other.control_records,
        )

    def __str__(self) -> str:
        parts = [
            f"the headers of {self.headers} records" if self.headers else "",
            f"the timestamps of {self.timestamps} records" if self.timestamps else "",
            "the producer's id and sequences" if self.producer else "",
            "the transaction" if self.transaction else "",
            f"{self.control_records} control records" if self.control_records else "",
        ]
        return ", ".join(part for part in parts if part) or "nothing"


def down_convert(
    rows: pa.RecordBatch,
    magic: int,
    *,
    set_bytes: int,
    header: BatchHeader | None = None,
    compressor: Compressor | None = None,
) -> Iterator[tuple[bytes, ConversionLoss]]:
    """Yield message sets of format V0 or V1, with the original offsets of the records, and the losses of each set.

    `rows` holds the records as a `pyarrow.RecordBatch` with the columns offset, timestamp (milliseconds, -1 for none), key,
    value and, if there are any, headers. `header` is that of the V2 batch they come from, None for V1. No rows yield one empty
    set; rows of a control batch are left out, because the older formats would take them for user records. `set_bytes` limits
    the bytes of the messages in a set before compression; a single message may be larger.

    Raises:
        RecordBatchError: The compressor is zstd, which the older formats do not have, offsets do not rise, or a timestamp is
            below -1.
    """
    if not len(rows) or (header is not None and header.is_control):
        yield b"", _loss_of(rows, magic, header)
        return
    offsets = rows.column("offset").to_numpy()
    steps = np.diff(offsets)
    if (steps <= 0).any():
        row = int((steps <= 0).argmax())
        raise RecordBatchError(f"offset {offsets[row + 1]} does not come after {offsets[row]}, the one before")
    ends = [*(np.flatnonzero(steps != 1) + 1).tolist(), len(rows)]
    times = rows.column("timestamp").to_numpy()
    if magic and int(times.min()) < NO_TIMESTAMP:
        row = int(times.argmin())
        raise RecordBatchError(
            f"the record at offset {offsets[row]} has timestamp {times[row]}, and format V1 takes none below -1; "
            "V0 has no timestamps at all"
        )
    columns = RecordColumns(
        _binary(rows.column("value")), _binary(rows.column("key")), None, times if magic else NO_TIMESTAMP
    )
    arranged = ArrangedRows(columns, np.arange(len(rows), dtype=np.int64))
    timestamp_type = _timestamp_type(magic, header)
    by_broker = header is not None and timestamp_type is TimestampType.LOG_APPEND_TIME
    buffer, first = np.empty(set_bytes, dtype=np.uint8).data, 0
    while first < len(rows):
        batch_format = BatchFormat(
            magic=magic,
            base_offset=int(offsets[first]),
            timestamp_type=timestamp_type,
            log_append_time=header.max_timestamp if header is not None and by_broker else NO_TIMESTAMP,
        )
        builder = MemoryRecordsBuilder(buffer, batch_format, compressor=compressor)
        following = _fill(builder, arranged, offsets, ends, first)
        yield bytes(builder.close()), _loss_of(rows.slice(first, following - first), magic, header)
        first = following


def _fill(
    builder: MemoryRecordsBuilder, rows: ArrangedRows, offsets: Int64Array, ends: Sequence[int], first: int
) -> int:
    """Append rows from `first` on as long as they fit and the set can hold their offsets; return the number of the next row.

    `ends` says where each run of offsets without a gap ends; compaction leaves gaps. Each run takes one call.
    """
    farthest = min(builder.format.base_offset + MAX_OFFSET_DELTA, MAX_OFFSET)
    reach = int(np.searchsorted(offsets, farthest, side="right"))
    while first < reach:
        stop = min(ends[bisect.bisect_right(ends, first)], reach)
        following = builder.append_rows(rows, first, stop, offset=int(offsets[first]))
        if following < stop:
            return following
        first = stop
    return first


def _timestamp_type(magic: int, header: BatchHeader | None) -> TimestampType:
    if magic == 0:
        return TimestampType.NONE
    return TimestampType.CREATE_TIME if header is None else header.timestamp_type


def _binary(column: ArrowArray) -> BinaryColumn:
    large = pa.types.is_large_binary(column.type)
    return BinaryColumn(column.view(pa.large_binary()) if large else column.cast(pa.binary()))


def _loss_of(rows: pa.RecordBatch, magic: int, header: BatchHeader | None) -> ConversionLoss:
    if header is not None and header.is_control:
        return ConversionLoss(control_records=header.records_count, producer=True, transaction=header.is_transactional)
    times = rows.column("timestamp").to_numpy()
    return ConversionLoss(
        headers=_with_headers(rows) if magic < MAGIC else 0,
        timestamps=int((times != NO_TIMESTAMP).sum()) if magic == 0 else 0,
        producer=header is not None and header.producer_id != NO_PRODUCER_ID,
        transaction=header is not None and header.is_transactional,
    )


def _with_headers(rows: pa.RecordBatch) -> int:
    """Count the rows that have headers."""
    if "headers" not in rows.schema.names:
        return 0
    lists = cast("pa.lib.BaseListArray[Any]", rows.column("headers"))
    return int((numbers(lists.value_lengths(), nulls=0) > 0).sum())
