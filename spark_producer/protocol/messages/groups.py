"""The messages about coordinators and consumer groups: FindCoordinator, ListGroups, OffsetFetch."""

# Annotations are evaluated here on purpose (no `from __future__`): they are the schema.
from typing import Annotated, NamedTuple

from spark_producer.protocol.fields import (
    Bool,
    Int8,
    Int16,
    Int32,
    Int64,
    NullableSince,
    NullableString,
    Since,
    String,
    Until,
)

# ListGroups (16)


class ListGroupsRequest(NamedTuple):
    """Asks which groups there are. An empty filter lets all of them pass (KIP-518, KIP-848)."""

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


class Coordinator(NamedTuple):
    """The coordinator of one key."""

    key: String = ""
    node_id: Int32 = 0
    host: String = ""
    port: Int32 = 0
    error_code: Int16 = 0
    error_message: NullableString = None


class FindCoordinatorResponse(NamedTuple):
    """The coordinator that was asked for; several since version 4."""

    throttle_time_ms: Annotated[Int32, Since(1)] = 0
    error_code: Annotated[Int16, Until(3)] = 0
    error_message: Annotated[NullableString, Since(1), Until(3)] = None
    node_id: Annotated[Int32, Until(3)] = 0
    host: Annotated[String, Until(3)] = ""
    port: Annotated[Int32, Until(3)] = 0
    coordinators: Annotated[tuple[Coordinator, ...], Since(4)] = ()


# OffsetFetch (9)


class OffsetFetchRequestTopic(NamedTuple):
    """The partitions of one topic."""

    name: String = ""
    partition_indexes: tuple[Int32, ...] = ()


class OffsetFetchRequestGroup(NamedTuple):
    """What is asked of one group; None asks for all its topics."""

    group_id: String = ""
    member_id: Annotated[NullableString, Since(9)] = None
    member_epoch: Annotated[Int32, Since(9)] = -1
    topics: tuple[OffsetFetchRequestTopic, ...] | None = ()


class OffsetFetchRequest(NamedTuple):
    """Asks for committed offsets; with `require_stable` not while a transaction may change them (KIP-447)."""

    group_id: Annotated[String, Until(7)] = ""
    topics: Annotated[tuple[OffsetFetchRequestTopic, ...] | None, Until(7), NullableSince(2)] = ()
    groups: Annotated[tuple[OffsetFetchRequestGroup, ...], Since(8)] = ()
    require_stable: Annotated[Bool, Since(7)] = False


class OffsetFetchResponsePartition(NamedTuple):
    """The committed offset of one partition; -1 if there is none."""

    partition_index: Int32 = 0
    committed_offset: Int64 = -1
    committed_leader_epoch: Annotated[Int32, Since(5)] = -1
    metadata: NullableString = ""
    error_code: Int16 = 0


class OffsetFetchResponseTopic(NamedTuple):
    """The partitions of one topic."""

    name: String = ""
    partitions: tuple[OffsetFetchResponsePartition, ...] = ()


class OffsetFetchResponseGroup(NamedTuple):
    """The offsets of one group."""

    group_id: String = ""
    topics: tuple[OffsetFetchResponseTopic, ...] = ()
    error_code: Int16 = 0


class OffsetFetchResponse(NamedTuple):
    """The offsets that were asked for."""

    throttle_time_ms: Annotated[Int32, Since(3)] = 0
    topics: Annotated[tuple[OffsetFetchResponseTopic, ...], Until(7)] = ()
    error_code: Annotated[Int16, Since(2), Until(7)] = 0
    groups: Annotated[tuple[OffsetFetchResponseGroup, ...], Since(8)] = ()
