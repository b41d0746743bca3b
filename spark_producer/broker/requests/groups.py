"""The requests about coordinators and the offsets of consumer groups: FindCoordinator, TxnOffsetCommit, OffsetFetch, ListGroups.

Groups have no members here. Their offsets come from transactions alone.
"""

from __future__ import annotations

from typing import Final

from spark_producer.broker.context import Answer, Context
from spark_producer.broker.coordinator.coordinator import LONGEST_NAME
from spark_producer.broker.coordinator.offsets import CommittedOffset
from spark_producer.broker.coordinator.transactions import Holder, TopicPartition
from spark_producer.broker.requests.transactional_batches import in_words_of_a_write
from spark_producer.broker.requests.transactions import exists
from spark_producer.codes import Code
from spark_producer.errors import BrokerError
from spark_producer.protocol import messages

GROUP: Final = 0
TRANSACTION: Final = 1
"""The two types of keys that have a coordinator here (Kafka's CoordinatorType)."""

LONGEST_METADATA: Final = 4096
"""The most bytes of text with an offset (Kafka's `offset.metadata.max.bytes`)."""

_SEVERAL_KEYS: Final = 4
"""The first version of FindCoordinator that asks for several (KIP-699)."""

_ABORTABLE_SINCE: Final = 4
_ADDS_SINCE: Final = 5
"""The first versions of TxnOffsetCommit that know TRANSACTION_ABORTABLE, and that add their group by themselves (KIP-890)."""

_BY_GROUP: Final = 8
"""The first version of OffsetFetch that asks for several groups (KIP-709)."""


def find_coordinator(
    context: Context, version: int, request: messages.FindCoordinatorRequest
) -> Answer[messages.FindCoordinatorResponse]:
    """Answer that this broker coordinates every group and every transactional id."""
    if request.key_type in (GROUP, TRANSACTION):
        node, place = context.settings.node_id, context.advertised
        found = messages.Coordinator("", node, place.host, place.port, Code.NONE, "")
    else:
        found = messages.Coordinator("", -1, "", -1, Code.INVALID_REQUEST, f"unknown key type {request.key_type}")
    if version >= _SEVERAL_KEYS:
        rows = tuple(found._replace(key=key) for key in request.coordinator_keys)
        return Answer(messages.FindCoordinatorResponse(coordinators=rows))
    return Answer(
        messages.FindCoordinatorResponse(
            error_code=found.error_code,
            error_message=found.error_message,
            node_id=found.node_id,
            host=found.host,
            port=found.port,
        )
    )


def list_groups(
    context: Context, _version: int, request: messages.ListGroupsRequest
) -> Answer[messages.ListGroupsResponse]:
    """Answer with the groups that have offsets, as Kafka lists groups without members."""
    if request.states_filter and "empty" not in {state.lower() for state in request.states_filter}:
        return Answer(messages.ListGroupsResponse())
    if request.types_filter and "classic" not in {kind.lower() for kind in request.types_filter}:
        return Answer(messages.ListGroupsResponse())
    rows = [messages.ListedGroup(group, "", "Empty", "classic") for group in context.coordinator.offsets.committed]
    return Answer(messages.ListGroupsResponse(groups=tuple(rows)))


def txn_offset_commit(
    context: Context, version: int, request: messages.TxnOffsetCommitRequest
) -> Answer[messages.TxnOffsetCommitResponse]:
    """Keep offsets that come into force if the transaction is committed."""
    named = {
        (topic.name, partition.partition_index): partition for topic in request.topics for partition in topic.partitions
    }
    codes = {wanted: _refusal(context, wanted, partition) for wanted, partition in named.items()}
    offsets = {
        wanted: CommittedOffset(
            partition.committed_offset, partition.committed_leader_epoch, partition.committed_metadata
        )
        for wanted, partition in named.items()
        if codes[wanted] == Code.NONE
    }
    if offsets:
        try:
            code = _kept(context, version, request, offsets)
        except BrokerError as error:
            code = Code(error.code)
        codes |= dict.fromkeys(offsets, code)
    topics: dict[str, list[messages.TxnOffsetCommitResponsePartition]] = {}
    for (name, index), code in codes.items():
        topics.setdefault(name, []).append(messages.TxnOffsetCommitResponsePartition(index, code))
    rows = [messages.TxnOffsetCommitResponseTopic(name, tuple(results)) for name, results in topics.items()]
    return Answer(messages.TxnOffsetCommitResponse(topics=tuple(rows)))


def _refusal(context: Context, wanted: TopicPartition, offset: messages.TxnOffsetCommitRequestPartition) -> Code:
    if not exists(context, wanted):
        return Code.UNKNOWN_TOPIC_OR_PARTITION
    too_large = len(offset.committed_metadata or "") > LONGEST_METADATA
    return Code.OFFSET_METADATA_TOO_LARGE if too_large else Code.NONE


def _kept(
    context: Context,
    version: int,
    request: messages.TxnOffsetCommitRequest,
    offsets: dict[TopicPartition, CommittedOffset],
) -> Code:
    if not 0 < len(request.group_id) <= LONGEST_NAME:
        return Code.INVALID_GROUP_ID
    if request.generation_id >= 0:  # it says that it is a member, and there are none
        return Code.UNKNOWN_MEMBER_ID
    holder = Holder(request.producer_id, request.producer_epoch)
    if version >= _ADDS_SINCE:
        code = context.coordinator.add(request.transactional_id, holder, groups=(request.group_id,))
    else:
        code = context.coordinator.check_group(request.transactional_id, holder, request.group_id)
    if code == Code.NONE:
        context.coordinator.put_offsets(request.producer_id, request.group_id, offsets)
    return in_words_of_a_write(code, knows_abortable=version >= _ABORTABLE_SINCE, adds=version >= _ADDS_SINCE)


def offset_fetch(
    context: Context, version: int, request: messages.OffsetFetchRequest
) -> Answer[messages.OffsetFetchResponse]:
    """Answer with the offsets in force, or with UNSTABLE_OFFSET_COMMIT where a transaction may change them and that matters."""
    stable = request.require_stable
    if version >= _BY_GROUP:
        groups = [
            messages.OffsetFetchResponseGroup(group.group_id, _offsets(context, group.group_id, group.topics, stable))
            for group in {group.group_id: group for group in request.groups}.values()
        ]
        return Answer(messages.OffsetFetchResponse(groups=tuple(groups)))
    return Answer(messages.OffsetFetchResponse(topics=_offsets(context, request.group_id, request.topics, stable)))


def _offsets(
    context: Context, group: str, topics: tuple[messages.OffsetFetchRequestTopic, ...] | None, stable: bool
) -> tuple[messages.OffsetFetchResponseTopic, ...]:
    wanted: dict[str, list[int]] = {}
    if topics is None:
        for name, index in context.coordinator.offsets.committed.get(group, {}):
            wanted.setdefault(name, []).append(index)
    else:
        for topic in topics:
            wanted.setdefault(topic.name, []).extend(topic.partition_indexes)
    return tuple(
        messages.OffsetFetchResponseTopic(
            name, tuple(_offset(context, group, (name, index), stable) for index in dict.fromkeys(indexes))
        )
        for name, indexes in wanted.items()
    )


def _offset(
    context: Context, group: str, wanted: TopicPartition, stable: bool
) -> messages.OffsetFetchResponsePartition:
    offsets = context.coordinator.offsets
    if stable and offsets.is_unstable(group, wanted):
        return messages.OffsetFetchResponsePartition(wanted[1], error_code=Code.UNSTABLE_OFFSET_COMMIT)
    found = offsets.committed.get(group, {}).get(wanted)
    if found is None:
        return messages.OffsetFetchResponsePartition(wanted[1])
    return messages.OffsetFetchResponsePartition(wanted[1], found.offset, found.leader_epoch, found.metadata)
