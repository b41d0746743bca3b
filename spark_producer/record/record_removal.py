"""Removes single records from a batch, if a broker rejects them (KIP-467)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from spark_producer.kernel import ArrangedRows, RecordColumns, encode_v2, record_sizes
from spark_producer.kernel.arrays import Int64Array
from spark_producer.record.batch_v2 import HEADER_SIZE, write_header
from spark_producer.record.decoded_columns import MAX_DATA_BYTES
from spark_producer.record.reading import read_records
from spark_producer.record.splitting import columns_of


class RemovedRecords(NamedTuple):
    """The result of a removal.

    `records` has the removed records, in columns of `RECORD_SCHEMA`; `end` is the end of the others. `latest` is the largest
    timestamp delta of the others, 0 if there are none.
    """

    records: pa.RecordBatch
    end: int
    latest: int


def remove_records(
    buffer: memoryview, first: int, end: int, records_count: int, base_timestamp: int, rows: Int64Array
) -> RemovedRecords:
    """Remove the records at the ascending indices `rows` from the `records_count` records in `buffer[first:end]`.

    The others are rewritten in place with offset deltas that count from 0, which never makes a record longer. Their timestamp
    deltas keep their base. A copy of the records is made meanwhile.
    """
    columns = columns_of(buffer[first:end], records_count)
    removed = _as_arrow(columns, rows, base_timestamp)
    kept = np.delete(np.arange(records_count, dtype=np.int64), rows)
    if not len(kept):
        return RemovedRecords(removed, first, 0)
    _, end, _ = encode_v2(ArrangedRows(columns, kept), 0, len(kept), 0, 0, buffer, first, end)
    return RemovedRecords(removed, end, int(np.asarray(columns.timestamps)[kept].max()))


def _as_arrow(columns: RecordColumns, rows: Int64Array, base_timestamp: int) -> pa.RecordBatch:
    """Return some records as they would be read: they are encoded as a batch of their own, and read."""
    size = HEADER_SIZE + int(record_sizes(columns)[rows].sum())
    batch = memoryview(bytearray(size))
    _, end, latest = encode_v2(ArrangedRows(columns, rows), 0, len(rows), 0, 0, batch, HEADER_SIZE, size)
    write_header(
        batch[:end],
        records_count=len(rows),
        base_timestamp=base_timestamp,
        max_timestamp=base_timestamp + latest,
    )
    parts = list(read_records(batch[:end], verify_crc=False, limit=MAX_DATA_BYTES))
    return parts[0] if len(parts) == 1 else pa.lib.concat_batches(parts)  # pa's own name of it is missing in the stubs
