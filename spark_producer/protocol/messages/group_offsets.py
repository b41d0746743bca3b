"""The messages about the offsets of consumer groups: OffsetCommit, OffsetFetch, OffsetDelete."""

# Annotations are evaluated here on purpose (no `from __future__`): they are the schema.
from typing import Annotated, NamedTuple

from spark_producer.protocol.fields import (
    Bool,
    Int16,
    Int32,
    Int64,
    NullableSince,
    NullableString,
    Since,
    String,
    Until,
)

# OffsetCommit (8)


class OffsetCommitRequestPartition(NamedTuple):
    """The next offset that the group reads in one partition."""

    partition_index: Int32 = 0
    committed_offset: Int64 = 0
    committed_leader_epoch: Annotated[Int32, Since(6)] = -1
    committed_metadata: NullableString = ""


class OffsetCommitRequestTopic(NamedTuple):
    """The partitions of one topic."""

    name: String = ""
    partitions: tuple[OffsetCommitRequestPartition, ...] = ()


class OffsetCommitRequest(NamedTuple):
    """Commits offsets of a group. A client that is not a member sends generation -1 and no member id."""

    group_id: String = ""
    generation_id_or_member_epoch: Int32 = -1
    member_id: String = ""
    group_instance_id: Annotated[NullableString, Since(7)] = None
    retention_time_ms: Annotated[Int64, Until(4)] = -1
    topics: tuple[OffsetCommitRequestTopic, ...] = ()


class OffsetCommitResponsePartition(NamedTuple):
    """The result for one partition: error code 0 if its offset was committed."""

    partition_index: Int32 = 0
    error_code: Int16 = 0


class OffsetCommitResponseTopic(NamedTuple):
    """The partitions of one topic."""

    name: String = ""
    partitions: tuple[OffsetCommitResponsePartition, ...] = ()


class OffsetCommitResponse(NamedTuple):
    """One result for each partition."""

    throttle_time_ms: Annotated[Int32, Since(3)] = 0
    topics: tuple[OffsetCommitResponseTopic, ...] = ()


# OffsetFetch (9)


class OffsetFetchRequestTopic(NamedTuple):
    """The partitions of one topic."""

    name: String = ""
    partition_indexes: tuple[Int32, ...] = ()


class OffsetFetchRequestGroup(NamedTuple):
    """The requested topics of one group; None requests all of its topics."""

    group_id: String = ""
    member_id: Annotated[NullableString, Since(9)] = None
    member_epoch: Annotated[Int32, Since(9)] = -1
    topics: tuple[OffsetFetchRequestTopic, ...] | None = ()


class OffsetFetchRequest(NamedTuple):
    """Asks for committed offsets. With `require_stable` an offset that an open transaction may change is refused (KIP-447)."""

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
    """The requested offsets."""

    throttle_time_ms: Annotated[Int32, Since(3)] = 0
    topics: Annotated[tuple[OffsetFetchResponseTopic, ...], Until(7)] = ()
    error_code: Annotated[Int16, Since(2), Until(7)] = 0
    groups: Annotated[tuple[OffsetFetchResponseGroup, ...], Since(8)] = ()


# OffsetDelete (47)


class OffsetDeleteRequestPartition(NamedTuple):
    """One partition."""

    partition_index: Int32 = 0


class OffsetDeleteRequestTopic(NamedTuple):
    """The partitions of one topic."""

    name: String = ""
    partitions: tuple[OffsetDeleteRequestPartition, ...] = ()


class OffsetDeleteRequest(NamedTuple):
    """Deletes offsets of a group (KIP-496)."""

    group_id: String = ""
    topics: tuple[OffsetDeleteRequestTopic, ...] = ()


class OffsetDeleteResponsePartition(NamedTuple):
    """The result for one partition: error code 0 if its offset was deleted."""

    partition_index: Int32 = 0
    error_code: Int16 = 0


class OffsetDeleteResponseTopic(NamedTuple):
    """The partitions of one topic."""

    name: String = ""
    partitions: tuple[OffsetDeleteResponsePartition, ...] = ()


class OffsetDeleteResponse(NamedTuple):
    """One result for each partition, unless the group as a whole is refused."""

    error_code: Int16 = 0
    throttle_time_ms: Int32 = 0
    topics: tuple[OffsetDeleteResponseTopic, ...] = ()
