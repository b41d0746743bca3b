"""Builds the request messages of a transaction, each with the API versions of the transaction version."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from typing import NamedTuple

from spark_producer.accumulator import NO_IDENTITY, ProducerIdAndEpoch
from spark_producer.common.cluster import TopicPartition, TransactionVersion
from spark_producer.protocol import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    END_TXN,
    FIND_COORDINATOR,
    INIT_PRODUCER_ID,
    TXN_OFFSET_COMMIT,
    AnyApi,
    Api,
)
from spark_producer.protocol.messages import InitProducerIdRequest, ProduceRequest, ProduceResponse
from spark_producer.protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    EndTxnRequest,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from spark_producer.sender.transactions.partitions import GroupOffsets

EXPLICIT_PRODUCE = 11
"""Maximum version of Produce that does not add partitions to the transaction."""

APIS = frozenset(
    api.key
    for api in (
        FIND_COORDINATOR, INIT_PRODUCER_ID, ADD_PARTITIONS_TO_TXN, ADD_OFFSETS_TO_TXN, END_TXN, TXN_OFFSET_COMMIT,
    )
)  # fmt: skip
"""The APIs of coordinators, by key."""

RAISE_EPOCH = INIT_PRODUCER_ID._replace(name="InitProducerId with the epoch in use (KIP-360)", min_version=3)
END = {
    TransactionVersion.EXPLICIT: END_TXN._replace(max_version=4),
    TransactionVersion.IMPLICIT: END_TXN._replace(name="EndTxn of transaction.version 2", min_version=5),
}
COMMIT_OFFSETS = {
    TransactionVersion.EXPLICIT: TXN_OFFSET_COMMIT._replace(max_version=4),
    TransactionVersion.IMPLICIT: TXN_OFFSET_COMMIT._replace(
        name="TxnOffsetCommit of transaction.version 2", min_version=5
    ),
}
"""The APIs of each transaction version. A transaction never mixes them, since brokers choose
their rules by the version of each request (KIP-890)."""


class ApiRequest(NamedTuple):
    """A request: its API, limited to the API versions of the transaction version, and its message."""

    api: AnyApi
    body: tuple[object, ...]


def produce_apis(
    produce: Api[ProduceRequest, ProduceResponse],
) -> dict[TransactionVersion, Api[ProduceRequest, ProduceResponse]]:
    """Return `produce`, limited to the API versions of each transaction version."""
    return {
        TransactionVersion.EXPLICIT: produce._replace(max_version=EXPLICIT_PRODUCE),
        TransactionVersion.IMPLICIT: produce._replace(
            name="Produce of transaction.version 2", min_version=max(produce.min_version, EXPLICIT_PRODUCE + 1)
        ),
    }


def init(transactional_id: str, timeout_ms: int, known: ProducerIdAndEpoch = NO_IDENTITY) -> ApiRequest:
    """Return the request for the next epoch; with `known`, only if that is still the newest one."""
    api = INIT_PRODUCER_ID if known is NO_IDENTITY else RAISE_EPOCH
    return ApiRequest(api, InitProducerIdRequest(transactional_id, timeout_ms, *known))


def add_partitions(
    transactional_id: str, identity: ProducerIdAndEpoch, topic_partitions: Collection[TopicPartition]
) -> ApiRequest:
    """Return the request that adds partitions to the transaction."""
    by_topic: dict[str, list[int]] = defaultdict(list)
    for tp in sorted(topic_partitions):
        by_topic[tp.topic].append(tp.partition)
    topics = tuple(AddPartitionsToTxnTopic(topic, tuple(partitions)) for topic, partitions in by_topic.items())
    return ApiRequest(ADD_PARTITIONS_TO_TXN, AddPartitionsToTxnRequest(transactional_id, *identity, topics))


def add_offsets(transactional_id: str, identity: ProducerIdAndEpoch, group_id: str) -> ApiRequest:
    """Return the request that adds a consumer group to the transaction."""
    return ApiRequest(ADD_OFFSETS_TO_TXN, AddOffsetsToTxnRequest(transactional_id, *identity, group_id))


def commit_offsets(
    transactional_id: str,
    identity: ProducerIdAndEpoch,
    group_offsets: GroupOffsets,
    transaction_version: TransactionVersion,
) -> ApiRequest:
    """Return the request that commits offsets of a group with the transaction."""
    by_topic: dict[str, list[TxnOffsetCommitRequestPartition]] = defaultdict(list)
    for tp, (offset, leader_epoch, note) in sorted(group_offsets.offsets.items()):
        by_topic[tp.topic].append(TxnOffsetCommitRequestPartition(tp.partition, offset, leader_epoch, note))
    topics = tuple(TxnOffsetCommitRequestTopic(topic, tuple(rows)) for topic, rows in by_topic.items())
    group = group_offsets.group
    body = TxnOffsetCommitRequest(
        transactional_id, group.group_id, *identity, group.generation_id, group.member_id, group.group_instance_id, topics
    )  # fmt: skip
    return ApiRequest(COMMIT_OFFSETS[transaction_version], body)


def end(
    transactional_id: str, identity: ProducerIdAndEpoch, transaction_version: TransactionVersion, *, commit: bool
) -> ApiRequest:
    """Return the request that ends the transaction."""
    return ApiRequest(END[transaction_version], EndTxnRequest(transactional_id, *identity, commit))
