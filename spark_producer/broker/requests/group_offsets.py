"""The handlers of consumer groups' offsets: OffsetCommit, TxnOffsetCommit, OffsetFetch, OffsetDelete."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeAlias

from spark_producer.broker.context import Context, HandlerResult
from spark_producer.broker.coordinator.coordinator import MAX_NAME_LENGTH
from spark_producer.broker.coordinator.groups.consumer_protocol import (
    MAX_PARSED_BYTES,
    PROTOCOL_TYPE,
    subscribed_topics,
)
from spark_producer.broker.coordinator.groups.group import ClassicGroup, GroupState
from spark_producer.broker.coordinator.offsets import CommittedOffset
from spark_producer.broker.requests.transactional_batches import write_error_code
from spark_producer.common.cluster import ProducerIdAndEpoch, TopicPartition
from spark_producer.common.error_codes import Code
from spark_producer.errors import BrokerError
from spark_producer.protocol import messages

MAX_METADATA_LENGTH: Final = 4096
"""Maximum length of the metadata of an offset (Kafka's `offset.metadata.max.bytes`)."""

_ABORTABLE_SINCE: Final = 4
_ADDS_SINCE: Final = 5
"""The first versions of TxnOffsetCommit with TRANSACTION_ABORTABLE, and with implicit AddOffsetsToTxn (KIP-890)."""

_GROUP_ID_NOT_FOUND_SINCE: Final = 9
"""The first version of OffsetCommit with GROUP_ID_NOT_FOUND (KIP-848)."""

_BY_GROUP: Final = 8
"""The first version of OffsetFetch with several groups (KIP-709)."""

Offset: TypeAlias = messages.OffsetCommitRequestPartition | messages.TxnOffsetCommitRequestPartition


def offset_commit(
    context: Context, version: int, request: messages.OffsetCommitRequest
) -> HandlerResult[messages.OffsetCommitResponse]:
    """Commit offsets for a member of the group; or for any client, while the group has no members."""
    offsets, codes = _checked(context, request.topics)
    if offsets:
        code = _commit(context, version, request, offsets)
        codes |= dict.fromkeys(offsets, code)
    rows = [
        messages.OffsetCommitResponseTopic(
            name, tuple(messages.OffsetCommitResponsePartition(index, code) for index, code in results)
        )
        for name, results in _by_topic(codes)
    ]
    return HandlerResult(messages.OffsetCommitResponse(topics=tuple(rows)))


def _commit(
    context: Context,
    version: int,
    request: messages.OffsetCommitRequest,
    offsets: Mapping[TopicPartition, CommittedOffset],
) -> Code:
    if len(request.group_id) > MAX_NAME_LENGTH:
        return Code.INVALID_GROUP_ID
    member = (request.member_id, request.group_instance_id, request.generation_id_or_member_epoch)
    code = _membership_error(context, request.group_id, *member, transactional=False)
    if code == Code.GROUP_ID_NOT_FOUND and version < _GROUP_ID_NOT_FOUND_SINCE:
        return Code.ILLEGAL_GENERATION
    try:
        if code == Code.NONE:
            context.coordinator.commit_offsets(request.group_id, offsets)
    except BrokerError as error:
        return Code(error.code)
    return code


def _membership_error(
    context: Context, group: str, member_id: str, instance: str | None, generation: int, *, transactional: bool
) -> Code:
    """Return the error for a commit by a client that is not a member; NONE if it may commit."""
    code = context.coordinator.groups.check_commit(group, member_id, instance, generation, transactional=transactional)
    if code == Code.GROUP_ID_NOT_FOUND and context.coordinator.offsets.has_offsets(group):
        return Code.UNKNOWN_MEMBER_ID
    return code


def _checked(
    context: Context, topics: Sequence[messages.OffsetCommitRequestTopic | messages.TxnOffsetCommitRequestTopic]
) -> tuple[dict[TopicPartition, CommittedOffset], dict[TopicPartition, Code]]:
    """Return the valid offsets, and a code for each partition of the request."""
    named = {TopicPartition(topic.name, each.partition_index): each for topic in topics for each in topic.partitions}
    codes = {wanted: _refusal(context, wanted, partition) for wanted, partition in named.items()}
    offsets = {
        wanted: CommittedOffset(
            partition.committed_offset, partition.committed_leader_epoch, partition.committed_metadata
        )
        for wanted, partition in named.items()
        if codes[wanted] == Code.NONE
    }
    return offsets, codes


def _by_topic(codes: Mapping[TopicPartition, Code]) -> Iterable[tuple[str, list[tuple[int, Code]]]]:
    topics: dict[str, list[tuple[int, Code]]] = {}
    for (name, index), code in codes.items():
        topics.setdefault(name, []).append((index, code))
    return topics.items()


def txn_offset_commit(
    context: Context, version: int, request: messages.TxnOffsetCommitRequest
) -> HandlerResult[messages.TxnOffsetCommitResponse]:
    """Store offsets that take effect if the transaction commits."""
    offsets, codes = _checked(context, request.topics)
    if offsets:
        try:
            code = _put_pending(context, version, request, offsets)
        except BrokerError as error:
            code = Code(error.code)
        codes |= dict.fromkeys(offsets, code)
    rows = [
        messages.TxnOffsetCommitResponseTopic(
            name, tuple(messages.TxnOffsetCommitResponsePartition(index, code) for index, code in results)
        )
        for name, results in _by_topic(codes)
    ]
    return HandlerResult(messages.TxnOffsetCommitResponse(topics=tuple(rows)))


def _refusal(context: Context, wanted: TopicPartition, offset: Offset) -> Code:
    if not context.topics.has_partition(*wanted):
        return Code.UNKNOWN_TOPIC_OR_PARTITION
    too_large = len(offset.committed_metadata or "") > MAX_METADATA_LENGTH
    return Code.OFFSET_METADATA_TOO_LARGE if too_large else Code.NONE


def _put_pending(
    context: Context,
    version: int,
    request: messages.TxnOffsetCommitRequest,
    offsets: dict[TopicPartition, CommittedOffset],
) -> Code:
    if not 0 < len(request.group_id) <= MAX_NAME_LENGTH:
        return Code.INVALID_GROUP_ID
    member = (request.member_id, request.group_instance_id, request.generation_id)
    code = _membership_error(context, request.group_id, *member, transactional=True)
    if code == Code.GROUP_ID_NOT_FOUND:
        return Code.ILLEGAL_GENERATION
    if code != Code.NONE:
        return code
    producer = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
    if version >= _ADDS_SINCE:
        code = context.coordinator.add(request.transactional_id, producer, groups=(request.group_id,))
    else:
        code = context.coordinator.check_group(request.transactional_id, producer, request.group_id)
    if code == Code.NONE:
        context.coordinator.put_offsets(request.producer_id, request.group_id, offsets)
    return write_error_code(code, knows_abortable=version >= _ABORTABLE_SINCE, adds=version >= _ADDS_SINCE)


def offset_fetch(
    context: Context, version: int, request: messages.OffsetFetchRequest
) -> HandlerResult[messages.OffsetFetchResponse]:
    """Return the committed offsets, or UNSTABLE_OFFSET_COMMIT where a pending transaction may change one and the client requires
    stable ones."""
    stable = request.require_stable
    if version >= _BY_GROUP:
        groups = [
            messages.OffsetFetchResponseGroup(group.group_id, _offsets(context, group.group_id, group.topics, stable))
            for group in {group.group_id: group for group in request.groups}.values()
        ]
        return HandlerResult(messages.OffsetFetchResponse(groups=tuple(groups)))
    return HandlerResult(
        messages.OffsetFetchResponse(topics=_offsets(context, request.group_id, request.topics, stable))
    )


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
            name,
            tuple(_offset(context, group, TopicPartition(name, index), stable) for index in dict.fromkeys(indexes)),
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


def offset_delete(
    context: Context, _version: int, request: messages.OffsetDeleteRequest
) -> HandlerResult[messages.OffsetDeleteResponse]:
    """Delete offsets of a group for topics that none of its members subscribes to (KIP-496)."""
    group = context.coordinator.groups.get(request.group_id)
    if group is None and not context.coordinator.offsets.has_offsets(request.group_id):
        return HandlerResult(messages.OffsetDeleteResponse(Code.GROUP_ID_NOT_FOUND))
    topics = _topics_read(group)
    if group is not None and group.state is not GroupState.EMPTY and group.protocol_type != PROTOCOL_TYPE:
        return HandlerResult(messages.OffsetDeleteResponse(Code.NON_EMPTY_GROUP))
    wanted = dict.fromkeys(
        TopicPartition(topic.name, each.partition_index) for topic in request.topics for each in topic.partitions
    )
    codes = {each: _deletion_refusal(context, each, topics) for each in wanted}
    try:
        gone = [each for each, code in codes.items() if code == Code.NONE]
        context.coordinator.delete_offsets(request.group_id, gone)
    except BrokerError as error:
        return HandlerResult(messages.OffsetDeleteResponse(error.code))
    rows = [
        messages.OffsetDeleteResponseTopic(
            name, tuple(messages.OffsetDeleteResponsePartition(index, code) for index, code in results)
        )
        for name, results in _by_topic(codes)
    ]
    return HandlerResult(messages.OffsetDeleteResponse(topics=tuple(rows)))


def _topics_read(group: ClassicGroup | None) -> set[str] | None:
    """Return the topics that members of the group subscribe to; None if that is unknown, since a subscription is malformed or too
    large."""
    topics: set[str] = set()
    left = MAX_PARSED_BYTES
    for member in group.members.values() if group is not None else ():
        metadata = (
            member.metadata(group.protocol) if group is not None and group.protocol else member.protocols[0].metadata
        )
        left -= len(metadata)
        found = subscribed_topics(metadata) if left >= 0 else None
        if found is None:
            return None
        topics |= found
    return topics


def _deletion_refusal(context: Context, wanted: TopicPartition, topics: set[str] | None) -> Code:
    if not context.topics.has_partition(*wanted):
        return Code.UNKNOWN_TOPIC_OR_PARTITION
    return Code.GROUP_SUBSCRIBED_TO_TOPIC if topics is None or wanted[0] in topics else Code.NONE
