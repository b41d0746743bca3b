"""The rules of JoinGroup: who may join, who has to wait for the next generation, and who need not (Kafka's GroupCoordinator)."""

from __future__ import annotations

import uuid

from spark_producer.broker.coordinator.groups.group import ConsumerGroup, GroupState
from spark_producer.broker.coordinator.groups.member import GroupResponseFuture, JoinGroupResult, JoinRequest, Member
from spark_producer.broker.coordinator.groups.member_requests import refusal
from spark_producer.common.error_codes import Code


def join(group: ConsumerGroup, joiner: JoinRequest, now: float) -> GroupResponseFuture[JoinGroupResult]:
    """Return the place of the answer to a JoinGroup; it may have its answer already."""
    if not group.supports(joiner.protocol_type, (each.name for each in joiner.protocols)):
        return _refused(Code.INCONSISTENT_GROUP_PROTOCOL, joiner.member_id)
    if not joiner.member_id:
        return _join_new(group, joiner, now)
    if joiner.member_id in group.pending and joiner.instance is None:  # static members are never given an id first
        return group.add(joiner.member_id, joiner, now)
    code = refusal(group, joiner.member_id, joiner.instance)
    if code != Code.NONE:
        return _refused(code, joiner.member_id)
    return _join_known(group, group.members[joiner.member_id], joiner, now)


def _refused(code: Code, member_id: str) -> GroupResponseFuture[JoinGroupResult]:
    return GroupResponseFuture(JoinGroupResult(code, member_id))


def _join_new(group: ConsumerGroup, joiner: JoinRequest, now: float) -> GroupResponseFuture[JoinGroupResult]:
    member_id = f"{joiner.instance or joiner.client.id}-{uuid.uuid4()}"
    if joiner.instance is not None:
        if joiner.instance in group.static:
            return _join_in_place(group, joiner.instance, member_id, joiner, now)
        return group.add(member_id, joiner, now)
    if joiner.needs_id:
        group.pending[member_id] = now + joiner.session_s
        return _refused(Code.MEMBER_ID_REQUIRED, member_id)
    return group.add(member_id, joiner, now)


def _join_in_place(
    group: ConsumerGroup, instance: str, member_id: str, joiner: JoinRequest, now: float
) -> GroupResponseFuture[JoinGroupResult]:
    """Let a static member that has come back take its own place. If that changes nothing for the others, they are left alone."""
    leader_before = group.leader
    member = group.replace_static(instance, member_id)
    member.say(joiner)
    group.heard_of(member, now)
    if group.state is not GroupState.STABLE or group.chosen_protocol() != group.protocol:
        return group.join_again(member, joiner, now)
    answer = group.joined(member)
    if joiner.may_skip:
        return GroupResponseFuture(answer._replace(skip_assignment=group.leader == member_id))
    # Who cannot be told to leave the assignments as they are is told of another leader: the one it was itself (KAFKA-7862).
    return GroupResponseFuture(answer._replace(leader=leader_before or "", members=()))


def _join_known(
    group: ConsumerGroup, member: Member, joiner: JoinRequest, now: float
) -> GroupResponseFuture[JoinGroupResult]:
    """Let a member join again. Who says nothing new, and does not lead, has only missed the answer of this generation."""
    says_the_same = member.protocols == joiner.protocols
    leads_stable = group.state is GroupState.STABLE and group.leader == member.id
    if group.state is GroupState.PREPARING or not says_the_same or leads_stable:
        return group.join_again(member, joiner, now)
    return GroupResponseFuture(group.joined(member))
