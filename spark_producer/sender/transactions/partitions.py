"""The contents of a transaction: partitions, offsets of consumer groups, and acknowledged offsets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from spark_producer.accumulator import ProducerBatch
from spark_producer.common.cluster import Span, TopicPartition, TransactionVersion
from spark_producer.protocol.messages import NO_UUID
from spark_producer.sender.transactions.states import Operation

UNKNOWN_OFFSET = -1


class ConsumerGroup(NamedTuple):
    """A consumer group, and its member that has read the input of the transaction (KIP-447).

    Generation, member and instance fence a member that the group has replaced; brokers check them if they are set.
    """

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


class GroupOffset(NamedTuple):
    """The next offset of a group in one partition, the leader epoch of the last record read, and metadata."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""


Offsets = Mapping[TopicPartition, GroupOffset]


class GroupOffsets(NamedTuple):
    """The offsets of one group for the transaction."""

    group: ConsumerGroup
    offsets: Offsets


class PreparedResult(NamedTuple):
    """The result of `prepare`: a filled and open transaction, which any process with these values can end.

    `began_at` is the time of its first request, by the producer's clock; None if nothing was written.
    """

    transactional_id: str
    producer_id: int
    epoch: int
    transaction_version: TransactionVersion
    spans: tuple[Span, ...]
    began_at: float | None


class TransactionPartitions:
    """The contents of the current transaction. Only the I/O thread changes it."""

    def __init__(self) -> None:
        self.admitted: set[TopicPartition] = set()
        """the partitions that the coordinator has added (only with `EXPLICIT`)"""
        self.waiting: frozenset[TopicPartition] = frozenset()
        """the partitions with batches that wait until they are added (only with `EXPLICIT`)"""
        self.groups: set[str] = set()
        """the groups that the coordinator has added (only with `EXPLICIT`)"""
        self.offsets: list[Operation] = []
        """the calls whose `GroupOffsets` are not sent yet"""
        self.started = False
        """whether the transaction has begun at its coordinator"""
        self.may_have_started = False
        """whether it may have begun there, because a request had no response"""
        self.began_at: float | None = None
        """the time of the first request that begins the transaction at its coordinator, from which its timeout counts"""
        self.sealed = False
        """whether its commit was requested, after which it gets no more rows and failures"""
        self.unresolved = False
        """whether a batch with a sequence has failed, so that the epoch cannot be used again"""
        self._spans: dict[TopicPartition, tuple[int, int, int]] = {}
        self._topic_ids: dict[str, bytes] = {}
        """the id of each topic with acknowledged batches, as known when the first of them was sent"""

    @property
    def may_be_open(self) -> bool:
        """Whether the transaction is, or may be, open at its coordinator."""
        return self.started or self.may_have_started

    def record_start(self, now: float) -> None:
        """Set `began_at`, unless it is set: a request that begins the transaction at its coordinator is sent now."""
        if self.began_at is None:
            self.began_at = now

    def wrote(self, batch: ProducerBatch, base_offset: int) -> bool:
        """Record that a batch is in the log at this offset; `UNKNOWN_OFFSET` if the response lacks it.

        Return whether its topic has the same id as before, and the offsets of its partition increase. If not, rows that were
        acknowledged before are no longer there.
        """
        is_same = self._is_same_topic(batch)
        last = base_offset + batch.records_count - 1 if base_offset >= 0 else UNKNOWN_OFFSET
        known = self._spans.get(batch.topic_partition)
        if known is None:
            self._spans[batch.topic_partition] = base_offset, last, batch.records_count
            return is_same
        first, end, records = known
        self._spans[batch.topic_partition] = min(first, base_offset), max(end, last), records + batch.records_count
        return is_same and (base_offset > end or base_offset == UNKNOWN_OFFSET)

    def _is_same_topic(self, batch: ProducerBatch) -> bool:
        """Return whether the topic of a batch has the same id as that of earlier batches, as far as the ids are known."""
        topic = batch.topic_partition.topic
        known = self._topic_ids.get(topic, NO_UUID)
        if known == NO_UUID:
            self._topic_ids[topic] = batch.topic_id
        return known == NO_UUID or batch.topic_id in (known, NO_UUID)

    def spans(self) -> tuple[Span, ...]:
        """Return the acknowledged offsets by partition. The first offset is `UNKNOWN_OFFSET` if the offset of any batch is
        unknown."""
        return tuple(Span(*tp, *span) for tp, span in sorted(self._spans.items()))
