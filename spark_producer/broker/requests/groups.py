"""The handlers of FindCoordinator, ListGroups, DescribeGroups and DeleteGroups."""

from __future__ import annotations

from typing import Final

from spark_producer.broker.context import Context, HandlerResult
from spark_producer.broker.coordinator.groups.group import ClassicGroup, GroupState
from spark_producer.common.error_codes import Code
from spark_producer.common.escape import for_log
from spark_producer.errors import BrokerError
from spark_producer.protocol import messages

GROUP: Final = 0
TRANSACTION: Final = 1
"""The key types with a coordinator here (Kafka's CoordinatorType)."""

_SEVERAL_KEYS: Final = 4
"""The first version of FindCoordinator with several keys (KIP-699)."""

_GROUP_ID_NOT_FOUND_SINCE: Final = 6
"""The first version of DescribeGroups with GROUP_ID_NOT_FOUND; earlier ones describe an unknown group as dead (KIP-1043)."""

_DEAD: Final = "Dead"
_CLASSIC: Final = "classic"


def find_coordinator(
    context: Context, version: int, request: messages.FindCoordinatorRequest
) -> HandlerResult[messages.FindCoordinatorResponse]:
    """Return this broker as the coordinator of every group and transactional id."""
    if request.key_type in (GROUP, TRANSACTION):
        node, endpoint = context.settings.node_id, context.advertised
        found = messages.FoundCoordinator("", node, endpoint.host, endpoint.port, Code.NONE, "")
    else:
        found = messages.FoundCoordinator("", -1, "", -1, Code.INVALID_REQUEST, f"unknown key type {request.key_type}")
    if version >= _SEVERAL_KEYS:
        rows = tuple(found._replace(key=key) for key in request.coordinator_keys)
        return HandlerResult(messages.FindCoordinatorResponse(coordinators=rows))
    return HandlerResult(
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
) -> HandlerResult[messages.ListGroupsResponse]:
    """Return all groups: those with members, and those with offsets."""
    states = {state.lower() for state in request.states_filter}
    if request.types_filter and _CLASSIC not in {kind.lower() for kind in request.types_filter}:
        return HandlerResult(messages.ListGroupsResponse())
    rows = [
        messages.ListedGroup(name, *_kind_and_state(context.coordinator.groups.get(name)), _CLASSIC)
        for name in dict.fromkeys([*context.coordinator.groups.names(), *context.coordinator.offsets.groups()])
    ]
    return HandlerResult(
        messages.ListGroupsResponse(
            groups=tuple(row for row in rows if not states or row.group_state.lower() in states)
        )
    )


def _kind_and_state(group: ClassicGroup | None) -> tuple[str, str]:
    return ("", GroupState.EMPTY.value) if group is None else (group.protocol_type or "", group.state.value)


def describe_groups(
    context: Context, version: int, request: messages.DescribeGroupsRequest
) -> HandlerResult[messages.DescribeGroupsResponse]:
    """Return the state of each group and its members; a repeated group is described once."""
    rows = [_described(context, version, name) for name in dict.fromkeys(request.groups)]
    return HandlerResult(messages.DescribeGroupsResponse(groups=tuple(rows)))


def _described(context: Context, version: int, name: str) -> messages.DescribedGroup:
    group = context.coordinator.groups.get(name)
    if group is None and not context.coordinator.offsets.has_offsets(name):
        if version < _GROUP_ID_NOT_FOUND_SINCE:
            return messages.DescribedGroup(group_id=name, group_state=_DEAD)
        message = f"Group {for_log(name)} not found."  # a name may have 32,767 bytes
        return messages.DescribedGroup(Code.GROUP_ID_NOT_FOUND, message, name, _DEAD)
    kind, state = _kind_and_state(group)
    if group is None:
        return messages.DescribedGroup(group_id=name, group_state=state, protocol_type=kind)
    stable = group.state is GroupState.STABLE
    members = tuple(
        messages.DescribedGroupMember(
            member.id,
            member.instance,
            member.client.id,
            f"/{member.client.host}",  # as Java formats an address without a host name
            member.metadata(group.protocol) if stable else b"",
            member.assignment,
        )
        for member in group.members.values()
    )
    protocol = (group.protocol or "") if stable else ""
    return messages.DescribedGroup(
        group_id=name, group_state=state, protocol_type=kind, protocol_data=protocol, members=members
    )


def delete_groups(
    context: Context, _version: int, request: messages.DeleteGroupsRequest
) -> HandlerResult[messages.DeleteGroupsResponse]:
    """Delete groups without members, and their offsets."""
    rows = [messages.DeletableGroupResult(name, _delete(context, name)) for name in dict.fromkeys(request.groups_names)]
    return HandlerResult(messages.DeleteGroupsResponse(results=tuple(rows)))


def _delete(context: Context, name: str) -> Code:
    code = context.coordinator.groups.forget(name)
    offsets = context.coordinator.offsets.committed.get(name)
    if code == Code.NON_EMPTY_GROUP or offsets is None:
        return code
    try:
        context.coordinator.delete_offsets(name, offsets)
    except BrokerError as error:
        return Code(error.code)
    return Code.NONE
