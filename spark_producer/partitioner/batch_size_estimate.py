"""Estimates the bytes of rows in their batches, so that runs of rows end where batches end."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from spark_producer.kernel import SingleRecord
from spark_producer.kernel.arrays import Int64Array
from spark_producer.kernel.portable import RECORD_OVERHEAD
from spark_producer.record.batch_v2 import HEADER_SIZE
from spark_producer.record.columns import CheckedColumns

RECORD_FRAME = 5
"""The usual bytes of a record in addition to its body: 2 for its length, 1 for the timestamp delta, 2 for the offset delta. If an
estimate is wrong, the next one starts from the actual free bytes of the batch."""

_EXAMINED_ROWS = 4096
"""The number of rows whose timestamps are examined to estimate a batch's deltas; about as many small rows fit into a batch."""


class SizedRows:
    """Rows in their order with a cursor: the rows up to `row` are assigned, and take `assigned_bytes`."""

    def __init__(self, columns: CheckedColumns, rows: Int64Array) -> None:
        bodies = columns.records.body_sizes
        sizes = bodies if len(rows) == len(bodies) else bodies[rows]
        self.ends: Int64Array = np.cumsum(sizes + (RECORD_FRAME + _longer_deltas(columns)))
        self.count = len(rows)
        self.partitions: npt.NDArray[np.int32] = np.empty(self.count, dtype=np.int32)
        self.row = 0
        self.assigned_bytes = 0

    @property
    def has_next(self) -> bool:
        """Whether some rows are not assigned yet."""
        return self.row < self.count

    def next_size(self) -> int:
        """Return the bytes of the row at the cursor."""
        return int(self.ends[self.row]) - self.assigned_bytes

    def assign(self, partition: int, free_bytes: int, limit: int) -> int:
        """Assign to `partition` the rows that fit into `free_bytes`, up to the one that reaches `limit`; return their bytes."""
        stop = int(self.ends.searchsorted(self.assigned_bytes + free_bytes, side="right"))
        if limit < free_bytes:
            stop = min(stop, int(self.ends.searchsorted(self.assigned_bytes + max(limit, 1), side="left")) + 1)
        if stop == self.row:
            return 0
        self.partitions[self.row : stop] = partition
        previous, self.assigned_bytes = self.assigned_bytes, int(self.ends[stop - 1])
        self.row = stop
        return self.assigned_bytes - previous


class SizedRow:
    """A single record, with the cursor of `SizedRows`."""

    def __init__(self, record: SingleRecord) -> None:
        self._size = record.size - RECORD_OVERHEAD + RECORD_FRAME
        self.has_next = True
        self.partition = -1

    def next_size(self) -> int:
        """Return the bytes of the record."""
        return self._size

    def assign(self, partition: int, free_bytes: int, limit: int) -> int:  # noqa: ARG002 - the row that reaches it is within it
        """Assign the record to `partition` if it fits into `free_bytes`; return its bytes, or 0."""
        if self._size > free_bytes:
            return 0
        self.partition, self.has_next = partition, False
        return self._size


def _longer_deltas(columns: CheckedColumns) -> int:
    """Return the maximum number of bytes, after the first, of a usual timestamp delta; the times of a day need four in all."""
    timestamps = columns.records.timestamps
    if isinstance(timestamps, int) or not len(timestamps):
        return 0
    some = timestamps[:_EXAMINED_ROWS]
    zigzag = 2 * int(some.max() - some.min())
    return max(zigzag.bit_length() - 1, 0) // 7


def new_batch_bytes(batch_size: int, next_size: int) -> int:
    """Return the bytes for records in a new batch whose first record takes `next_size` bytes; a large one has its own batch."""
    return max(batch_size - HEADER_SIZE, next_size)
