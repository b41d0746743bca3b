"""Which record of a batch has a time, since a log finds batches alone.

Owns: the look into the batch. Must not know: how a log finds it, what is asked of which partition.
"""

from __future__ import annotations

import numpy as np

from spark_producer.broker.storage.base import Log, TimestampOffset
from spark_producer.codes import Code
from spark_producer.errors import BrokerError, CorruptRecord
from spark_producer.record import batch_v2
from spark_producer.record.reading import read_records


def first_record(log: Log, batch: TimestampOffset, timestamp: int) -> TimestampOffset:
    """Return the first record at `timestamp` (epoch milliseconds) or later in the batch that holds the offset of `batch`.

    A control batch, whose one record nobody sees, is found as a whole. As in Kafka (FileRecords.searchForTimestamp).

    Raises:
        BrokerError: KAFKA_STORAGE_ERROR, the batch cannot be read.
    """
    found = log.read(batch.offset, 0)
    try:
        header = batch_v2.read_header(memoryview(found), 0)
        for rows in read_records(memoryview(found)[: header.size]):
            times = rows.column("timestamp").to_numpy()
            late = np.flatnonzero(times >= timestamp)
            if len(late):
                row = int(late[0])
                return TimestampOffset(int(times[row]), rows.column("offset")[row].as_py())
    except CorruptRecord as error:
        raise BrokerError(f"offset {batch.offset}: {error}", code=Code.KAFKA_STORAGE_ERROR) from error
    return TimestampOffset(header.max_timestamp, header.base_offset)
