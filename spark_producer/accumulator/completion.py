"""Completes batches that are acknowledged, fail, expire or are aborted, and queues others again, whole or split.

Everything here belongs to the I/O thread, except for the state that `IncompleteBatches` shares. The sender decides on the
outcome. (Expiry: KIP-91. Split batches: KIP-126.)
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
    """Completes batches, or queues them again. Only the I/O thread calls it.

    A buffer is released to the pool once its batch is complete and the network no longer reads it.
    """

    def __init__(self, state: AccumulatorState) -> None:
        self._incomplete = state.incomplete
        self._readiness = state.readiness
        self._in_flight_bytes = state.in_flight_bytes
        self._limits = state.limits
        self._compression = state.compression
        self._pool = state.pool

    def remove_in_flight(self, batch: ProducerBatch) -> None:
        """Record that a batch is no longer in flight, after its response or the loss of its connection. The network does not
        read its buffer any more.
        """
        batch.in_flight = False
        self._in_flight_bytes.remove(batch.queue.node, batch.capacity)
        batch.queue.in_flight.remove(batch)
        if batch.state is not None:  # it failed in flight, and its buffer was kept until now (KAFKA-19012)
            self._release(batch)

    def reenqueue(self, batch: ProducerBatch) -> None:
        """Queue a batch again, in the order of creation."""
        batch.attempts += 1
        batch.resent = True
        batch.queue.reenqueue(batch)
        self._incomplete.nonempty.add(batch.queue)

    def split(self, batch: ProducerBatch) -> None:
        """Queue the two halves of a batch that was rejected as too large. They do not count as retries of it (KIP-126)."""
        self._limits.refused(batch.topic_partition.topic, batch.size)
        tail = batch.split() if self._compression is None else self._compression.split(batch)
        batch.queue.reenqueue(tail)
        batch.queue.reenqueue(batch)
        self._incomplete.nonempty.add(batch.queue)
        self._incomplete.insert_half(batch, tail)

    def remove_rejected(self, batch: ProducerBatch, texts: Mapping[int, str], error: BrokerError) -> bool:
        """Remove the records that the broker names from a rejected batch, and pass them to their listeners, if these want them.

        The rest of the batch must be queued with `reenqueue_rest`. If this returns False, nothing has changed.
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
        """Complete an acknowledged batch: release its memory, run its callbacks, and complete its futures."""
        if batch.state is None:
            if self._limits:
                self._limits.taken(batch.topic_partition.topic, batch.size)
            self._release(batch)
            batch.complete(base_offset, log_append_time)

    def fail(self, batch: ProducerBatch, error: Exception) -> None:
        """Fail a batch. If the network may still read its buffer, the buffer is kept until `remove_in_flight`."""
        if batch.state is None:
            own = errors_by_thread(batch, error) if isinstance(error, RecordsRefused) else SAME_FOR_ALL
            self._incomplete.failures.record(error, batch.owners, batch.has_futures, own)
            if not batch.in_flight:
                self._release(batch)
            batch.fail(error)

    def refresh(self, queues: set[PartitionQueue] | list[PartitionQueue], now: float) -> None:
        """Examine partitions again whose batches are complete or queued again, and wake the threads in a flush."""
        for queue in queues:
            self._readiness.consider(queue, now)
        self._incomplete.remove_completed()

    def take_expired(self, now: float) -> list[ProducerBatch]:
        """Return the batches whose `delivery.timeout.ms` is over, the oldest first.

        Waiting batches are removed from their queues; those in flight stay in flight. The caller calls `fail` for each, and
        then `refresh`.
        """
        return [batch for batch in self._incomplete.expired(now) if batch.in_flight or self._withdraw(batch)]

    def abort_undrained(self, error: Exception, now: float) -> list[ProducerBatch]:
        """Fail every batch that is not in flight, because its transaction is to be aborted, and return them."""
        dropped = self._withdraw_waiting()
        for batch in dropped:
            self.fail(batch, error)
            if batch.queue.gate == DrainGate.RENUMBER:  # no batch with a sequence number remains to be renumbered
                batch.queue.gate = DrainGate.OPEN
        self.refresh({batch.queue for batch in dropped}, now)
        return dropped

    def take_undrained(self, attributes: int, error: Exception, now: float) -> list[tuple[TopicPartition, int, bytes]]:
        """Remove and return every batch that is not in flight: its partition, number of records, and bytes.

        The bytes have no producer id and sequence; `attributes` is as in `ProducerBatch.write_header`. The batches are not
        reported as failed; only futures of single records or tables get `error`. Open batches are not compressed: close them
        before.
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
        """Remove and return all batches of a queue, the oldest first.

        The caller completes each of them, and then calls `refresh`.
        """
        return [batch for batch in list(queue.batches) if self._withdraw(batch)]

    def _withdraw_waiting(self) -> list[ProducerBatch]:
        return [batch for batch in self._incomplete.remaining() if not batch.in_flight and self._withdraw(batch)]

    def _withdraw(self, batch: ProducerBatch) -> bool:
        """Remove a batch from its queue; return False if the thread that opened it has dropped it meanwhile, without rows."""
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
        """Return the error of an expired batch. `obstacle` is the reason why it was not sent, if that is known."""
        tp = batch.topic_partition
        last = f" The last response: {batch.last_error}." if batch.last_error else obstacle
        return DeliveryTimeout(
            f"{batch.records_count} records for {tp} were not acknowledged within {now - batch.created:.1f} s "
            f"(kafka.delivery.timeout.ms), after {batch.attempts} failed attempts.{last} Check that the partition has a "
            "leader and enough in-sync replicas, or raise the timeout",
            topic=tp.topic,
            partition=tp.partition,
        )

    def abort(self, error: Exception) -> None:
        """Abort all batches with `error`, or with the error of an earlier call.

        All waits end, and no more rows are accepted. Buffers that the network may read are kept; those of waiting batches are
        released to the pool.
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
        """Release the buffers of batches in flight after `abort`: the network no longer reads them, and no response will come."""
        for queue in list(self._incomplete.queues.values()):
            for batch in list(queue.in_flight):
                self.remove_in_flight(batch)

    def _release(self, batch: ProducerBatch) -> None:
        buffer = batch.take_buffer()
        if buffer is not None:
            self._pool.release(buffer)
