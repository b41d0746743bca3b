"""The messages about the cluster: ApiVersions and Metadata."""

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
    Tag,
    Until,
    Uuid,
)

NO_UUID = bytes(16)
OPERATIONS_UNKNOWN = -(1 << 31)
"""The value of authorized operations that were not requested (KIP-430)."""


# ApiVersions (18)


class ApiVersionsRequest(NamedTuple):
    """Asks which versions of which APIs the broker speaks. Software name and version are for the broker's metrics (KIP-511).

    A broker that has not the cluster id and the node id refuses the request (KIP-1242); None and -1 are not compared.
    """

    client_software_name: Annotated[String, Since(3)] = ""
    client_software_version: Annotated[String, Since(3)] = ""
    cluster_id: Annotated[NullableString, Since(5)] = None
    node_id: Annotated[Int32, Since(5)] = -1


class ApiVersion(NamedTuple):
    """The versions of one API."""

    api_key: Int16 = 0
    min_version: Int16 = 0
    max_version: Int16 = 0


class SupportedFeatureKey(NamedTuple):
    """A feature that the broker supports (KIP-584)."""

    name: String = ""
    min_version: Int16 = 0
    max_version: Int16 = 0


class FinalizedFeatureKey(NamedTuple):
    """A feature that the cluster has agreed on (KIP-584)."""

    name: String = ""
    max_version_level: Int16 = 0
    min_version_level: Int16 = 0


class ApiVersionsResponse(NamedTuple):
    """The versions and features of a broker. With error 35 the body is in version 0, whatever the version of the request."""

    error_code: Int16 = 0
    api_keys: tuple[ApiVersion, ...] = ()
    throttle_time_ms: Annotated[Int32, Since(1)] = 0
    supported_features: Annotated[tuple[SupportedFeatureKey, ...], Since(3), Tag(0)] = ()
    finalized_features_epoch: Annotated[Int64, Since(3), Tag(1)] = -1
    finalized_features: Annotated[tuple[FinalizedFeatureKey, ...], Since(3), Tag(2)] = ()
    zk_migration_ready: Annotated[Bool, Since(3), Tag(3)] = False


# Metadata (3)


class MetadataRequestTopic(NamedTuple):
    """A topic to describe, by name or, without a name, by id."""

    topic_id: Annotated[Uuid, Since(10)] = NO_UUID
    name: Annotated[NullableString, NullableSince(10)] = ""


class MetadataRequest(NamedTuple):
    """Asks for topics: `topics` None asks for all of them, an empty tuple for none."""

    topics: tuple[MetadataRequestTopic, ...] | None = ()
    allow_auto_topic_creation: Annotated[Bool, Since(4)] = True
    include_cluster_authorized_operations: Annotated[Bool, Since(8), Until(10)] = False
    include_topic_authorized_operations: Annotated[Bool, Since(8)] = False


class MetadataResponseBroker(NamedTuple):
    """The address of a broker."""

    node_id: Int32 = 0
    host: String = ""
    port: Int32 = 0
    rack: Annotated[NullableString, Since(1)] = None


class MetadataResponsePartition(NamedTuple):
    """The leader of a partition, and its followers."""

    error_code: Int16 = 0
    partition_index: Int32 = 0
    leader_id: Int32 = -1
    leader_epoch: Annotated[Int32, Since(7)] = -1
    replica_nodes: tuple[Int32, ...] = ()
    isr_nodes: tuple[Int32, ...] = ()
    offline_replicas: Annotated[tuple[Int32, ...], Since(5)] = ()


class MetadataResponseTopic(NamedTuple):
    """A topic, or the reason why there is none."""

    error_code: Int16 = 0
    name: Annotated[NullableString, NullableSince(12)] = ""
    topic_id: Annotated[Uuid, Since(10)] = NO_UUID
    is_internal: Annotated[Bool, Since(1)] = False
    partitions: tuple[MetadataResponsePartition, ...] = ()
    topic_authorized_operations: Annotated[Int32, Since(8)] = OPERATIONS_UNKNOWN


class MetadataResponse(NamedTuple):
    """The cluster: its brokers, its controller, the requested topics. The error code is that of the whole response (KIP-1102)."""

    throttle_time_ms: Annotated[Int32, Since(3)] = 0
    brokers: tuple[MetadataResponseBroker, ...] = ()
    cluster_id: Annotated[NullableString, Since(2)] = None
    controller_id: Annotated[Int32, Since(1)] = -1
    topics: tuple[MetadataResponseTopic, ...] = ()
    cluster_authorized_operations: Annotated[Int32, Since(8), Until(10)] = OPERATIONS_UNKNOWN
    error_code: Annotated[Int16, Since(13)] = 0
