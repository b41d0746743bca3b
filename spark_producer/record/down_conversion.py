"""Records of a newer format written anew in an older one, for archives and for readers that know nothing else.

Owns: what the older formats cannot hold, and the account of it (spec: kafka_producer.md §3.2; Kafka's RecordsUtil).
Must not know: how the records were read; it takes them as the reader's columns.
"""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from spark_producer.kernel import ArrangedRows, BinaryColumn, RecordColumns
from spark_producer.record.batch_format import NO_TIMESTAMP, BatchFormat
from spark_producer.record.batch_v2 import MAGIC, NO_PRODUCER_ID, BatchHeader, TimestampType
from spark_producer.record.builder import MemoryRecordsBuilder
from spark_producer.record.compression import Compressor

_FIRST_SIZE = 1 << 16
_NO_LIMIT = 2**31 - 1


class Lost(NamedTuple):
    """What did not survive; all zero or False if nothing was lost.

    `headers`: records that had some. `timestamps`: records that had one. `producer`: id, epoch and sequences, so that
    duplicates can no longer be told. `transaction`: whose records are now like any others. `control_records`: markers.
    """

    headers: int = 0
    timestamps: int = 0
    producer: bool = False
    transaction: bool = False
    control_records: int = 0

    def plus(self, other: Lost) -> Lost:
        """The account of both."""
        return Lost(
            self.headers + other.headers,
            self.timestamps + other.timestamps,
            self.producer or other.producer,
            self.transaction or other.transaction,
            self.control_records + other.control_records,
        )

    def __str__(self) -> str:
        said = [
            f"the headers of {self.headers} records" if self.headers else "",
            f"the timestamps of {self.timestamps} records" if self.timestamps else "",
            "the producer's id and sequences" if self.producer else "",
            "the transaction" if self.transaction else "",
            f"{self.control_records} control records" if self.control_records else "",
        ]
        return ", ".join(part for part in said if part) or "nothing"


def down_convert(
    rows: Any, magic: int, *, header: BatchHeader | None = None, compressor: Compressor | None = None
) -> tuple[memoryview, Lost]:
    """One batch in format V0 or V1, at the offsets that its records had, and what was lost.

    `rows`: the records as a `pyarrow.RecordBatch` with the columns offset, timestamp (milliseconds, -1 for none), key, value
    and, if there are any, headers. `header`: that of the V2 batch they come from, None for V1. No rows give no bytes; those
    of a control batch are left out, since the older formats would take them for somebody's records.

    Raises:
        RecordBatchError: the compressor is zstd, which the older formats do not have, or offsets do not rise.
    """
    batch_format = BatchFormat(
        magic=magic,
        base_offset=int(rows.column("offset")[0].as_py()) if len(rows) else 0,
        timestamp_type=_timestamp_type(magic, header),
        log_append_time=NO_TIMESTAMP if header is None else header.max_timestamp,
    )
    buffer = np.empty(max(_FIRST_SIZE, 2 * rows.nbytes), dtype=np.uint8).data
    builder = MemoryRecordsBuilder(buffer, batch_format, compressor=compressor, write_limit=_NO_LIMIT)
    if header is None or not header.is_control:
        _append(builder, rows)
    return builder.close(), _lost(rows, magic, header)


def _timestamp_type(magic: int, header: BatchHeader | None) -> TimestampType:
    if magic == 0:
        return TimestampType.NONE
    return TimestampType.CREATE_TIME if header is None else header.timestamp_type


def _append(builder: MemoryRecordsBuilder, rows: Any) -> None:
    """All rows; one call for each run without a gap, which compaction leaves."""
    columns = RecordColumns(
        _binary(rows.column("value")), _binary(rows.column("key")), None, rows.column("timestamp").to_numpy()
    )
    arranged = ArrangedRows(columns, np.arange(len(rows), dtype=np.int64))
    offsets = rows.column("offset").to_numpy()
    starts = [0, *(np.flatnonzero(np.diff(offsets) != 1) + 1).tolist(), len(rows)]
    for first, stop in itertools.pairwise(starts):
        if first < stop:
            builder.append_rows(arranged, first, stop, offset=int(offsets[first]))


def _binary(column: Any) -> BinaryColumn:
    return BinaryColumn(column if pa.types.is_large_binary(column.type) else column.cast(pa.binary()))


def _lost(rows: Any, magic: int, header: BatchHeader | None) -> Lost:
    if header is not None and header.is_control:
        return Lost(control_records=header.records_count, producer=True, transaction=header.is_transactional)
    counts = rows.column("headers").value_lengths() if "headers" in rows.schema.names else pa.array([], pa.int32())
    times = rows.column("timestamp").to_numpy()
    return Lost(
        headers=int((counts.fill_null(0).to_numpy(zero_copy_only=False) > 0).sum()) if magic < MAGIC else 0,
        timestamps=int((times != NO_TIMESTAMP).sum()) if magic == 0 else 0,
        producer=header is not None and header.producer_id != NO_PRODUCER_ID,
        transaction=header is not None and header.is_transactional,
    )
