"""A single record that needs a new batch, in the place of a run of rows.

Owns: what a run tells of its first row. Must not know: batches, memory, locks.
"""

from __future__ import annotations

from spark_producer.accumulator.future import Callback, RecordFuture
from spark_producer.kernel import SingleRecord


class OneRow:
    """`future` is set by whoever has appended the record."""

    __slots__ = ("callback", "future", "record")

    def __init__(self, record: SingleRecord, callback: Callback | None) -> None:
        self.record = record
        self.callback = callback
        self.future: RecordFuture | None = None

    def size_at(self, _: int) -> int:
        """An upper bound of the record's encoded size."""
        return self.record.size

    def timestamp_at(self, _: int) -> int:
        """In milliseconds."""
        return self.record.timestamp
