"""The bytes that rows will take in their batches, so that runs of rows end where batches end."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from spark_producer.kernel import SingleRecord
from spark_producer.kernel.arrays import Int64Array
from spark_producer.kernel.portable import RECORD_OVERHEAD
from spark_producer.record.batch_v2 import HEADER_SIZE
from spark_producer.record.columns import CheckedColumns

RECORD_FRAME = 5
"""The usual bytes of a record beside its body: 2 for its length, 1 for the timestamp delta, 2 for the offset delta. Where a
forecast is wrong, the next one starts again from the true room of the batch."""

_LOOKED_AT = 4096
"""The number of rows whose timestamps are looked at to estimate a batch's deltas; about as many small rows go into a batch."""


class SizedRows:
    """Rows in their order with a cursor: the rows before `row` have been placed, and took `before` bytes."""

    def __init__(self, columns: CheckedColumns, rows: Int64Array) -> None:
        bodies = columns.records.body_sizes
        sizes = bodies if len(rows) == len(bodies) else bodies[rows]
        self.ends: Int64Array = np.cumsum(sizes + (RECORD_FRAME + _longer_deltas(columns)))
        self.count = len(rows)
        self.partitions: npt.NDArray[np.int32] = np.empty(self.count, dtype=np.int32)
        self.row = 0
        self.before = 0

    @property
    def left(self) -> bool:
        """Whether some rows have no partition yet."""
        return self.row < self.count

    def next_size(self) -> int:
        """Return the bytes of the row at the cursor."""
        return int(self.ends[self.row]) - self.before

    def place(self, partition: int, room: int, limit: int) -> int:
        """Give `partition` the rows that fit into `room` bytes, up to the one that reaches `limit`; return their bytes."""
        stop = int(self.ends.searchsorted(self.before + room, side="right"))
        if limit < room:
            stop = min(stop, int(self.ends.searchsorted(self.before + max(limit, 1), side="left")) + 1)
        if stop == self.row:
            return 0
        self.partitions[self.row : stop] = partition
        before, self.before = self.before, int(self.ends[stop - 1])
        self.row = stop
        return self.before - before


class SizedRow:
    """A single record, with the cursor of `SizedRows`."""

    def __init__(self, record: SingleRecord) -> None:
        self._size = record.size - RECORD_OVERHEAD + RECORD_FRAME
        self.left = True
        self.partition = -1

    def next_size(self) -> int:
        """Return the bytes of the record."""
        return self._size

    def place(self, partition: int, room: int, limit: int) -> int:  # noqa: ARG002 - the row that reaches it is within it
        """Give `partition` the record if it fits into `room` bytes; return its bytes, or 0."""
        if self._size > room:
            return 0
        self.partition, self.left = partition, False
        return self._size


def _longer_deltas(columns: CheckedColumns) -> int:
    """Return how many bytes beyond the first a timestamp delta usually takes at most; a day's times need four in all."""
    timestamps = columns.records.timestamps
    if isinstance(timestamps, int) or not len(timestamps):
        return 0
    some = timestamps[:_LOOKED_AT]
    zigzag = 2 * int(some.max() - some.min())
    return max(zigzag.bit_length() - 1, 0) // 7


def new_batch_bytes(batch_size: int, next_size: int) -> int:
    """Return the room for records in a new batch whose first one takes `next_size` bytes; a large one gets its own batch."""
    return max(batch_size - HEADER_SIZE, next_size)
