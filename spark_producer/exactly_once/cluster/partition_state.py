"""What the leaders of partitions say of open transactions: where each begins, and how far readers of committed records get."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

from spark_producer.common.cluster import TopicPartition
from spark_producer.common.error_codes import Code
from spark_producer.errors import broker_error
from spark_producer.exactly_once.cluster.broker_requests import TransactionAdmin, by_topic
from spark_producer.exactly_once.cluster.required_acls import Right, missing_right
from spark_producer.protocol import DESCRIBE_PRODUCERS, LIST_OFFSETS, AnyApi
from spark_producer.protocol.messages import (
    ActiveProducer,
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeProducersTopic,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

EARLIEST, LATEST = -2, -1
UNCOMMITTED, COMMITTED = 0, 1
"""The isolation levels. The latest offset that is committed is the last stable one."""


LOOKS = 4
"""So often a partition is looked at, within some 30 ms, before rows count as gone."""


class TransactionSpan(NamedTuple):
    """The rows of one transaction in one partition."""

    producer_id: int
    topic: str
    partition: int
    first_offset: int
    last_offset: int

    @property
    def topic_partition(self) -> TopicPartition:
        """Its partition."""
        return TopicPartition(self.topic, self.partition)


Producers: TypeAlias = dict[int, ActiveProducer] | None
"""The producers that a leader remembers, by id; None if the right to see them is missing."""


def transaction_key(row: ActiveProducer) -> tuple[int, int]:
    """Return what tells the open transaction of a producer from its next one: the epoch, and the offset at which it begins."""
    return row.producer_epoch, row.current_txn_start_offset


def producers(
    brokers: TransactionAdmin, partitions: Iterable[TopicPartition], deadline: float
) -> dict[TopicPartition, Producers]:
    """Return the producers that each leader remembers, by id; None where the right to see them (READ) is missing.

    A partition that does not exist is left out.
    """

    def question(asked: Sequence[TopicPartition]) -> tuple[AnyApi, Any]:
        topics = (DescribeProducersTopic(topic, tuple(numbers)) for topic, numbers in by_topic(asked).items())
        return DESCRIBE_PRODUCERS, DescribeProducersRequest(tuple(topics))

    def rows(answer: DescribeProducersResponse) -> Iterator[tuple[TopicPartition, Any]]:
        return (
            (TopicPartition(topic.name, row.partition_index), row)
            for topic in answer.topics
            for row in topic.partitions
        )

    found: dict[TopicPartition, Producers] = {}
    for tp, row in brokers.ask_leaders(partitions, question, rows, deadline).items():
        if row.error_code == Code.TOPIC_AUTHORIZATION_FAILED:
            found[tp] = None
        elif row.error_code:
            raise broker_error(row.error_code, f"the producers of {tp}")
        else:
            found[tp] = {each.producer_id: each for each in row.active_producers}
    return found


def offsets(
    brokers: TransactionAdmin,
    partitions: Iterable[TopicPartition],
    deadline: float,
    *,
    at: int = LATEST,
    isolation: int = COMMITTED,
) -> dict[TopicPartition, int]:
    """Return an offset of each partition that exists: by default the last stable one."""

    def question(asked: Sequence[TopicPartition]) -> tuple[AnyApi, Any]:
        topics = (
            ListOffsetsTopic(
                topic,
                tuple(
                    ListOffsetsPartition(each, brokers.epoch_of(TopicPartition(topic, each)), at) for each in numbers
                ),
            )
            for topic, numbers in by_topic(asked).items()
        )
        return LIST_OFFSETS, ListOffsetsRequest(isolation_level=isolation, topics=tuple(topics))

    def rows(answer: ListOffsetsResponse) -> Iterator[tuple[TopicPartition, Any]]:
        return (
            (TopicPartition(topic.name, row.partition_index), row)
            for topic in answer.topics
            for row in topic.partitions
        )

    found: dict[TopicPartition, int] = {}
    for tp, row in brokers.ask_leaders(partitions, question, rows, deadline).items():
        if row.error_code == Code.TOPIC_AUTHORIZATION_FAILED:
            raise missing_right(Right.WRITE_TOPIC, brokers.sink, brokers.client.user, tp.topic)
        if row.error_code:
            raise broker_error(row.error_code, f"the offsets of {tp}")
        found[tp] = row.offset
    return found


class StillOpen(NamedTuple):
    """Transactions whose end their partition does not show. `unclear`: another's may be in the way, and only READ would tell."""

    certain: list[TransactionSpan]
    unclear: list[TransactionSpan]


def still_open(
    brokers: TransactionAdmin,
    spans: Collection[TransactionSpan],
    deadline: float,
    told: dict[TopicPartition, Producers] | None = None,
) -> StillOpen:
    """Return those transactions whose end their partition does not show: one of the same producer is open there.

    `told` takes what their leaders have said.
    """
    seen = producers(brokers, (each.topic_partition for each in spans), deadline)
    if told is not None:
        told.update(seen)
    unseen = {tp for tp, known in seen.items() if known is None}
    stable = offsets(brokers, unseen, deadline) if unseen else {}
    found = StillOpen([], [])
    for each in spans:
        known = seen.get(each.topic_partition, {})
        if known is None:
            if stable.get(each.topic_partition, each.last_offset + 1) <= each.first_offset:
                found.unclear.append(each)
        elif (row := known.get(each.producer_id)) is not None and 0 <= row.current_txn_start_offset <= each.last_offset:
            found.certain.append(each)
    return found


class Uncommittable(NamedTuple):
    """Open transactions that must not be committed, by what their partitions say (R7).

    `older_hanging`: an older one of the same producer hangs there, and would be decided too. `gone`: it is not open there from
    its first row on, so its rows are no longer there, as in a topic that was created again.
    """

    older_hanging: list[TransactionSpan]
    gone: list[TransactionSpan]


def find_uncommittable(brokers: TransactionAdmin, spans: Collection[TransactionSpan], deadline: float) -> Uncommittable:
    """Return those transactions that must not be committed. They are open, and all their rows are acknowledged.

    A leader remembers at which offset a producer's open transaction begins, for as long as it is open: no election, restart or
    expiry of producer ids changes it. What seems to be gone is looked at again, with leaders that are looked for anew.

    Raises:
        BrokerError: only the right to READ the topic would tell.
    """
    left, found = list(spans), Uncommittable([], [])
    for number in brokers.attempts(deadline, "what its partitions say of its transactions"):
        found = _unfit(brokers, left, deadline)
        if found.older_hanging or not found.gone or number >= LOOKS:
            break
        left = found.gone
        brokers.forget_leaders(each.topic_partition for each in left)
    return found


def _unfit(brokers: TransactionAdmin, spans: Collection[TransactionSpan], deadline: float) -> Uncommittable:
    seen = producers(brokers, (each.topic_partition for each in spans), deadline)
    unseen = {tp for tp, known in seen.items() if known is None}
    stable = offsets(brokers, unseen, deadline) if unseen else {}
    found = Uncommittable([], [])
    for each in spans:
        known = seen.get(each.topic_partition, {})
        if known is not None:
            row = known.get(each.producer_id)
            begins = -1 if row is None else row.current_txn_start_offset
            if 0 <= begins < each.first_offset:
                found.older_hanging.append(each)
            elif begins != each.first_offset:
                found.gone.append(each)
        elif stable.get(each.topic_partition, each.last_offset + 1) < each.first_offset:
            # Somebody's transaction is open before ours. It may well be another's, and only READ tells.
            raise missing_right(Right.READ_TOPIC, brokers.sink, brokers.client.user, each.topic)
        elif stable.get(each.topic_partition) != each.first_offset:
            found.gone.append(each)
    return found
