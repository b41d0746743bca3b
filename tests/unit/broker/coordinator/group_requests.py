"""Members of groups by requests to the broker's handlers, without a socket."""

from __future__ import annotations

import struct
from typing import Any

from spark_producer.broker.context import Context
from spark_producer.broker.deferred_response import DeferredResponse
from spark_producer.protocol import (
    HEARTBEAT,
    JOIN_GROUP,
    LEAVE_GROUP,
    OFFSET_COMMIT,
    OFFSET_FETCH,
    SYNC_GROUP,
    messages,
)
from tests.unit.broker.handler_calls import ask, handled

TopicPartition = tuple[str, int]


def join_request(
    member_id: str = "", group: str = "g", metadata: bytes = b"", **fields: Any
) -> messages.JoinGroupRequest:
    usual = messages.JoinGroupRequest(
        group, 10_000, 60_000, member_id, None, "consumer", (messages.JoinGroupRequestProtocol("range", metadata),)
    )
    return usual._replace(**fields)


def join(context: Context, member_id: str = "", *, version: int = 3, **fields: Any) -> messages.JoinGroupResponse:
    """Return the current response; version 3 needs no member id."""
    return ask(context, JOIN_GROUP, join_request(member_id, **fields), version)


def join_later(context: Context, member_id: str = "", *, version: int = 3, **fields: Any) -> DeferredResponse:
    """The request that waits."""
    pending = handled(context, JOIN_GROUP, join_request(member_id, **fields), version).deferred
    assert pending is not None
    return pending


def sync(
    context: Context, member_id: str, generation: int, assignments: dict[str, bytes], group: str = "g"
) -> messages.SyncGroupResponse:
    rows = tuple(messages.SyncGroupRequestAssignment(*row) for row in assignments.items())
    request = messages.SyncGroupRequest(group, generation, member_id, None, "consumer", "range", rows)
    return ask(context, SYNC_GROUP, request)


def stable(context: Context, assignment: bytes = b"", group: str = "g", metadata: bytes = b"") -> tuple[str, int]:
    """Member id and generation of the one member of a group."""
    joined = join(context, group=group, metadata=metadata)
    member_id, generation = joined.member_id, joined.generation_id
    assert joined.error_code == sync(context, member_id, generation, {member_id: assignment}, group).error_code == 0
    return member_id, generation


def heartbeat(context: Context, member_id: str, generation: int, group: str = "g") -> int:
    return ask(context, HEARTBEAT, messages.HeartbeatRequest(group, generation, member_id)).error_code


def leave(context: Context, member_id: str, group: str = "g") -> int:
    return ask(context, LEAVE_GROUP, messages.LeaveGroupRequest(group, member_id), 2).error_code


def commit(
    context: Context,
    offsets: dict[TopicPartition, int],
    member: tuple[str, int] = ("", -1),
    group: str = "g",
    metadata: str | None = None,
) -> dict[TopicPartition, int]:
    """Partition → error code."""
    member_id, generation = member
    topics = tuple(
        messages.OffsetCommitRequestTopic(topic, (messages.OffsetCommitRequestPartition(index, offset, 3, metadata),))
        for (topic, index), offset in offsets.items()
    )
    request = messages.OffsetCommitRequest(group, generation, member_id, topics=topics)
    response = ask(context, OFFSET_COMMIT, request)
    return {(topic.name, row.partition_index): row.error_code for topic in response.topics for row in topic.partitions}


def committed(context: Context, group: str = "g") -> dict[TopicPartition, int]:
    request = messages.OffsetFetchRequest(groups=(messages.OffsetFetchRequestGroup(group, topics=None),))
    found = ask(context, OFFSET_FETCH, request).groups[0]
    return {
        (topic.name, row.partition_index): row.committed_offset for topic in found.topics for row in topic.partitions
    }


def subscription(*topics: str) -> bytes:
    """The subscription of a consumer (ConsumerProtocolSubscription 0)."""
    names = b"".join(struct.pack(">h", len(topic)) + topic.encode() for topic in topics)
    return struct.pack(">hi", 0, len(topics)) + names + struct.pack(">i", -1)


def assignment(partitions: dict[str, tuple[int, ...]]) -> bytes:
    """Return the leader's assignment for a consumer (ConsumerProtocolAssignment 0)."""
    topics = b"".join(
        struct.pack(">h", len(topic)) + topic.encode() + struct.pack(f">i{len(indexes)}i", len(indexes), *indexes)
        for topic, indexes in partitions.items()
    )
    return struct.pack(">hi", 0, len(partitions)) + topics + struct.pack(">i", -1)
