"""The handlers of group members' requests: JoinGroup, SyncGroup, Heartbeat, LeaveGroup.

JoinGroup waits for the other members, and SyncGroup for the leader's assignments.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Generic

from spark_producer.broker.context import Context, HandlerResult
from spark_producer.broker.coordinator.coordinator import MAX_NAME_LENGTH
from spark_producer.broker.coordinator.groups.member import (
    GroupResponseFuture,
    GroupResult,
    JoinGroupResult,
    JoinRequest,
    MemberProtocol,
    SyncGroupResult,
)
from spark_producer.broker.deferred_response import DeferredResponse
from spark_producer.common.error_codes import Code
from spark_producer.protocol import messages

_REBALANCE_TIMEOUT_SINCE: Final = 1
_NEEDS_ID_SINCE: Final = 4
_NULL_PROTOCOL_SINCE: Final = 7
_MAY_SKIP_SINCE: Final = 9
"""The first versions of JoinGroup with a rebalance timeout, with MEMBER_ID_REQUIRED (KIP-394), with a nullable protocol in the
response, and with `skip_assignment` (KIP-814)."""

_PROTOCOL_SINCE: Final = 5
"""The first version of SyncGroup with the member's protocol (KIP-559)."""

_SEVERAL_SINCE: Final = 3
"""The first version of LeaveGroup with several members (KIP-345)."""


class DelayedGroupResponse(DeferredResponse, Generic[GroupResult]):
    """The delayed response to a JoinGroup or SyncGroup, which the group completes by a deadline of its own."""

    def __init__(
        self,
        future: GroupResponseFuture[GroupResult],
        wait_s: float,
        otherwise: GroupResult,
        respond: Callable[[GroupResult], Any],
    ) -> None:
        """Wait for `wait_s` seconds at most, after which the result is `otherwise`; `respond` turns a result into a response."""
        super().__init__((future,), wait_s)
        self._future = future
        self._otherwise = otherwise
        self._respond = respond

    def is_ready(self) -> bool:
        """Return whether the group has completed the result."""
        return self._future.result is not None

    def response(self, _max_bytes: int) -> Any:
        """Return the response for the result, or for `otherwise` if there is no result."""
        return self._respond(self._future.result or self._otherwise)


def join_group(
    context: Context, version: int, request: messages.JoinGroupRequest
) -> HandlerResult[messages.JoinGroupResponse]:
    """Respond when the next generation begins, or at once if the member need not wait."""
    if not 0 < len(request.group_id) <= MAX_NAME_LENGTH:
        return HandlerResult(_join_response(version, JoinGroupResult(Code.INVALID_GROUP_ID, request.member_id)))
    timeout_ms = request.rebalance_timeout_ms if version >= _REBALANCE_TIMEOUT_SINCE else request.session_timeout_ms
    join_request = JoinRequest(
        request.group_id,
        request.member_id,
        request.group_instance_id,
        context.client,
        request.session_timeout_ms / 1000,
        timeout_ms / 1000,
        request.protocol_type,
        tuple(MemberProtocol(each.name, bytes(each.metadata)) for each in request.protocols),
        needs_id=version >= _NEEDS_ID_SINCE,
        may_skip=version >= _MAY_SKIP_SINCE,
    )
    future = context.coordinator.groups.join(join_request)
    late = JoinGroupResult(Code.REBALANCE_IN_PROGRESS, request.member_id)
    return _later(context, future, late, lambda joined: _join_response(version, joined))


def _later(
    context: Context,
    future: GroupResponseFuture[GroupResult],
    otherwise: GroupResult,
    respond: Callable[[GroupResult], Any],
) -> HandlerResult[Any]:
    settings = context.settings.groups
    wait_s = (settings.max_session_timeout_ms + settings.initial_rebalance_delay_ms) / 1000
    completed = context.coordinator.groups.take_completed()
    return HandlerResult(None, completed, deferred=DelayedGroupResponse(future, wait_s, otherwise, respond))


def _join_response(version: int, joined: JoinGroupResult) -> messages.JoinGroupResponse:
    protocol = joined.protocol
    return messages.JoinGroupResponse(
        error_code=joined.code,
        generation_id=joined.generation,
        protocol_type=joined.protocol_type,
        protocol_name="" if protocol is None and version < _NULL_PROTOCOL_SINCE else protocol,
        leader=joined.leader,
        skip_assignment=joined.skip_assignment,
        member_id=joined.member_id,
        members=tuple(messages.JoinGroupResponseMember(*member) for member in joined.members),
    )


def sync_group(
    context: Context, version: int, request: messages.SyncGroupRequest
) -> HandlerResult[messages.SyncGroupResponse]:
    """Respond with the member's assignment once the leader has sent it."""
    protocol = (request.protocol_type, request.protocol_name)
    if not request.group_id:
        return HandlerResult(messages.SyncGroupResponse(error_code=Code.INVALID_GROUP_ID))
    if version >= _PROTOCOL_SINCE and None in protocol:
        return HandlerResult(messages.SyncGroupResponse(error_code=Code.INCONSISTENT_GROUP_PROTOCOL))
    future = context.coordinator.groups.sync(
        request.group_id,
        request.member_id,
        request.group_instance_id,
        request.generation_id,
        protocol,
        {each.member_id: bytes(each.assignment) for each in request.assignments},
    )
    return _later(context, future, SyncGroupResult(Code.REBALANCE_IN_PROGRESS), _sync_response)


def _sync_response(synced: SyncGroupResult) -> messages.SyncGroupResponse:
    return messages.SyncGroupResponse(
        error_code=synced.code,
        protocol_type=synced.protocol_type,
        protocol_name=synced.protocol,
        assignment=synced.assignment,
    )


def heartbeat(
    context: Context, _version: int, request: messages.HeartbeatRequest
) -> HandlerResult[messages.HeartbeatResponse]:
    """Extend the member's session, and return whether it has to rejoin."""
    if not request.group_id:
        return HandlerResult(messages.HeartbeatResponse(error_code=Code.INVALID_GROUP_ID))
    code = context.coordinator.groups.heartbeat(
        request.group_id, request.member_id, request.group_instance_id, request.generation_id
    )
    return HandlerResult(messages.HeartbeatResponse(error_code=code), context.coordinator.groups.take_completed())


def leave_group(
    context: Context, version: int, request: messages.LeaveGroupRequest
) -> HandlerResult[messages.LeaveGroupResponse]:
    """Remove members from a group."""
    if not request.group_id:
        return HandlerResult(messages.LeaveGroupResponse(error_code=Code.INVALID_GROUP_ID))
    groups = context.coordinator.groups
    if version < _SEVERAL_SINCE:
        code = groups.leave(request.group_id, request.member_id, None)
        return HandlerResult(messages.LeaveGroupResponse(error_code=code), groups.take_completed())
    rows = tuple(
        messages.LeaveGroupResponseMember(
            each.member_id,
            each.group_instance_id,
            groups.leave(request.group_id, each.member_id, each.group_instance_id),
        )
        for each in request.members
    )
    return HandlerResult(messages.LeaveGroupResponse(members=rows), groups.take_completed())
