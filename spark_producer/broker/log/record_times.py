"""The search for the first record at a timestamp within a batch, since a log finds only batches.

Owns: reading the batch. Must not know: how a log finds it, which request needs it.
"""

from __future__ import annotations

import numpy as np

from spark_producer.broker.storage.base import Log, TimestampOffset
from spark_producer.common.error_codes import Code
from spark_producer.errors import BrokerError, CorruptRecord
from spark_producer.record import batch_v2
from spark_producer.record.reading import read_records


def first_record(log: Log, batch: TimestampOffset, timestamp: int) -> TimestampOffset | None:
    """Return the first record at `timestamp` (milliseconds since 1970) or later, starting with the batch that has the offset of
    `batch`; None if there is none, because it is deleted or compacted.

    A control batch is found as a whole, since its one record is hidden, as in Kafka (FileRecords.searchForTimestamp).

    Raises:
        BrokerError: KAFKA_STORAGE_ERROR, a batch cannot be read.
    """
    offset, end = batch.offset, log.high_watermark
    while offset < end:
        found = memoryview(log.read(offset, 0))
        try:
            header = batch_v2.read_header(found, 0)
            record = _first_in(found[: header.size], header, timestamp, log.start_offset)
        except CorruptRecord as error:
            raise BrokerError(f"offset {offset}: {error}", code=Code.KAFKA_STORAGE_ERROR) from error
        if record is not None:
            return record
        offset = header.last_offset + 1
    return None


def _first_in(
    batch: memoryview, header: batch_v2.BatchHeader, timestamp: int, start_offset: int
) -> TimestampOffset | None:
    """Return the first record of a batch at `timestamp` or later that is not deleted."""
    if header.max_timestamp < timestamp or not header.records_count:
        return None
    if header.is_control:
        return TimestampOffset(header.max_timestamp, max(header.base_offset, start_offset))
    for rows in read_records(batch):
        times, offsets = rows.column("timestamp").to_numpy(), rows.column("offset").to_numpy()
        late = np.flatnonzero((times >= timestamp) & (offsets >= start_offset))
        if len(late):
            return TimestampOffset(int(times[late[0]]), int(offsets[late[0]]))
    return None
