"""The producer's id, epoch and sequence numbers (spec: kafka_producer.md §2.13).

Owns: which sequence a batch gets. Must not know: what an answer does to a batch (`sender`).

A batch keeps its sequence through every retry, so the broker can drop duplicates and refuse gaps. A producer that lost a
batch for good is thrown away whole, and the next one starts with a new id: so a gap is never papered over.
"""

from __future__ import annotations

from spark_producer.accumulator import ProducerBatch, TopicPartition
from spark_producer.record.batch_v2 import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE

SEQUENCE_MASK = 0x7FFFFFFF


class ProducerState:
    """Producer id and epoch once the broker gave them, and the next sequence of every partition."""

    def __init__(self, *, enabled: bool) -> None:
        self.enabled = enabled
        self.producer_id = NO_PRODUCER_ID
        self.producer_epoch = NO_PRODUCER_EPOCH
        self._next: dict[TopicPartition, int] = {}

    @property
    def needs_id(self) -> bool:
        """Whether nothing may be sent before the broker gave an id."""
        return self.enabled and self.producer_id == NO_PRODUCER_ID

    def stamp(self, batch: ProducerBatch) -> None:
        """Give the batch its sequence, once, and seal it."""
        if self.enabled and batch.base_sequence == NO_SEQUENCE:
            batch.base_sequence = self._next.get(batch.place, 0)
            # Sequences wrap from 2^31 - 1 to 0.
            self._next[batch.place] = batch.base_sequence + batch.records_count & SEQUENCE_MASK
        batch.seal(self.producer_id, self.producer_epoch)
