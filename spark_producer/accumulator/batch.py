"""The batches of one partition and their queue, which refer to each other because a batch may go back into its queue.

A batch keeps its bytes until they are acknowledged or rejected, writes its header, counts its attempts, and has a final state.
The queue keeps the waiting batches, those in flight, and the state by which the I/O thread chooses among them. `readiness`
decides when a batch is worth sending, and the sender assigns its sequence.
"""

from __future__ import annotations

import enum
import threading
from collections import deque

from spark_producer.accumulator.failure_tracking import ThreadFailures
from spark_producer.accumulator.future import BatchResult, Callback, RecordFuture
from spark_producer.accumulator.row_origins import RowRange, cut_runs
from spark_producer.accumulator.sequence_state import NO_IDENTITY, DrainGate, Sequences
from spark_producer.common.cluster import NO_LEADER, ProducerIdAndEpoch, TopicPartition
from spark_producer.errors import IllegalState
from spark_producer.kernel import BUFFER_FULL, ArrangedRows, SingleRecord, encode_v2
from spark_producer.record import batch_v2
from spark_producer.record.sequence_numbers import add_to_sequence
from spark_producer.record.splitting import SplitPoint, cut_in_half

_NO_BUFFER = memoryview(b"")


class BatchState(enum.Enum):
    """The final state of a batch. A batch that is not complete has the state None."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    ABORTED = "aborted"
    EMPTIED = "emptied"
    """All records were removed, because the broker had rejected each of them."""


class RefCountedBuffer:
    """A buffer shared by the batches that one batch was split into; it is released with the last of them."""

    __slots__ = ("buffer", "holders")

    def __init__(self, buffer: memoryview) -> None:
        self.buffer = buffer
        self.holders = 1


class ProducerBatch:
    """A batch of records.

    Task threads fill it under its queue's lock while it is open; the I/O thread owns it once it is closed.
    """

    __slots__ = (
        "attempts", "base_sequence", "base_timestamp", "begin", "buffer", "closed", "codec", "compression_ratio", "created",
        "drained", "identity", "in_doubt", "in_flight", "last_error", "leader_epoch", "limit", "max_record_size", "max_timestamp",
        "number", "owners", "position", "queue", "records_count", "removals", "resent", "result", "retry_at", "row", "runs",
        "shared_buffer", "state", "topic_id",
    )  # fmt: skip

    def __init__(
        self, queue: PartitionQueue, buffer: memoryview, number: int, created: float, base_timestamp: int
    ) -> None:
        self.queue = queue
        self.buffer = buffer
        self.limit = len(buffer)
        """the position in the buffer up to which records may be appended"""
        self.shared_buffer: RefCountedBuffer | None = None
        self.number = number
        """the order of creation, in which the batches of a partition are sent and resent; the halves of a split batch share one
        number"""
        self.created = created
        """seconds; delivery.timeout.ms counts from here, also for the halves of a split batch"""
        self.base_timestamp = base_timestamp
        self.max_timestamp = base_timestamp
        self.begin = 0
        self.position = batch_v2.HEADER_SIZE
        self.records_count = 0
        self.max_record_size = 0
        """an upper bound of the encoded bytes of a record: the largest record of the Arrow batches that the rows came from"""
        self.closed = False
        self.codec = 0
        """the number of the codec that the records are compressed with"""
        self.compression_ratio = 1.0
        """compressed bytes per uncompressed byte of the records, even if the compressed form is not used; 1 without a codec"""
        self.state: BatchState | None = None
        self.in_flight = False
        """whether the network may read the buffer"""
        self.drained = 0.0
        self.attempts = 0
        """the number of times that the batch was queued again after an error"""
        self.resent = False
        """whether the batch must be sent in order and alone, because it was sent before, whole or as a part of a larger batch"""
        self.retry_at = 0.0
        self.leader_epoch = -1
        """the epoch of the leader to which the batch was sent last; a newer leader is tried without a pause (KIP-951)"""
        self.topic_id = bytes(16)
        """the id of the topic when the batch was sent last; zero if it was not known (KIP-516)"""
        self.last_error = ""
        self.identity = NO_IDENTITY
        self.base_sequence = batch_v2.NO_SEQUENCE
        self.result: BatchResult | None = None
        """the result of its single records; None if it has no single records"""
        self.runs: list[RowRange] = []
        """the runs of rows whose outcome is not reported yet"""
        self.in_doubt = False
        """whether an earlier attempt may have written the batch: a request without a response, or too few replicas"""
        self.removals = 0
        """the number of times that records were removed from the batch, or from the batch that it was split off"""
        self.owners: tuple[ThreadFailures, ...] = ()
        """the failures of each thread that has rows in the batch"""
        self.row: int | None = None
        """the number of the row, if the batch was made for a single row that is larger than `batch.size`"""

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition that the batch is for."""
        return self.queue.topic_partition

    @property
    def size(self) -> int:
        """The size of the batch in bytes, as it is sent."""
        return self.position - self.begin

    @property
    def data(self) -> memoryview:
        """The batch as it is sent, a view of the pool's buffer."""
        return self.buffer[self.begin : self.position]

    @property
    def capacity(self) -> int:
        """The bytes from the beginning of the batch that no other batch may use."""
        return (len(self.buffer) if self.shared_buffer is None else self.position) - self.begin

    @property
    def has_futures(self) -> bool:
        """Whether each of its records has a future, its own or that of a table."""
        singles = 0 if self.result is None else len(self.result.futures)
        with_future = sum(len(run.rows) for run in self.runs if run.listener is not None and run.listener.has_future)
        return singles + with_future == self.records_count

    def append(self, rows: ArrangedRows, first: int, stop: int) -> int:
        """Encode rows `first` … `stop` - 1 until one does not fit, and return the number of the next row.

        Raises:
            IllegalState: the batch is closed.
        """
        if self.closed:
            raise IllegalState(f"rows were appended to a closed batch of {self.topic_partition}")
        following, self.position, latest = encode_v2(
            rows, first, stop, self.records_count, self.base_timestamp, self.buffer, self.position, self.limit
        )
        self.records_count += following - first
        if latest > self.max_timestamp:
            self.max_timestamp = latest
        if rows.columns.largest > self.max_record_size:
            self.max_record_size = rows.columns.largest
        return following

    def append_one(self, record: SingleRecord, callback: Callback | None, owner: ThreadFailures) -> RecordFuture | None:
        """Encode a single record of the thread `owner`; return its future, or None if it does not fit.

        Raises:
            IllegalState: the batch is closed.
        """
        if self.closed:
            raise IllegalState(f"a record was appended to a closed batch of {self.topic_partition}")
        index, timestamp, size = self.records_count, record.timestamp, record.size
        position = record.encode(self.buffer, self.position, self.limit, index, self.base_timestamp)
        if position == BUFFER_FULL:
            return None
        self.position = position
        self.records_count = index + 1
        if timestamp > self.max_timestamp:
            self.max_timestamp = timestamp
        if size > self.max_record_size:
            self.max_record_size = size
        self.add_owner(owner)
        if self.result is None:
            self.result = BatchResult(self.topic_partition)
        return self.result.add(index, timestamp, callback)

    def add_owner(self, owner: ThreadFailures) -> None:
        """Record that the batch has records of this thread, to which a failure of the batch is reported."""
        owner.sent = True
        if owner not in self.owners:
            self.owners += (owner,)

    def write_header(self, attributes: int = 0) -> None:
        """Write the header and the CRC. This is the last step before the bytes are sent, because the header has the sequence.

        `attributes` are the bits of the header without the codec: `TRANSACTIONAL_BIT` of `record.batch_v2`, or 0.
        """
        batch_v2.write_header(
            self.buffer[self.begin : self.position],
            records_count=self.records_count,
            base_timestamp=self.base_timestamp,
            max_timestamp=self.max_timestamp,
            producer_id=self.identity.producer_id,
            producer_epoch=self.identity.epoch,
            base_sequence=self.base_sequence,
            attributes=self.codec | attributes,
        )

    # --- completion -------------------------------------------------------------------------------------------------

    def complete(self, base_offset: int, log_append_time: int) -> bool:
        """Complete an acknowledged batch. Return False, and change nothing, if the batch had failed before.

        Raises:
            IllegalState: the batch has succeeded already.
        """
        if not self._end(BatchState.SUCCEEDED):
            return False
        runs, self.runs = self.runs, []
        for run in runs:
            if run.listener is not None:
                first = base_offset + run.offset_delta if base_offset >= 0 else -1
                run.listener.written(self.topic_partition, first, len(run.rows))
        if self.result is not None:
            self.result.complete(base_offset, log_append_time)
        return True

    def fail(self, error: Exception) -> bool:
        """Complete a batch that was rejected or has expired; return value and errors are those of `complete`."""
        if not self._end(BatchState.FAILED):
            return False
        self._fail_waiters(error)
        return True

    def abort(self, error: Exception) -> None:
        """Complete the batch with an error because the producer closes.

        Raises:
            IllegalState: the batch is complete already.
        """
        if self.state is not None:
            raise IllegalState(f"a batch of {self.topic_partition} that has {self.state.value} was aborted")
        self.state = BatchState.ABORTED
        self._fail_waiters(error)

    def _end(self, state: BatchState) -> bool:
        if self.state is None:
            self.state = state
            return True
        if self.state is BatchState.SUCCEEDED:
            raise IllegalState(f"a batch of {self.topic_partition} that has succeeded was completed again")
        return False

    def _fail_waiters(self, error: Exception) -> None:
        """Complete the futures of the records, and the rows of tables, with the error."""
        runs, self.runs = self.runs, []
        for run in runs:
            if run.listener is not None:
                run.listener.failed(error, run)
        if self.result is not None:
            self.result.fail(error)

    def take_buffer(self) -> memoryview | None:
        """Return the buffer for the pool once, and only from the last of the batches that share it; otherwise None."""
        buffer, self.buffer = self.buffer, _NO_BUFFER
        if self.shared_buffer is not None:
            lease, self.shared_buffer = self.shared_buffer, None
            lease.holders -= 1
            return None if lease.holders else lease.buffer
        return buffer if len(buffer) else None

    # --- split ------------------------------------------------------------------------------------------------------

    def split(self) -> ProducerBatch:
        """Keep the first half of the uncompressed records, and return a batch of the others (KIP-126)."""
        return self.halve(
            cut_in_half(self.buffer, self.begin + batch_v2.HEADER_SIZE, self.position, self.records_count)
        )

    def halve(self, halves: SplitPoint) -> ProducerBatch:
        """Keep the records before the cut, and return a batch of the records after it.

        Both batches are in the same buffer, so the pool's count of bytes stays right. The second header overlaps the end of the
        first batch, so it must not be written before the response to the first batch; `resent` ensures that.
        """
        records, cut, end, head_latest, tail_latest = halves
        if self.shared_buffer is None:
            self.shared_buffer = RefCountedBuffer(self.buffer)
        self.shared_buffer.holders += 1
        tail = ProducerBatch(self.queue, self.buffer, self.number, self.created, self.base_timestamp)
        tail.shared_buffer = self.shared_buffer
        tail.begin, tail.position = cut - batch_v2.HEADER_SIZE, end
        tail.records_count = self.records_count - records
        tail.max_record_size = self.max_record_size
        tail.max_timestamp = self.base_timestamp + tail_latest
        tail.owners = self.owners
        tail.attempts, tail.last_error, tail.identity = self.attempts, self.last_error, self.identity
        tail.in_doubt, tail.removals = self.in_doubt, self.removals
        if self.base_sequence != batch_v2.NO_SEQUENCE:
            tail.base_sequence = add_to_sequence(self.base_sequence, records)
        self.position, self.records_count = cut, records
        self.max_timestamp = self.base_timestamp + head_latest
        for batch in (self, tail):
            batch.closed = batch.resent = True
        if self.result is not None:
            tail.result = self.result.split(records)
        self.runs, tail.runs = cut_runs(self.runs, records)
        return tail


class PartitionQueue:
    """The batches of one partition. Task threads append at the tail, and the I/O thread takes from the head.

    A thread holds `lock` while it writes to the open batch or closes it. `open` changes under the lock. Batches are appended
    to `batches` under the lock, and only the I/O thread pops them. All other fields belong to the I/O thread.
    """

    __slots__ = (
        "awaited", "backing_off", "batches", "drained_at", "gate", "identity", "in_doubt", "in_flight", "known_to_broker",
        "last_acked", "last_acked_offset", "leader", "leader_epoch", "leaders_number", "lingering", "listed", "lock",
        "next_sequence", "node", "open", "renumber_from_batch", "renumber_from_sequence", "retired", "topic_partition",
    )  # fmt: skip

    def __init__(self, tp: TopicPartition) -> None:
        self.topic_partition = tp
        self.lock = threading.Lock()
        self.batches: deque[ProducerBatch] = deque()
        self.open: ProducerBatch | None = None
        self.awaited = False
        """set when the I/O thread wanted the open batch while rows were being appended: it must be woken when they are in"""
        self.retired = False
        """set under `lock` when the queue is empty and no longer used: no batch may be opened here, the partition gets a new
        queue"""
        self.in_flight: list[ProducerBatch] = []
        """the oldest first; a batch that expires in flight stays here until its response, since its bytes may still be read"""
        self.node = NO_LEADER
        """the node that the batches in flight were sent to"""
        self.drained_at = 0.0
        """the time of the last drain"""
        self.gate = DrainGate.OPEN
        # Kept by `readiness`:
        self.leaders_number = -1
        """the number of the cluster snapshot that `leader` is from; a reference to the snapshot would keep it in memory"""
        self.leader = NO_LEADER
        self.leader_epoch = -1
        self.listed = False
        self.lingering = -1.0
        self.backing_off = -1.0
        # Kept by the sender (KIP-98, KIP-360):
        self.identity = NO_IDENTITY
        self.next_sequence = 0
        self.last_acked = -1
        self.last_acked_offset = -1
        self.known_to_broker = False
        """whether the brokers have acknowledged a batch of the producer id, so that they know it and reject gaps"""
        # With `DrainGate.RENUMBER`:
        self.renumber_from_batch = 0
        """the number of the oldest batch that has lost records, from which on batches get new sequences"""
        self.renumber_from_sequence = 0
        """the first sequence of that batch, which is the first one to be assigned again"""
        self.in_doubt = False
        """whether a later batch has failed while an attempt to send it may still be under way"""

    def begin(self, identity: ProducerIdAndEpoch) -> None:
        """Count sequences from 0 under this producer id and epoch."""
        self.identity = identity
        self.next_sequence = 0
        self.last_acked = self.last_acked_offset = -1
        self.known_to_broker = False

    @property
    def sequences(self) -> Sequences:
        """The sequence numbers that the successor of this queue continues with."""
        return Sequences(self.identity, self.next_sequence, self.last_acked, self.last_acked_offset)

    def resume(self, sequences: Sequences) -> None:
        """Continue the sequence numbers of an earlier queue of this partition. The brokers may no longer know the producer id."""
        self.identity, self.next_sequence, self.last_acked, self.last_acked_offset = sequences

    def reenqueue(self, batch: ProducerBatch) -> None:
        """Queue a batch in the order of creation, before all younger ones and those that were split off it."""
        batches = self.batches
        if not batches or batches[0].number >= batch.number:
            batches.appendleft(batch)
            return
        with self.lock:  # no thread appends meanwhile
            index = next((i for i, other in enumerate(batches) if other.number >= batch.number), len(batches))
            batches.insert(index, batch)

    def has_sequenced(self) -> bool:
        """Return whether a batch that has a sequence is queued or in flight; such batches are at the head of the queue."""
        return bool(self.in_flight) or bool(self.batches and self.batches[0].base_sequence != batch_v2.NO_SEQUENCE)

    def has_earlier(self, batch: ProducerBatch) -> bool:
        """Return whether an older batch is still queued or in flight. This batch itself is neither."""
        in_flight, batches = self.in_flight, self.batches
        return bool(
            (in_flight and in_flight[0].number < batch.number) or (batches and batches[0].number < batch.number)
        )
