"""The answers of coordinators to the requests of a transaction, each with one error code, and the requests in words."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from spark_producer.accumulator import ProducerIdAndEpoch
from spark_producer.protocol.messages import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    EndTxnRequest,
    EndTxnResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)
from spark_producer.protocol.messages.groups import FoundCoordinator
from spark_producer.protocol.messages.transactions import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnTopicResult,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)


def kind_of(body: tuple[object, ...]) -> str:
    """A request in one word: find, init, raise (an epoch), add, group, offsets, commit, abort."""
    if isinstance(body, InitProducerIdRequest):
        return "init" if body.producer_id < 0 else "raise"
    if isinstance(body, EndTxnRequest):
        return "commit" if body.committed else "abort"
    return {
        FindCoordinatorRequest: "find",
        AddPartitionsToTxnRequest: "add",
        AddOffsetsToTxnRequest: "group",
        TxnOffsetCommitRequest: "offsets",
    }[type(body)]


def coordinated(
    body: tuple[object, ...],
    code: int | Mapping[int, int],
    identity: ProducerIdAndEpoch,
    *,
    node: int,
    implicit: bool = False,
) -> Any:
    """The answer with this error code, or one for each partition. `identity` is what the coordinator gives, if it gives one."""
    number = code if isinstance(code, int) else 0
    if isinstance(body, FindCoordinatorRequest):
        return FindCoordinatorResponse(coordinators=(FoundCoordinator(body.key, node, f"host{node}", 9092, number),))
    if isinstance(body, InitProducerIdRequest):
        return InitProducerIdResponse(0, number, *((-1, -1) if number else identity))
    if isinstance(body, EndTxnRequest):
        return EndTxnResponse(0, number, *(identity if implicit and not number else (-1, -1)))
    if isinstance(body, AddOffsetsToTxnRequest):
        return AddOffsetsToTxnResponse(0, number)
    return _by_partition(
        body, (lambda partition: code.get(partition, 0)) if isinstance(code, Mapping) else lambda _: code
    )


def _by_partition(body: tuple[object, ...], code_of: Callable[[int], int]) -> Any:
    if isinstance(body, AddPartitionsToTxnRequest):
        return AddPartitionsToTxnResponse(
            0,
            tuple(
                AddPartitionsToTxnTopicResult(
                    topic.name,
                    tuple(AddPartitionsToTxnPartitionResult(number, code_of(number)) for number in topic.partitions),
                )
                for topic in body.v3_and_below_topics
            ),
        )
    assert isinstance(body, TxnOffsetCommitRequest)
    return TxnOffsetCommitResponse(
        0,
        tuple(
            TxnOffsetCommitResponseTopic(
                topic.name,
                tuple(
                    TxnOffsetCommitResponsePartition(row.partition_index, code_of(row.partition_index))
                    for row in topic.partitions
                ),
            )
            for topic in body.topics
        ),
    )
