"""A single record that needs a new batch, with the interface of a run of rows."""

from __future__ import annotations

from spark_producer.accumulator.future import Callback, RecordFuture
from spark_producer.kernel import SingleRecord


class SingleRowRun:
    """A run of one row, which is a single record. `future` is None until the record is appended."""

    __slots__ = ("callback", "future", "record")

    def __init__(self, record: SingleRecord, callback: Callback | None) -> None:
        self.record = record
        self.callback = callback
        self.future: RecordFuture | None = None

    def size_at(self, _: int) -> int:
        """Return an upper bound of the record's encoded size in bytes."""
        return self.record.size

    def timestamp_at(self, _: int) -> int:
        """Return the record's timestamp in milliseconds."""
        return self.record.timestamp
