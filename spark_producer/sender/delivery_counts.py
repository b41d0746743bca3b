"""Counts the delivery of batches: numbers and offset ranges since the last report, and the metrics of batches."""

from __future__ import annotations

from spark_producer.accumulator import ProducerBatch
from spark_producer.metrics import OffsetRange, ProducerMetrics, WriteReport
from spark_producer.record.batch_v2 import HEADER_SIZE


class DeliveryCounts:
    """The counts of delivery. The I/O thread writes them; a task thread takes them after a flush, when nothing is in flight."""

    def __init__(self, metrics: ProducerMetrics) -> None:
        self._metrics = metrics
        self._begin()

    def _begin(self) -> None:
        self._ranges: dict[tuple[str, int], OffsetRange] = {}
        self._records = self._bytes = self._batches = 0
        self.requests = 0
        self.retries = 0

    def drained(self, batches: list[ProducerBatch], now: float) -> None:
        """Count the batches that were drained for a ready node, which make one request."""
        records = 0
        for batch in batches:
            records += batch.records_count
            size = batch.position - batch.begin
            sent = size - HEADER_SIZE
            encoded = round(sent / batch.compression_ratio) if batch.codec else sent
            largest = batch.max_record_size + HEADER_SIZE  # Java's upper bound includes the overhead of a batch
            self._metrics.batch_drained(
                batch.queue.topic_partition.topic,
                batch.records_count,
                size,
                encoded,
                sent,
                largest,
                now - batch.created,
                now,
            )
        self._metrics.node_drained(records, now)
        if batches:
            self.requests += 1

    def retried(self, batch: ProducerBatch, now: float) -> None:
        """Count a batch that is queued again for a retry."""
        self.retries += 1
        self._metrics.batch_retried(batch.topic_partition.topic, batch.records_count, now)

    def was_split(self, now: float) -> None:
        """Count a batch that was too large and was split."""
        self._metrics.batch_split(now)

    def failed(self, batch: ProducerBatch, now: float, *, again: bool = False) -> None:
        """Count a failed batch. With `again` it has expired before, and the broker rejects it now."""
        self._metrics.batch_failed(batch.topic_partition.topic, batch.records_count, now, again=again)

    def wrote(self, batch: ProducerBatch, base_offset: int, now: float) -> None:
        """Count an acknowledged batch. `base_offset` is -1 if the response lacks it."""
        records = batch.records_count
        self._metrics.batch_delivered(records, batch.position - batch.begin, now - batch.created, now)
        self._records += records
        self._bytes += batch.position - batch.begin
        self._batches += 1
        if base_offset >= 0:
            tp = batch.queue.topic_partition
            last = base_offset + records - 1
            known = self._ranges.get(tp)
            if known is None:
                self._ranges[tp] = OffsetRange(base_offset, last, records)
            elif base_offset > known.last:
                self._ranges[tp] = OffsetRange(known.first, last, known.records + records)
            else:
                self._ranges[tp] = known.merge(OffsetRange(base_offset, last, records))

    def take(self) -> WriteReport:
        """Return the report, and reset the counts."""
        report = WriteReport(self._ranges, self._records, self._bytes, self._batches, self.requests, self.retries)
        self._begin()
        return report
