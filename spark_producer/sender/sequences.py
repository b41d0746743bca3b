"""The sequence numbers: which one a batch gets, and what a lost batch means for those behind it (KIP-98, KIP-360).

`answers` decides what an error code says about a sequence; this module does only what follows from it.

A batch keeps its sequence through every retry, so that brokers drop duplicates and refuse gaps. When a batch is lost for good,
its partition is *unresolved*: batches that have a sequence are sent, one at a time, and their answers show whether the lost one
is in the log, while new batches wait. If the broker sees a gap, or no batch with a sequence is left, the epoch is bumped and the
partition counts from 0 again. A batch gets a new sequence only when its old one was refused for a gap and nothing of the
partition is in flight, so that none is ever written under both (the Java client rewrites batches that are still under way).
The same holds when records are taken out of a refused batch, after which all that follow would be one gap away.
"""

from __future__ import annotations

from spark_producer.accumulator import NO_IDENTITY, DrainGate, PartitionQueue, ProducerBatch
from spark_producer.record.batch_v2 import NO_SEQUENCE, TRANSACTIONAL_BIT
from spark_producer.record.sequence_numbers import add_to_sequence, is_later
from spark_producer.sender.identity import ProducerIdentity


class Sequencer:
    """Numbers batches under the producer's identity. A partition's queue keeps its numbers."""

    def __init__(self, identity: ProducerIdentity, *, transactional: bool = False) -> None:
        """In a transaction no partition begins anew: what is lost ends the transaction, and the next one has another epoch."""
        self.enabled = identity.enabled
        self._transactional = transactional
        self._attributes = TRANSACTIONAL_BIT if transactional else 0
        self._identity = identity
        self._awaiting_id: list[PartitionQueue] = []

    def restart_waiting(self) -> list[PartitionQueue]:
        """Begin anew in the partitions that have waited for the id that the broker gave, and return them."""
        waiting, self._awaiting_id = self._awaiting_id, []
        for queue in waiting:
            self._restart(queue)
        return waiting

    def stamp(self, batch: ProducerBatch) -> None:
        """Give the batch its sequence, if it has none yet, and seal it."""
        if self.enabled and batch.base_sequence == NO_SEQUENCE:
            queue = batch.queue
            batch.identity = queue.identity
            batch.base_sequence = queue.next_sequence
            queue.next_sequence = add_to_sequence(batch.base_sequence, batch.records_count)
        batch.write_header(self._attributes)

    def acknowledged(self, batch: ProducerBatch, base_offset: int) -> None:
        """Note that the batch is in the log, even if it was given up before."""
        queue = batch.queue
        if batch.base_sequence == NO_SEQUENCE or batch.identity is not queue.identity:
            return
        last = add_to_sequence(batch.base_sequence, batch.records_count - 1)
        if queue.last_acked < 0 or is_later(last, queue.last_acked):
            queue.last_acked = last
        queue.known_to_broker = True
        if base_offset >= 0:
            queue.last_acked_offset = max(queue.last_acked_offset, base_offset + batch.records_count - 1)

    def lost(self, batch: ProducerBatch) -> None:
        """Note that the batch was given up. If it had a sequence, its partition is unresolved."""
        queue = batch.queue
        if batch.base_sequence == NO_SEQUENCE:
            return
        if queue.gate == DrainGate.RENUMBER:
            queue.in_doubt = True
        elif not queue.gate and not self._transactional:
            queue.gate = DrainGate.SEQUENCED_ONLY

    def taken_out(self, batch: ProducerBatch, records: int) -> None:
        """Note that a refused batch, in neither queue nor flight, had so many records, and has fewer now.

        The last one that has a sequence leaves it to the next batch. What is behind other ones was sent with sequences that make
        a gap now: brokers refuse it, and then all of it is numbered anew. Call this before the batch is queued again.
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

    def gap(self, batch: ProducerBatch) -> bool:
        """Note that the broker refused the sequence, or no longer knows the producer. Return whether to send the batch again.

        If no earlier batch is queued or in flight, only another epoch helps, which a transaction cannot have; else the earlier
        batch must end first.
        """
        if batch.queue.has_earlier(batch) or batch.queue.gate == DrainGate.RENUMBER:
            return True
        if not self._transactional:
            batch.queue.gate = DrainGate.SHUT
        return not self._transactional

    def recreated(self, queue: PartitionQueue) -> None:
        """Note that the partition is a new log, which does not know this producer.

        The next batch goes alone until it is acknowledged, because the new log takes any first sequence. If no batch has a
        sequence, they begin at 0, in the next epoch: batches that the new log got before this was known may have used the
        first sequences of the present one. A batch that has a sequence keeps it, or a late copy of it could be written twice.
        """
        queue.known_to_broker = False
        begun = queue.identity is not NO_IDENTITY and not queue.has_sequenced()
        if begun and not queue.gate and not self._transactional:
            self._bump(queue)

    def review(self, queue: PartitionQueue) -> None:
        """Open the partition's gate after answers if the lost batches are resolved, or begin anew if they cannot be."""
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
        """Begin anew in the next epoch, or in the current one if it is newer; after the last epoch, wait for a new id."""
        if queue.identity is self._identity.current and not self._identity.needed:
            self._identity.bump()
        if self._identity.needed:
            queue.gate = DrainGate.SHUT
            if queue not in self._awaiting_id:
                self._awaiting_id.append(queue)
        else:
            self._restart(queue)

    def _renumber(self, queue: PartitionQueue) -> None:
        """Number the batch that has lost records, and those behind it, once all that are older have ended.

        Brokers have refused them all, or were never asked. Only of a batch that got no answer could a late copy turn up, and fit
        in by chance: then a new epoch shuts it out. A transaction cannot have one; there the next gap ends it.
        """
        if queue.batches and queue.batches[0].number < queue.renumber_from_batch:
            return
        with queue.lock:  # no thread appends meanwhile
            doubt = queue.in_doubt or any(batch.in_doubt for batch in queue.batches)
        if not doubt and add_to_sequence(queue.last_acked, 1) == queue.renumber_from_sequence:
            queue.next_sequence = queue.renumber_from_sequence
            self._number(queue)
        elif self._transactional:
            queue.gate = DrainGate.OPEN
        else:
            self._bump(queue)

    def _restart(self, queue: PartitionQueue) -> None:
        """Count from 0, beginning with the batches that had a sequence before."""
        queue.begin(self._identity.current)
        self._number(queue)

    def _number(self, queue: PartitionQueue) -> None:
        """Give the batches that had a sequence the next ones of their queue, and open its gate."""
        with queue.lock:  # no thread appends meanwhile
            for batch in queue.batches:
                if batch.base_sequence == NO_SEQUENCE:
                    break
                batch.identity = queue.identity
                batch.base_sequence = queue.next_sequence
                queue.next_sequence = add_to_sequence(queue.next_sequence, batch.records_count)
        queue.gate = DrainGate.OPEN
