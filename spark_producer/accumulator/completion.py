"""The outcomes of a batch: it is acknowledged, fails, expires or is aborted, or it is queued again, whole or in halves.

Everything here belongs to the I/O thread, except for what the backlog shares. The sender decides on the outcome. (KIP-91 is
about the expiry, KIP-126 about the halves.)
"""

from __future__ import annotations

from collections.abc import Mapping

from spark_producer.accumulator.batch import BatchState, PartitionQueue, ProducerBatch
from spark_producer.accumulator.failure_tracking import SAME_FOR_ALL
from spark_producer.accumulator.rejected_records import errors_by_thread, remove_rejected
from spark_producer.accumulator.sequence_state import DrainGate
from spark_producer.accumulator.state import AccumulatorState
from spark_producer.common.cluster import TopicPartition
from spark_producer.errors import BrokerError, DeliveryTimeout, RecordsRefused


class BatchCompletion:
    """Brings batches to their end, or back into their queue. Only the I/O thread calls it.

    A buffer goes back to the pool once its batch has ended and the network no longer reads it.
    """

    def __init__(self, shared: AccumulatorState) -> None:
        self._incomplete = shared.incomplete
        self._readiness = shared.readiness
        self._in_flight_bytes = shared.in_flight_bytes
        self._limits = shared.limits
        self._compression = shared.compression
        self._pool = shared.pool

    def remove_in_flight(self, batch: ProducerBatch) -> None:
        """Note that the network has answered or lost the batch, and so no longer reads its buffer."""
        batch.in_flight = False
        self._in_flight_bytes.remove(batch.queue.node, batch.capacity)
        batch.queue.in_flight.remove(batch)
        if batch.state is not None:  # it was given up in flight, and its buffer was kept until now (KAFKA-19012)
            self._release(batch)

    def reenqueue(self, batch: ProducerBatch) -> None:
        """Queue a batch again, at its place in the order of creation."""
        batch.attempts += 1
        batch.resent = True
        batch.queue.reenqueue(batch)
        self._incomplete.nonempty.add(batch.queue)

    def split(self, batch: ProducerBatch) -> None:
        """Queue the two halves of a batch that was refused as too large. They do not count as retries of it (KIP-126)."""
        self._limits.refused(batch.topic_partition.topic, batch.size)
        tail = batch.split() if self._compression is None else self._compression.split(batch)
        batch.queue.reenqueue(tail)
        batch.queue.reenqueue(batch)
        self._incomplete.nonempty.add(batch.queue)
        self._incomplete.insert_half(batch, tail)

    def remove_rejected(self, batch: ProducerBatch, texts: Mapping[int, str], error: BrokerError) -> bool:
        """Give the records of a refused batch that the broker complains about to those who sent them, if they want them.

        The rest must be put back with `put_back_rest`. If this returns False nothing has changed.
        """
        return remove_rejected(batch, texts, error, self._compression)

    def reenqueue_rest(self, batch: ProducerBatch) -> None:
        """Queue the rest of a batch after `remove_rejected`, in the order of creation; end the batch if no record is left.

        As with the halves of a split batch, this does not count as a retry.
        """
        if not batch.records_count:
            batch.state = BatchState.EMPTIED
            self._release(batch)
            return
        batch.queue.reenqueue(batch)
        self._incomplete.nonempty.add(batch.queue)

    def complete(self, batch: ProducerBatch, base_offset: int, log_append_time: int) -> None:
        """End an acknowledged batch: free its memory, run its callbacks, and end its futures."""
        if batch.state is None:
            if self._limits:
                self._limits.taken(batch.topic_partition.topic, batch.size)
            self._release(batch)
            batch.complete(base_offset, log_append_time)

    def fail(self, batch: ProducerBatch, error: Exception) -> None:
        """Give up a batch. If the network may still read its buffer, the buffer is kept until `landed`."""
        if batch.state is None:
            own = errors_by_thread(batch, error) if isinstance(error, RecordsRefused) else SAME_FOR_ALL
            self._incomplete.failures.record(error, batch.owners, batch.has_futures, own)
            if not batch.in_flight:
                self._release(batch)
            batch.fail(error)

    def refresh(self, queues: set[PartitionQueue] | list[PartitionQueue], now: float) -> None:
        """Look at partitions again whose batches have ended or were put back, and wake the threads that flush."""
        for queue in queues:
            self._readiness.consider(queue, now)
        self._incomplete.remove_completed()

    def take_expired(self, now: float) -> list[ProducerBatch]:
        """Return the batches whose `delivery.timeout.ms` is over, the oldest first.

        Those that waited are taken out of their queues; those in flight stay in flight. The caller calls `fail` for each, and
        then `settle`.
        """
        return [batch for batch in self._incomplete.expired(now) if batch.in_flight or self._withdraw(batch)]

    def abort_undrained(self, error: Exception, now: float) -> list[ProducerBatch]:
        """Fail every batch that is not in flight, because its transaction is to be aborted, and return them."""
        dropped = self._withdraw_waiting()
        for batch in dropped:
            self.fail(batch, error)
            if batch.queue.gate == DrainGate.RENUMBER:  # no batch with a sequence number is left to be renumbered
                batch.queue.gate = DrainGate.OPEN
        self.refresh({batch.queue for batch in dropped}, now)
        return dropped

    def take_undrained(self, attributes: int, error: Exception, now: float) -> list[tuple[TopicPartition, int, bytes]]:
        """Take out every batch that is not in flight: its partition, number of records, and bytes.

        The bytes are those of a batch without producer id and sequence, with `attributes` as for `ProducerBatch.seal`. No thread
        is told of a failure; only futures of single records or tables get `error`. Open batches go out uncompressed: close
        them before.
        """
        taken = []
        queues = set()
        for batch in self._withdraw_waiting():
            batch.write_header(attributes)
            taken.append((batch.topic_partition, batch.records_count, bytes(batch.data)))
            self._release(batch)
            batch.fail(error)
            queues.add(batch.queue)
        self.refresh(queues, now)
        return taken

    def withdraw_queue(self, queue: PartitionQueue) -> list[ProducerBatch]:
        """Take all batches out of a queue, the oldest first. The caller ends each of them, and then calls `settle`."""
        return [batch for batch in list(queue.batches) if self._withdraw(batch)]

    def _withdraw_waiting(self) -> list[ProducerBatch]:
        return [batch for batch in self._incomplete.remaining() if not batch.in_flight and self._withdraw(batch)]

    def _withdraw(self, batch: ProducerBatch) -> bool:
        """Take a batch out of its queue; return False if the thread that has opened it has dropped it meanwhile, without rows."""
        queue = batch.queue
        if not batch.closed:
            with queue.lock:  # a thread that writes to the batch now is done in a moment
                if batch not in queue.batches:
                    return False
                batch.closed = True
                if queue.open is batch:
                    queue.open = None
        queue.batches.remove(batch)
        self._incomplete.nonempty.remove_if_empty(queue)
        return True

    def expiry_error(self, batch: ProducerBatch, now: float, obstacle: str = "") -> DeliveryTimeout:
        """Return the error for the waiters of an expired batch. `obstacle` says what kept it back, if that is known."""
        tp = batch.topic_partition
        last = f" The last answer: {batch.last_error}." if batch.last_error else obstacle
        return DeliveryTimeout(
            f"{batch.records_count} records for {tp} were not acknowledged within {now - batch.created:.1f} s "
            f"(kafka.delivery.timeout.ms), after {batch.attempts} failed attempts.{last} Look whether the partition has a "
            "leader and enough replicas, or raise the timeout",
            topic=tp.topic,
            partition=tp.partition,
        )

    def abort(self, error: Exception) -> None:
        """End everything with `error`, or with the first error if one was given before.

        All waits wake up, all batches are aborted, and no more rows are taken. Buffers that the network may read are kept;
        those of waiting batches go back to the pool.
        """
        error = self._incomplete.end(error)
        self._pool.close()
        for queue in list(self._incomplete.queues.values()):
            with queue.lock:
                queue.open = None
        for batch in self._incomplete.remaining():
            batch.closed = True
            if not batch.in_flight:
                self._release(batch)
            batch.abort(error)
        for queue in list(self._incomplete.queues.values()):
            queue.batches.clear()
        self._readiness.clear()
        self._incomplete.clear()

    def network_closed(self) -> None:
        """Free the buffers of batches in flight after `abort`: no answer will come, and the network no longer reads them."""
        for queue in list(self._incomplete.queues.values()):
            for batch in list(queue.in_flight):
                self.remove_in_flight(batch)

    def _release(self, batch: ProducerBatch) -> None:
        buffer = batch.take_buffer()
        if buffer is not None:
            self._pool.release(buffer)
