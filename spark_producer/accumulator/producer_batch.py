"""One record batch on its way: its buffer, what is known of its records, and its attempts.

Owns: the bytes until they are acknowledged or refused, and the sealing of the header.
Must not know: when or where to it is sent.
"""

from __future__ import annotations

from typing import NamedTuple

from spark_producer.accumulator.future import PendingRecord, RecordMetadata
from spark_producer.kernel import ArrangedRows, encode_v2
from spark_producer.record import batch_v2


class TopicPartition(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"topic {self.topic!r}, partition {self.partition}"


class ProducerBatch:
    """Filled by a task thread while `appending`, owned by the I/O thread from its drain on; never both at once."""

    def __init__(
        self, place: TopicPartition, buffer: memoryview, number: int, created: float, base_timestamp: int
    ) -> None:
        self.place = place
        self.buffer = buffer
        self.number = number
        """Order of creation: batches of a partition are sent, and sent again, in this order."""
        self.created = created
        self.base_timestamp = base_timestamp
        self.max_timestamp = base_timestamp
        self.position = batch_v2.HEADER_SIZE
        self.records_count = 0
        self.appending = False
        self.awaited = False
        """The I/O thread would have sent it, but rows were coming in; it wants to be woken when they are in."""
        self.closed = False
        self.attempts = 0
        self.retry_at = 0.0
        self.last_error = ""
        self.base_sequence = batch_v2.NO_SEQUENCE
        self.pending: list[PendingRecord] = []

    def append(self, rows: ArrangedRows, first: int, stop: int) -> int:
        """Encode rows `first` … `stop` - 1 until one does not fit; the number of the next row."""
        following, self.position, latest = encode_v2(
            rows, first, stop, self.records_count, self.base_timestamp, self.buffer, self.position, len(self.buffer)
        )
        self.records_count += following - first
        self.max_timestamp = max(self.max_timestamp, latest)
        return following

    @property
    def data(self) -> memoryview:
        """The batch as it is sent, a view of the pool's buffer."""
        return self.buffer[: self.position]

    def seal(self, producer_id: int, producer_epoch: int) -> None:
        """Write header and CRC; the last thing before the bytes are sent, so that nothing is stamped too early."""
        batch_v2.seal(
            self.data,
            records_count=self.records_count,
            base_timestamp=self.base_timestamp,
            max_timestamp=self.max_timestamp,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=self.base_sequence,
        )

    def complete(self, base_offset: int, log_append_time: int) -> None:
        """Resolve the futures of the batch's single records."""
        for record in self.pending:
            offset = base_offset + record.offset_delta if base_offset >= 0 else -1
            timestamp = record.timestamp if log_append_time < 0 else log_append_time
            record.future.set_result(RecordMetadata(self.place.topic, self.place.partition, offset, timestamp))

    def fail(self, error: Exception) -> None:
        """Fail the futures of the batch's single records."""
        for record in self.pending:
            record.future.set_exception(error)
