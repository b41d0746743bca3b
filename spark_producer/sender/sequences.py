"""Assigns sequence numbers to batches, and resolves the sequences after a failed batch (KIP-98, KIP-360).

`produce_responses` interprets the error codes; this module only changes the sequences.

A batch keeps its sequence through all retries, so that brokers drop duplicates and reject gaps. When a batch fails, its
partition is *unresolved*: batches that have a sequence are sent one at a time, and their responses show whether the failed one
is in the log, while new batches wait. If the broker finds a gap, or no batch with a sequence is left, the epoch is bumped and
the partition counts from 0 again. A batch gets a new sequence only if its old one was rejected for a gap and the partition has
nothing in flight, so that it is never written under both (the Java client rewrites batches that are still in flight). The same
applies when records are removed from a rejected batch, since all following batches would then have a gap before them.
"""

from __future__ import annotations

from spark_producer.accumulator import NO_IDENTITY, DrainGate, PartitionQueue, ProducerBatch
from spark_producer.record.batch_v2 import NO_SEQUENCE, TRANSACTIONAL_BIT
from spark_producer.record.sequence_numbers import add_to_sequence, is_later
from spark_producer.sender.identity import ProducerIdentity


class Sequencer:
    """Assigns sequence numbers under the producer's identity. The queue of a partition holds its numbers."""

    def __init__(self, identity: ProducerIdentity, *, transactional: bool = False) -> None:
        """In a transaction no partition is reset: a failed batch ends the transaction, and the next one has another epoch."""
        self.enabled = identity.enabled
        self._transactional = transactional
        self._attributes = TRANSACTIONAL_BIT if transactional else 0
        self._identity = identity
        self._waiting_for_id: list[PartitionQueue] = []

    def restart_waiting(self) -> list[PartitionQueue]:
        """Reset the partitions that have waited for a new producer id, and return them."""
        waiting, self._waiting_for_id = self._waiting_for_id, []
        for queue in waiting:
            self._restart(queue)
        return waiting

    def stamp(self, batch: ProducerBatch) -> None:
        """Assign a sequence to the batch, if it has none yet, and write its header."""
        if self.enabled and batch.base_sequence == NO_SEQUENCE:
            queue = batch.queue
            batch.identity = queue.identity
            batch.base_sequence = queue.next_sequence
            queue.next_sequence = add_to_sequence(batch.base_sequence, batch.records_count)
        batch.write_header(self._attributes)

    def acknowledged(self, batch: ProducerBatch, base_offset: int) -> None:
        """Record that the batch is in the log, even if it has expired before."""
        queue = batch.queue
        if batch.base_sequence == NO_SEQUENCE or batch.identity is not queue.identity:
            return
        last = add_to_sequence(batch.base_sequence, batch.records_count - 1)
        if queue.last_acked < 0 or is_later(last, queue.last_acked):
            queue.last_acked = last
        queue.known_to_broker = True
        if base_offset >= 0:
            queue.last_acked_offset = max(queue.last_acked_offset, base_offset + batch.records_count - 1)

    def batch_failed(self, batch: ProducerBatch) -> None:
        """Record that the batch has failed. If it had a sequence, its partition is unresolved."""
        queue = batch.queue
        if batch.base_sequence == NO_SEQUENCE:
            return
        if queue.gate == DrainGate.RENUMBER:
            queue.in_doubt = True
        elif not queue.gate and not self._transactional:
            queue.gate = DrainGate.SEQUENCED_ONLY

    def records_removed(self, batch: ProducerBatch, records: int) -> None:
        """Record that a rejected batch, neither queued nor in flight, had `records` records, and has fewer now.

        If it is the last one with a sequence, the next batch continues from its new end. Otherwise the batches after it were sent
        with sequences that leave a gap now: brokers reject them, and then they are renumbered. Call this before the batch is
        queued again.
        """
        queue = batch.queue
        if batch.base_sequence == NO_SEQUENCE or batch.identity is not queue.identity:
            return
        last = add_to_sequence(batch.base_sequence, records) == queue.next_sequence
        if last and not queue.has_sequenced():
            queue.next_sequence = add_to_sequence(batch.base_sequence, batch.records_count)
        elif not queue.gate or (queue.gate == DrainGate.RENUMBER and batch.number < queue.renumber_from_batch):
            if not queue.gate:
                queue.in_doubt = False
            queue.gate = DrainGate.RENUMBER
            queue.renumber_from_batch, queue.renumber_from_sequence = batch.number, batch.base_sequence

    def on_gap(self, batch: ProducerBatch) -> bool:
        """Record that the broker rejected the sequence, or no longer knows the producer. Return whether to retry the batch.

        If no earlier batch is queued or in flight, only a new epoch helps, which a transaction cannot have; otherwise the earlier
        batch must complete first.
        """
        if batch.queue.has_earlier(batch) or batch.queue.gate == DrainGate.RENUMBER:
            return True
        if not self._transactional:
            batch.queue.gate = DrainGate.SHUT
        return not self._transactional

    def recreated(self, queue: PartitionQueue) -> None:
        """Record that the partition is a new log, which does not know this producer.

        The next batch is sent alone until it is acknowledged, because the new log accepts any first sequence. If no batch has a
        sequence, they begin at 0 in the next epoch: batches that reached the new log before this was known may have used the
        first sequences of the current one. A batch that has a sequence keeps it, since a late copy could be written twice.
        """
        queue.known_to_broker = False
        used = queue.identity is not NO_IDENTITY and not queue.has_sequenced()
        if used and not queue.gate and not self._transactional:
            self._bump(queue)

    def review(self, queue: PartitionQueue) -> None:
        """Open the partition's gate after responses if the failed batches are resolved; reset it if they cannot be."""
        if not queue.gate or queue.in_flight:
            return
        if queue.gate == DrainGate.RENUMBER:
            self._renumber(queue)
            return
        if queue.gate == DrainGate.SEQUENCED_ONLY:
            batches = queue.batches
            if batches and batches[0].base_sequence != NO_SEQUENCE:
                return
            if add_to_sequence(queue.last_acked, 1) == queue.next_sequence:
                queue.gate = DrainGate.OPEN
                return
        self._bump(queue)

    def _bump(self, queue: PartitionQueue) -> None:
        """Reset the partition in the next epoch, or the current one if it is newer; after the last epoch, wait for a new id."""
        if queue.identity is self._identity.current and not self._identity.needed:
            self._identity.bump()
        if self._identity.needed:
            queue.gate = DrainGate.SHUT
            if queue not in self._waiting_for_id:
                self._waiting_for_id.append(queue)
        else:
            self._restart(queue)

    def _renumber(self, queue: PartitionQueue) -> None:
        """Renumber the batch that has lost records, and all after it, once all older batches are complete.

        Brokers have rejected all of them, or have not received them. Only a batch without a response could have a late copy,
        which might fit by chance: then a new epoch fences it. A transaction cannot have one; there the next gap ends it.
        """
        if queue.batches and queue.batches[0].number < queue.renumber_from_batch:
            return
        with queue.lock:  # no thread appends meanwhile
            in_doubt = queue.in_doubt or any(batch.in_doubt for batch in queue.batches)
        if not in_doubt and add_to_sequence(queue.last_acked, 1) == queue.renumber_from_sequence:
            queue.next_sequence = queue.renumber_from_sequence
            self._number(queue)
        elif self._transactional:
            queue.gate = DrainGate.OPEN
        else:
            self._bump(queue)

    def _restart(self, queue: PartitionQueue) -> None:
        """Count from 0, beginning with the batches that had a sequence."""
        queue.begin(self._identity.current)
        self._number(queue)

    def _number(self, queue: PartitionQueue) -> None:
        """Assign new sequences to the batches that had one, and open the gate of their queue."""
        with queue.lock:  # no thread appends meanwhile
            for batch in queue.batches:
                if batch.base_sequence == NO_SEQUENCE:
                    break
                batch.identity = queue.identity
                batch.base_sequence = queue.next_sequence
                queue.next_sequence = add_to_sequence(queue.next_sequence, batch.records_count)
        queue.gate = DrainGate.OPEN
