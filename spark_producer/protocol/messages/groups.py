"""The messages about groups as a whole: FindCoordinator, ListGroups, DescribeGroups, DeleteGroups."""

# Annotations are evaluated here on purpose (no `from __future__`): they are the schema.
from typing import Annotated, NamedTuple

from spark_producer.protocol.fields import Bool, Bytes, Int8, Int16, Int32, NullableString, Since, String, Until
from spark_producer.protocol.messages.cluster import OPERATIONS_UNKNOWN

# ListGroups (16)


class ListGroupsRequest(NamedTuple):
    """Asks for the groups. An empty filter matches all of them (KIP-518, KIP-848)."""

    states_filter: Annotated[tuple[String, ...], Since(4)] = ()
    types_filter: Annotated[tuple[String, ...], Since(5)] = ()


class ListedGroup(NamedTuple):
    """One group."""

    group_id: String = ""
    protocol_type: String = ""
    group_state: Annotated[String, Since(4)] = ""
    group_type: Annotated[String, Since(5)] = ""


class ListGroupsResponse(NamedTuple):
    """The groups that this broker coordinates."""

    throttle_time_ms: Annotated[Int32, Since(1)] = 0
    error_code: Int16 = 0
    groups: tuple[ListedGroup, ...] = ()


# FindCoordinator (10)


class FindCoordinatorRequest(NamedTuple):
    """Asks which broker coordinates a group (`key_type` 0) or the transactions of an id (1); several since version 4."""

    key: Annotated[String, Until(3)] = ""
    key_type: Annotated[Int8, Since(1)] = 0
    coordinator_keys: Annotated[tuple[String, ...], Since(4)] = ()


class FoundCoordinator(NamedTuple):
    """The coordinator of one key."""

    key: String = ""
    node_id: Int32 = 0
    host: String = ""
    port: Int32 = 0
    error_code: Int16 = 0
    error_message: NullableString = None


class FindCoordinatorResponse(NamedTuple):
    """The requested coordinator; several since version 4."""

    throttle_time_ms: Annotated[Int32, Since(1)] = 0
    error_code: Annotated[Int16, Until(3)] = 0
    error_message: Annotated[NullableString, Since(1), Until(3)] = None
    node_id: Annotated[Int32, Until(3)] = 0
    host: Annotated[String, Until(3)] = ""
    port: Annotated[Int32, Until(3)] = 0
    coordinators: Annotated[tuple[FoundCoordinator, ...], Since(4)] = ()


# DescribeGroups (15)


class DescribeGroupsRequest(NamedTuple):
    """Asks for the states and members of groups; authorized operations are never requested (KIP-430)."""

    groups: tuple[String, ...] = ()
    include_authorized_operations: Annotated[Bool, Since(3)] = False


class DescribedGroupMember(NamedTuple):
    """One member: its metadata for the group's protocol, and its assignment."""

    member_id: String = ""
    group_instance_id: Annotated[NullableString, Since(4)] = None
    client_id: String = ""
    client_host: String = ""
    member_metadata: Bytes = b""
    member_assignment: Bytes = b""


class DescribedGroup(NamedTuple):
    """One group. The protocol, and the metadata of its members, are empty unless the group is stable."""

    error_code: Int16 = 0
    error_message: Annotated[NullableString, Since(6)] = None
    group_id: String = ""
    group_state: String = ""
    protocol_type: String = ""
    protocol_data: String = ""
    members: tuple[DescribedGroupMember, ...] = ()
    authorized_operations: Annotated[Int32, Since(3)] = OPERATIONS_UNKNOWN


class DescribeGroupsResponse(NamedTuple):
    """One row for each group."""

    throttle_time_ms: Annotated[Int32, Since(1)] = 0
    groups: tuple[DescribedGroup, ...] = ()


# DeleteGroups (42)


class DeleteGroupsRequest(NamedTuple):
    """Deletes groups with their offsets (KIP-229)."""

    groups_names: tuple[String, ...] = ()


class DeletableGroupResult(NamedTuple):
    """The result for one group: error code 0 if it was deleted."""

    group_id: String = ""
    error_code: Int16 = 0


class DeleteGroupsResponse(NamedTuple):
    """One result for each group."""

    throttle_time_ms: Int32 = 0
    results: tuple[DeletableGroupResult, ...] = ()
