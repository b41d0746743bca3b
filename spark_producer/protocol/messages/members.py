"""The messages of group members: JoinGroup, SyncGroup, Heartbeat, LeaveGroup."""

# Annotations are evaluated here on purpose (no `from __future__`): they are the schema.
from typing import Annotated, NamedTuple

from spark_producer.protocol.fields import (
    Bool,
    Bytes,
    Int16,
    Int32,
    NullableSince,
    NullableString,
    Since,
    String,
    Until,
)

# JoinGroup (11)


class JoinGroupRequestProtocol(NamedTuple):
    """An assignment strategy that the member supports, and the member's metadata for it, such as its topics."""

    name: String = ""
    metadata: Bytes = b""


class JoinGroupRequest(NamedTuple):
    """Asks to be a member of the next generation. A new member has no member id; a static one an instance id (KIP-345)."""

    group_id: String = ""
    session_timeout_ms: Int32 = 0
    rebalance_timeout_ms: Annotated[Int32, Since(1)] = -1
    member_id: String = ""
    group_instance_id: Annotated[NullableString, Since(5)] = None
    protocol_type: String = ""
    protocols: tuple[JoinGroupRequestProtocol, ...] = ()
    reason: Annotated[NullableString, Since(8)] = None


class JoinGroupResponseMember(NamedTuple):
    """A member, in the response to the group's leader."""

    member_id: String = ""
    group_instance_id: Annotated[NullableString, Since(5)] = None
    metadata: Bytes = b""


class JoinGroupResponse(NamedTuple):
    """The generation that has begun; the leader's response lists all members."""

    throttle_time_ms: Annotated[Int32, Since(2)] = 0
    error_code: Int16 = 0
    generation_id: Int32 = -1
    protocol_type: Annotated[NullableString, Since(7)] = None
    protocol_name: Annotated[NullableString, NullableSince(7)] = ""
    leader: String = ""
    skip_assignment: Annotated[Bool, Since(9)] = False
    member_id: String = ""
    members: tuple[JoinGroupResponseMember, ...] = ()


# SyncGroup (14)


class SyncGroupRequestAssignment(NamedTuple):
    """The assignment of one member, by the leader."""

    member_id: String = ""
    assignment: Bytes = b""


class SyncGroupRequest(NamedTuple):
    """Asks for the member's assignment; the leader's request has the assignments of all members."""

    group_id: String = ""
    generation_id: Int32 = 0
    member_id: String = ""
    group_instance_id: Annotated[NullableString, Since(3)] = None
    protocol_type: Annotated[NullableString, Since(5)] = None
    protocol_name: Annotated[NullableString, Since(5)] = None
    assignments: tuple[SyncGroupRequestAssignment, ...] = ()


class SyncGroupResponse(NamedTuple):
    """The assignment of the requesting member."""

    throttle_time_ms: Annotated[Int32, Since(1)] = 0
    error_code: Int16 = 0
    protocol_type: Annotated[NullableString, Since(5)] = None
    protocol_name: Annotated[NullableString, Since(5)] = None
    assignment: Bytes = b""


# Heartbeat (12)


class HeartbeatRequest(NamedTuple):
    """Reports that a member is alive."""

    group_id: String = ""
    generation_id: Int32 = 0
    member_id: String = ""
    group_instance_id: Annotated[NullableString, Since(3)] = None


class HeartbeatResponse(NamedTuple):
    """The error code, which is 0 while the member belongs to the generation of its request."""

    throttle_time_ms: Annotated[Int32, Since(1)] = 0
    error_code: Int16 = 0


# LeaveGroup (13)


class LeaveGroupRequestMember(NamedTuple):
    """A member that leaves. An administrator removes a static member by its instance id alone."""

    member_id: String = ""
    group_instance_id: NullableString = None
    reason: Annotated[NullableString, Since(5)] = None


class LeaveGroupRequest(NamedTuple):
    """Removes members from their group; several since version 3 (KIP-345)."""

    group_id: String = ""
    member_id: Annotated[String, Until(2)] = ""
    members: Annotated[tuple[LeaveGroupRequestMember, ...], Since(3)] = ()


class LeaveGroupResponseMember(NamedTuple):
    """The result for one member: error code 0 if it has left."""

    member_id: String = ""
    group_instance_id: NullableString = None
    error_code: Int16 = 0


class LeaveGroupResponse(NamedTuple):
    """One result for each member; one for all before version 3."""

    throttle_time_ms: Annotated[Int32, Since(1)] = 0
    error_code: Int16 = 0
    members: Annotated[tuple[LeaveGroupResponseMember, ...], Since(3)] = ()
