"""The producer's id, epoch and sequence numbers (spec: kafka_producer.md §2.13; KIP-98, KIP-360).

Owns: which sequence a batch gets, what a lost batch means for those behind it, and the bump of the epoch.
Must not know: error codes, requests, time.

A batch keeps its sequence through every retry, so that brokers drop duplicates and refuse gaps. When a batch is lost for
good its partition is *unresolved*: batches that have a sequence go on, one at a time, and tell by their answers whether the
lost one is in the log; new batches wait. If the broker sees a gap, or nobody is left to ask, the epoch is bumped and the
partition counts from 0 again. A batch gets a new sequence only when its old one was refused for a gap, with nothing of the
partition in flight: so none is ever written under both (the Java client rewrites batches that are still under way).
"""

from __future__ import annotations

from spark_producer.accumulator import NO_IDENTITY, Gate, Identity, PartitionQueue, ProducerBatch, RecordAccumulator
from spark_producer.record.batch_v2 import NO_SEQUENCE

SEQUENCE_MASK = 0x7FFFFFFF
LAST_EPOCH = 0x7FFF


def add(sequence: int, records: int) -> int:
    """Sequences wrap from 2^31 - 1 to 0."""
    return (sequence + records) & SEQUENCE_MASK


def is_later(one: int, other: int) -> bool:
    """Whether a sequence comes behind another one, also across the wrap: the shorter way round decides."""
    return 0 < (one - other) & SEQUENCE_MASK < 1 << 30


class ProducerState:
    """Producer id and epoch, and the rules of sequences. The numbers of a partition are kept in its queue."""

    def __init__(self, accumulator: RecordAccumulator, *, enabled: bool) -> None:
        self.enabled = enabled
        self.identity = NO_IDENTITY
        self._accumulator = accumulator
        self._awaiting_id: list[PartitionQueue] = []

    @property
    def needs_id(self) -> bool:
        """Whether nothing may be sent before the broker gave an id."""
        return self.enabled and self.identity is NO_IDENTITY

    def received_id(self, producer_id: int, epoch: int) -> list[PartitionQueue]:
        """The broker gave an id; returns the partitions that have waited for it."""
        self._adopt(Identity(producer_id, epoch))
        waiting, self._awaiting_id = self._awaiting_id, []
        for queue in waiting:
            self._restart(queue)
        return waiting

    def stamp(self, batch: ProducerBatch) -> None:
        """Give the batch its sequence, once, and seal it."""
        if self.enabled and batch.base_sequence == NO_SEQUENCE:
            queue = batch.queue
            batch.identity = queue.identity
            batch.base_sequence = queue.next_sequence
            queue.next_sequence = (batch.base_sequence + batch.records_count) & SEQUENCE_MASK
        batch.seal()

    def acknowledged(self, batch: ProducerBatch, base_offset: int) -> None:
        """The batch is in the log, even if it was given up before."""
        queue = batch.queue
        if batch.base_sequence == NO_SEQUENCE or batch.identity is not queue.identity:
            return
        last = (batch.base_sequence + batch.records_count - 1) & SEQUENCE_MASK
        if queue.last_acked < 0 or is_later(last, queue.last_acked):
            queue.last_acked = last
        queue.acquainted = True
        if base_offset >= 0:
            queue.last_acked_offset = max(queue.last_acked_offset, base_offset + batch.records_count - 1)

    def lost(self, batch: ProducerBatch) -> None:
        """The batch was given up. If it had a sequence, its partition is unresolved."""
        if batch.base_sequence != NO_SEQUENCE and not batch.queue.gate:
            batch.queue.gate = Gate.SEQUENCED_ONLY

    def gap(self, batch: ProducerBatch) -> None:
        """The broker refused the sequence, or knows the producer no more. If no earlier batch is under way, only another
        epoch helps; else the earlier one is waited for."""
        if not batch.queue.has_earlier(batch):
            batch.queue.gate = Gate.SHUT

    def review(self, queue: PartitionQueue) -> None:
        """After answers: open the partition's gate if the lost batches are resolved, or begin anew if they cannot be."""
        if not queue.gate or queue.in_flight:
            return
        if queue.gate == Gate.SEQUENCED_ONLY:
            batches = queue.batches
            if batches and batches[0].base_sequence != NO_SEQUENCE:
                return
            if add(queue.last_acked, 1) == queue.next_sequence:
                queue.gate = Gate.OPEN
                return
        self._bump(queue)

    def _bump(self, queue: PartitionQueue) -> None:
        """One epoch further; beyond the last one a new id is asked for. An epoch that is already newer will do."""
        if queue.identity is self.identity and not self.needs_id:
            if self.identity.epoch >= LAST_EPOCH:
                self._adopt(NO_IDENTITY)
            else:
                self._adopt(self.identity._replace(epoch=self.identity.epoch + 1))
        if self.needs_id:
            queue.gate = Gate.SHUT
            if queue not in self._awaiting_id:
                self._awaiting_id.append(queue)
        else:
            self._restart(queue)

    def _adopt(self, identity: Identity) -> None:
        self.identity = self._accumulator.current_identity = identity

    def _restart(self, queue: PartitionQueue) -> None:
        """Count from 0, beginning with the batches that had a sequence before."""
        queue.begin(self.identity)
        with queue.lock:  # nobody appends meanwhile
            for batch in queue.batches:
                if batch.base_sequence == NO_SEQUENCE:
                    break
                batch.identity = self.identity
                batch.base_sequence = queue.next_sequence
                queue.next_sequence = add(queue.next_sequence, batch.records_count)
        queue.gate = Gate.OPEN
