"""The rules of members' requests: SyncGroup, Heartbeat, LeaveGroup, and commits of offsets."""

from __future__ import annotations

import math

from spark_producer.broker.coordinator.groups.group import ClassicGroup, GroupState
from spark_producer.broker.coordinator.groups.member import NO_GENERATION, GroupResponseFuture, SyncGroupResult
from spark_producer.common.error_codes import Code


def member_error(group: ClassicGroup, member_id: str, instance: str | None) -> Code:
    """Return the error for a client that is not a member of the group; NONE for a member (KIP-345)."""
    if instance is not None:
        known = group.static.get(instance)
        if known is None:
            return Code.UNKNOWN_MEMBER_ID
        return Code.NONE if known == member_id else Code.FENCED_INSTANCE_ID
    return Code.NONE if member_id in group.members else Code.UNKNOWN_MEMBER_ID


def generation_error(group: ClassicGroup, member_id: str, instance: str | None, generation: int) -> Code:
    """Return the error for a client that is not a member of this generation; NONE for a member."""
    code = member_error(group, member_id, instance)
    if code == Code.NONE and generation != group.generation:
        return Code.ILLEGAL_GENERATION
    return code


def sync(
    group: ClassicGroup,
    member_id: str,
    instance: str | None,
    generation: int,
    protocol: tuple[str | None, str | None],
    assignments: dict[str, bytes],
    now: float,
    *,
    max_bytes: float = math.inf,
) -> GroupResponseFuture[SyncGroupResult]:
    """Return the future result of a SyncGroup.

    `protocol` is the protocol type and name that the member believes in, where its version sends them. Assignments of more than
    `max_bytes` are refused with POLICY_VIOLATION for all members.
    """
    code = generation_error(group, member_id, instance, generation)
    if code != Code.NONE:
        return GroupResponseFuture(SyncGroupResult(code))
    ours = (group.protocol_type, group.protocol)
    if any(theirs is not None and theirs != own for theirs, own in zip(protocol, ours, strict=True)):
        return GroupResponseFuture(SyncGroupResult(Code.INCONSISTENT_GROUP_PROTOCOL))
    member = group.members[member_id]
    if group.state is GroupState.PREPARING:
        return GroupResponseFuture(SyncGroupResult(Code.REBALANCE_IN_PROGRESS))
    if group.state is GroupState.STABLE:
        group.extend_session(member, now)
        return GroupResponseFuture(group.sync_result(member))
    future = group.sync(member)
    if group.leader == member_id:
        if sum(len(assignments.get(each, b"")) for each in group.members) > max_bytes:
            group.fail_sync(Code.POLICY_VIOLATION, now)
        else:
            group.assign(assignments, now)
    return future


def heartbeat(group: ClassicGroup, member_id: str, instance: str | None, generation: int, now: float) -> Code:
    """Extend the session of a member; return whether it has to join again."""
    code = generation_error(group, member_id, instance, generation)
    if code != Code.NONE:
        return code
    group.extend_session(group.members[member_id], now)
    return Code.REBALANCE_IN_PROGRESS if group.state is GroupState.PREPARING else Code.NONE


def leave(group: ClassicGroup, member_id: str, instance: str | None, now: float) -> Code:
    """Remove a member. An administrator names a static one by its instance id alone."""
    if instance is not None and not member_id:
        member_id = group.static.get(instance, "")
    elif member_id in group.pending:
        group.remove_pending(member_id, now)
        return Code.NONE
    code = member_error(group, member_id, instance)
    if code == Code.NONE:
        group.remove(member_id, now)
    return code


def commit(
    group: ClassicGroup, member_id: str, instance: str | None, generation: int, *, transactional: bool, now: float
) -> Code:
    """Return whether a client may commit offsets of the group: a member of this generation, or any client if there are no
    members.

    In a transaction clients that do not claim membership may commit too (KIP-447).
    """
    if generation <= NO_GENERATION and group.state is GroupState.EMPTY:
        return Code.NONE
    if generation <= NO_GENERATION and not member_id and instance is None:
        return Code.NONE if transactional else Code.UNKNOWN_MEMBER_ID
    code = generation_error(group, member_id, instance, generation)
    if code != Code.NONE or transactional:
        return code
    if group.state is GroupState.COMPLETING:
        return Code.REBALANCE_IN_PROGRESS
    group.extend_session(group.members[member_id], now)
    return Code.NONE
