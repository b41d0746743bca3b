"""The rules of JoinGroup: which clients join, wait for the next generation, or get the current one (Kafka's GroupCoordinator)."""

from __future__ import annotations

import uuid

from spark_producer.broker.coordinator.groups.group import ClassicGroup, GroupState
from spark_producer.broker.coordinator.groups.member import GroupResponseFuture, JoinGroupResult, JoinRequest, Member
from spark_producer.broker.coordinator.groups.member_requests import member_error
from spark_producer.common.error_codes import Code


def join(group: ClassicGroup, join_request: JoinRequest, now: float) -> GroupResponseFuture[JoinGroupResult]:
    """Return the future result of a JoinGroup; it may be complete already."""
    if not group.supports(join_request.protocol_type, (each.name for each in join_request.protocols)):
        return _refused(Code.INCONSISTENT_GROUP_PROTOCOL, join_request.member_id)
    if not join_request.member_id:
        return _join_new(group, join_request, now)
    if (
        join_request.member_id in group.pending and join_request.instance is None
    ):  # static members are never given an id first
        return group.add(join_request.member_id, join_request, now)
    code = member_error(group, join_request.member_id, join_request.instance)
    if code != Code.NONE:
        return _refused(code, join_request.member_id)
    return _join_known(group, group.members[join_request.member_id], join_request, now)


def _refused(code: Code, member_id: str) -> GroupResponseFuture[JoinGroupResult]:
    return GroupResponseFuture(JoinGroupResult(code, member_id))


def _join_new(group: ClassicGroup, join_request: JoinRequest, now: float) -> GroupResponseFuture[JoinGroupResult]:
    member_id = f"{join_request.instance or join_request.client.id}-{uuid.uuid4()}"
    if join_request.instance is not None:
        if join_request.instance in group.static:
            return _join_in_place(group, join_request.instance, member_id, join_request, now)
        return group.add(member_id, join_request, now)
    if join_request.needs_id:
        group.pending[member_id] = now + join_request.session_s
        return _refused(Code.MEMBER_ID_REQUIRED, member_id)
    return group.add(member_id, join_request, now)


def _join_in_place(
    group: ClassicGroup, instance: str, member_id: str, join_request: JoinRequest, now: float
) -> GroupResponseFuture[JoinGroupResult]:
    """Let a returning static member take its former place. If nothing changes for the others, they do not rebalance."""
    former_leader = group.leader
    member = group.replace_static(instance, member_id)
    member.update(join_request)
    group.extend_session(member, now)
    if group.state is not GroupState.STABLE or group.chosen_protocol() != group.protocol:
        return group.join_again(member, join_request, now)
    result = group.join_result(member)
    if join_request.may_skip:
        return GroupResponseFuture(result._replace(skip_assignment=group.leader == member_id))
    # A client without `skip_assignment` is given another leader, its own former id, and so keeps the assignments (KAFKA-7862).
    return GroupResponseFuture(result._replace(leader=former_leader or "", members=()))


def _join_known(
    group: ClassicGroup, member: Member, join_request: JoinRequest, now: float
) -> GroupResponseFuture[JoinGroupResult]:
    """Let a member join again. A follower with unchanged metadata has only missed the current result, and gets it again."""
    is_unchanged = member.protocols == join_request.protocols
    leads_stable = group.state is GroupState.STABLE and group.leader == member.id
    if group.state is GroupState.PREPARING or not is_unchanged or leads_stable:
        return group.join_again(member, join_request, now)
    return GroupResponseFuture(group.join_result(member))
