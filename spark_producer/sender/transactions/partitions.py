"""What one transaction has in it: partitions, offsets of groups, and what was acknowledged where."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from spark_producer.accumulator import ProducerBatch
from spark_producer.common.cluster import Span, Style, TopicPartition
from spark_producer.sender.transactions.states import Operation

UNKNOWN_OFFSET = -1


class ConsumerGroup(NamedTuple):
    """A consumer group, and the member of it that has read what the transaction is made of (KIP-447).

    Generation, member and instance fence off a member that the group has replaced; brokers check them if they are given.
    """

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


class GroupOffset(NamedTuple):
    """The offset from which a group reads on in one partition, the leader epoch of the last record read, and a note."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""


Offsets = Mapping[TopicPartition, GroupOffset]


class GroupOffsets(NamedTuple):
    """The offsets of one group that go into the transaction."""

    group: ConsumerGroup
    offsets: Offsets


class PreparedResult(NamedTuple):
    """A transaction that is filled and left open, to be ended by whoever has these values.

    `began_at` is when it was begun at its coordinator, by the producer's clock; None if nothing was written.
    """

    transactional_id: str
    producer_id: int
    epoch: int
    style: Style
    spans: tuple[Span, ...]
    began_at: float | None


class TransactionPartitions:
    """The contents of the transaction under way. Only the I/O thread changes it."""

    def __init__(self) -> None:
        self.admitted: set[TopicPartition] = set()
        """the partitions that the coordinator has added (explicit style)"""
        self.waiting: frozenset[TopicPartition] = frozenset()
        """the partitions with batches that wait until they are added (explicit style)"""
        self.groups: set[str] = set()
        """the groups that the coordinator has added (explicit style)"""
        self.offsets: list[Operation] = []
        """the calls whose `GroupOffsets` are still to be sent"""
        self.started = False
        """whether the coordinator knows that the transaction has begun"""
        self.may_have_started = False
        """whether it may know, because no answer came"""
        self.began_at: float | None = None
        """when the first request went out that begins the transaction at its coordinator: its timeout counts from then on"""
        self.sealed = False
        """whether it was asked to be committed, so that neither rows nor failures which come later have a part in it"""
        self.unresolved = False
        """whether a batch that has a sequence was given up, so that the epoch cannot be used again"""
        self._spans: dict[TopicPartition, tuple[int, int, int]] = {}

    @property
    def may_be_open(self) -> bool:
        """Whether there is, or may be, something to be ended at the coordinator."""
        return self.started or self.may_have_started

    def begins(self, now: float) -> None:
        """Note that a request goes out that begins the transaction at its coordinator, if it has not begun."""
        if self.began_at is None:
            self.began_at = now

    def wrote(self, batch: ProducerBatch, base_offset: int) -> None:
        """Note that a batch is in the log from this offset on; `UNKNOWN_OFFSET` if the broker does not say where."""
        last = base_offset + batch.records_count - 1 if base_offset >= 0 else UNKNOWN_OFFSET
        known = self._spans.get(batch.topic_partition)
        if known is None:
            self._spans[batch.topic_partition] = base_offset, last, batch.records_count
        else:
            first, end, records = known
            self._spans[batch.topic_partition] = min(first, base_offset), max(end, last), records + batch.records_count

    def spans(self) -> tuple[Span, ...]:
        """Return what was acknowledged, by partition; the first offset is `UNKNOWN_OFFSET` if that of any batch is."""
        return tuple(Span(*tp, *span) for tp, span in sorted(self._spans.items()))
