"""What became of batches, in numbers: counts and offset ranges since the last report, and the metrics of batches.

Owns: the running numbers, and what of a batch the metrics are told. Must not know: where they go.
"""

from __future__ import annotations

from spark_producer.accumulator import ProducerBatch
from spark_producer.metrics import OffsetRange, ProducerMetrics, WriteReport
from spark_producer.record.batch_v2 import HEADER_SIZE


class DeliveryCounts:
    """Written by the I/O thread, taken by a task thread after a flush, when nothing is under way."""

    def __init__(self, metrics: ProducerMetrics) -> None:
        self._metrics = metrics
        self._begin()

    def _begin(self) -> None:
        self._ranges: dict[tuple[str, int], OffsetRange] = {}
        self._records = self._bytes = self._batches = 0
        self.requests = 0
        self.retries = 0

    def drained(self, batches: list[ProducerBatch], now: float) -> None:
        """A node was ready, and gets these batches: the request that they make, or nothing."""
        records = 0
        for batch in batches:
            records += batch.records_count
            size = batch.position - batch.begin
            sent = size - HEADER_SIZE
            encoded = round(sent / batch.compression_ratio) if batch.codec else sent
            largest = batch.largest + HEADER_SIZE  # Java's bound has the overhead of a batch in it
            self._metrics.batch_drained(
                batch.queue.place.topic, batch.records_count, size, encoded, sent, largest, now - batch.created, now
            )
        self._metrics.node_drained(records, now)
        if batches:
            self.requests += 1

    def retried(self, batch: ProducerBatch, now: float) -> None:
        """A batch is queued again."""
        self.retries += 1
        self._metrics.batch_retried(batch.place.topic, batch.records_count, now)

    def was_split(self, now: float) -> None:
        """A batch was too large."""
        self._metrics.batch_split(now)

    def failed(self, batch: ProducerBatch, now: float, *, again: bool = False) -> None:
        """A batch is given up. `again`: it was before, and the broker refuses it now."""
        self._metrics.batch_failed(batch.place.topic, batch.records_count, now, again=again)

    def wrote(self, batch: ProducerBatch, base_offset: int, now: float) -> None:
        """A batch is in the log; `base_offset` -1: the broker did not say where."""
        records = batch.records_count
        self._metrics.batch_delivered(records, batch.position - batch.begin, now - batch.created, now)
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
        self._begin()
        return report
