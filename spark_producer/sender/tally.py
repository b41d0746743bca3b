"""What was acknowledged: counts and offset ranges since the last report.

Owns: the running numbers. Must not know: where they go.
"""

from __future__ import annotations

from spark_producer.accumulator import ProducerBatch
from spark_producer.metrics import OffsetRange, WriteReport


class Tally:
    """Written by the I/O thread, taken by a task thread after a flush, when nothing is under way."""

    def __init__(self) -> None:
        self._ranges: dict[tuple[str, int], OffsetRange] = {}
        self._records = self._bytes = self._batches = 0
        self.requests = 0
        self.retries = 0

    def wrote(self, batch: ProducerBatch, base_offset: int) -> None:
        """A batch is in the log; `base_offset` -1: the broker did not say where."""
        records = batch.records_count
        self._records += records
        self._bytes += batch.position - batch.begin
        self._batches += 1
        if base_offset >= 0:
            place = batch.queue.place
            last = base_offset + records - 1
            known = self._ranges.get(place)
            if known is None:
                self._ranges[place] = OffsetRange(base_offset, last, records)
            elif base_offset > known.last:
                self._ranges[place] = OffsetRange(known.first, last, known.records + records)
            else:
                self._ranges[place] = known.merge(OffsetRange(base_offset, last, records))

    def take(self) -> WriteReport:
        """The report, and begin anew."""
        report = WriteReport(self._ranges, self._records, self._bytes, self._batches, self.requests, self.retries)
        self.__init__()  # type: ignore[misc]
        return report
