"""The state of partitions at their leaders: open transactions with their first offsets, and the last stable offset."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeAlias

from spark_producer.common.cluster import TopicPartition
from spark_producer.common.error_codes import Code
from spark_producer.common.isolation_level import IsolationLevel
from spark_producer.common.offsets import LATEST
from spark_producer.errors import broker_error
from spark_producer.exactly_once.cluster.broker_requests import TransactionAdmin, by_topic
from spark_producer.exactly_once.cluster.early_requests import MAX_AGE_S, EarlyRequest
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

MAX_READS = 4
"""Number of reads of a partition, within some 30 ms, before rows count as gone."""


class TransactionSpan(NamedTuple):
    """The rows of one transaction in one partition."""

    producer_id: int
    topic: str
    partition: int
    first_offset: int
    last_offset: int

    @property
    def topic_partition(self) -> TopicPartition:
        """Return the topic-partition of the rows."""
        return TopicPartition(self.topic, self.partition)


Producers: TypeAlias = dict[int, ActiveProducer] | None
"""The producers that a leader remembers, by id; None if the right to see them is missing."""


def transaction_key(row: ActiveProducer) -> tuple[int, int]:
    """Return the epoch and first offset of a producer's open transaction, which distinguish it from the next one."""
    return row.producer_epoch, row.current_txn_start_offset


def _rows(response: DescribeProducersResponse | ListOffsetsResponse) -> Iterator[tuple[TopicPartition, Any]]:
    return (
        (TopicPartition(topic.name, row.partition_index), row) for topic in response.topics for row in topic.partitions
    )


def producers(
    brokers: TransactionAdmin, partitions: Iterable[TopicPartition], deadline: float
) -> dict[TopicPartition, Producers]:
    """Return the producers that each leader remembers, by id; None where the right to see them (READ) is missing.

    A partition that does not exist is left out.
    """

    found: dict[TopicPartition, Producers] = {}
    for tp, row in brokers.request_leaders(partitions, _producers_request, _rows, deadline).items():
        if row.error_code == Code.TOPIC_AUTHORIZATION_FAILED:
            found[tp] = None
        elif row.error_code:
            raise broker_error(row.error_code, f"the producers of {tp}")
        else:
            found[tp] = {each.producer_id: each for each in row.active_producers}
    return found


def ask_producers(brokers: TransactionAdmin, partitions: Iterable[TopicPartition]) -> list[EarlyRequest]:
    """Send the requests of `producers` early, to the leaders that are known, and return them."""
    return brokers.ask_leaders(partitions, _producers_request)


def _producers_request(partitions: Sequence[TopicPartition]) -> tuple[AnyApi, DescribeProducersRequest]:
    topics = (DescribeProducersTopic(topic, tuple(numbers)) for topic, numbers in by_topic(partitions).items())
    return DESCRIBE_PRODUCERS, DescribeProducersRequest(tuple(topics))


def offsets(
    brokers: TransactionAdmin,
    partitions: Iterable[TopicPartition],
    deadline: float,
    *,
    at: int = LATEST,
    isolation: int = IsolationLevel.READ_COMMITTED,
) -> dict[TopicPartition, int]:
    """Return an offset of each partition that exists: by default the last stable offset."""

    found: dict[TopicPartition, int] = {}
    for tp, row in brokers.request_leaders(
        partitions, partial(offsets_request, brokers, at, isolation), _rows, deadline
    ).items():
        if row.error_code == Code.TOPIC_AUTHORIZATION_FAILED:
            raise missing_right(Right.WRITE_TOPIC, brokers.sink, brokers.client.user, tp.topic)
        if row.error_code:
            raise broker_error(row.error_code, f"the offsets of {tp}")
        found[tp] = row.offset
    return found


def offsets_request(
    brokers: TransactionAdmin, at: int, isolation: int, partitions: Sequence[TopicPartition]
) -> tuple[AnyApi, ListOffsetsRequest]:
    """Return the request for an offset of each partition; a deposed leader that does not know it refuses it."""
    topics = (
        ListOffsetsTopic(
            topic,
            tuple(ListOffsetsPartition(each, brokers.epoch_of(TopicPartition(topic, each)), at) for each in numbers),
        )
        for topic, numbers in by_topic(partitions).items()
    )
    return LIST_OFFSETS, ListOffsetsRequest(isolation_level=isolation, topics=tuple(topics))


class StillOpen(NamedTuple):
    """Transactions without a marker in their partition. An `unclear` one may be that of another producer: to know this takes the
    right READ."""

    certain: list[TransactionSpan]
    unclear: list[TransactionSpan]


def still_open(
    brokers: TransactionAdmin,
    spans: Collection[TransactionSpan],
    deadline: float,
    collected: dict[TopicPartition, Producers] | None = None,
) -> StillOpen:
    """Return those of `spans` whose partition lacks their marker, since a transaction of the same producer is open there.

    `collected` is filled with the producers that leaders report.
    """
    seen = producers(brokers, (each.topic_partition for each in spans), deadline)
    if collected is not None:
        collected.update(seen)
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
    """Open transactions that must not be committed, by the state of their partitions (R7).

    `older_hanging`: an older transaction of the same producer hangs there, and would be committed too. `gone`: the transaction is
    not open there from its first row on, so its rows are no longer there, as in a topic that was created again.
    """

    older_hanging: list[TransactionSpan]
    gone: list[TransactionSpan]


def find_uncommittable(brokers: TransactionAdmin, spans: Collection[TransactionSpan], deadline: float) -> Uncommittable:
    """Return those transactions that must not be committed. They are open, and all their rows are acknowledged.

    A leader remembers the first offset of a producer's open transaction as long as it is open: no election, restart or expiry of
    producer ids changes it. Rows that seem to be gone are checked again, with leaders that are looked up again. All are checked
    once more if one leader took long, as in an election: others have answered before it, and their topics may be gone meanwhile.

    Raises:
        BrokerError: READ on the topic is missing, and only it would show the cause.
    """
    clock = brokers.client.clock
    left, found, began = list(spans), Uncommittable([], []), clock()
    for number in brokers.attempts(deadline, "the state of its transactions in the partitions"):
        found = _find_uncommittable(brokers, left, deadline)
        took_long = not number and clock() - began > MAX_AGE_S
        if found.older_hanging or number >= MAX_READS or not (found.gone or took_long):
            break
        brokers.forget_leaders(each.topic_partition for each in found.gone)
        left = list(spans) if took_long else found.gone
    return found


def _find_uncommittable(
    brokers: TransactionAdmin, spans: Collection[TransactionSpan], deadline: float
) -> Uncommittable:
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
            # A transaction is open before this one. It may be another producer's; only READ shows that.
            raise missing_right(Right.READ_TOPIC, brokers.sink, brokers.client.user, each.topic)
        elif stable.get(each.topic_partition) != each.first_offset:
            found.gone.append(each)
    return found
