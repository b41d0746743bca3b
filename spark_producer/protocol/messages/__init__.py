"""The messages of the Kafka protocol that this package speaks, as typed tuples that carry their own schema.

Owns: the names, types, versions, tags and defaults of every field (Kafka's message JSON files).
Must not know: how bytes are read and written (`codec`), or which versions the package offers (`apis`).

A message is the same tuple in every version: a field that a version lacks is not written, and has its default when read.
Field names are Kafka's in snake_case. Topic ids are 16 bytes, zero for none. Error codes are plain integers.
"""

import importlib
from typing import TYPE_CHECKING, Any

from spark_producer.protocol.messages.cluster import (
    NO_UUID,
    OPERATIONS_UNKNOWN,
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
    SupportedFeatureKey,
)
from spark_producer.protocol.messages.produce import (
    NO_TIMEOUT,
    BatchIndexAndErrorMessage,
    InitProducerIdRequest,
    InitProducerIdResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    ProducePartition,
    ProducePartitionResponse,
    ProduceRequest,
    ProduceResponse,
    ProduceTopic,
    ProduceTopicResponse,
)

if TYPE_CHECKING:
    from spark_producer.protocol.messages.configs import (
        AlterableConfig,
        AlterConfigsResource,
        AlterConfigsResourceResponse,
        DescribeConfigsRequest,
        DescribeConfigsResource,
        DescribeConfigsResourceResult,
        DescribeConfigsResponse,
        DescribeConfigsResult,
        DescribeConfigsSynonym,
        IncrementalAlterConfigsRequest,
        IncrementalAlterConfigsResponse,
    )
    from spark_producer.protocol.messages.fetch import (
        AbortedTransaction,
        EpochEndOffset,
        FetchPartition,
        FetchPartitionResponse,
        FetchRequest,
        FetchResponse,
        FetchTopic,
        FetchTopicResponse,
        ForgottenTopic,
        ListOffsetsPartition,
        ListOffsetsPartitionResponse,
        ListOffsetsRequest,
        ListOffsetsResponse,
        ListOffsetsTopic,
        ListOffsetsTopicResponse,
        SnapshotId,
    )
    from spark_producer.protocol.messages.groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
    from spark_producer.protocol.messages.sasl import (
        SaslAuthenticateRequest,
        SaslAuthenticateResponse,
        SaslHandshakeRequest,
        SaslHandshakeResponse,
    )
    from spark_producer.protocol.messages.topics import (
        CreatableReplicaAssignment,
        CreatableTopic,
        CreatableTopicConfig,
        CreatableTopicConfigs,
        CreatableTopicResult,
        CreateTopicsRequest,
        CreateTopicsResponse,
        DeletableTopicResult,
        DeleteTopicsRequest,
        DeleteTopicsResponse,
    )

_LATER = ("configs", "fetch", "groups", "sasl", "topics")
"""The modules with the messages of readers and administrators, and of logins. A plain writer needs none of them, and their
classes are a third of what all classes cost a new Python worker: 40 types, each made by generated code (`python -m
benchmarks.imports`)."""

__all__ = [
    "NO_TIMEOUT",
    "NO_UUID",
    "OPERATIONS_UNKNOWN",
    "AbortedTransaction",
    "AlterConfigsResource",
    "AlterConfigsResourceResponse",
    "AlterableConfig",
    "ApiVersion",
    "ApiVersionsRequest",
    "ApiVersionsResponse",
    "BatchIndexAndErrorMessage",
    "CreatableReplicaAssignment",
    "CreatableTopic",
    "CreatableTopicConfig",
    "CreatableTopicConfigs",
    "CreatableTopicResult",
    "CreateTopicsRequest",
    "CreateTopicsResponse",
    "DeletableTopicResult",
    "DeleteTopicsRequest",
    "DeleteTopicsResponse",
    "DescribeConfigsRequest",
    "DescribeConfigsResource",
    "DescribeConfigsResourceResult",
    "DescribeConfigsResponse",
    "DescribeConfigsResult",
    "DescribeConfigsSynonym",
    "EpochEndOffset",
    "FetchPartition",
    "FetchPartitionResponse",
    "FetchRequest",
    "FetchResponse",
    "FetchTopic",
    "FetchTopicResponse",
    "FinalizedFeatureKey",
    "ForgottenTopic",
    "IncrementalAlterConfigsRequest",
    "IncrementalAlterConfigsResponse",
    "InitProducerIdRequest",
    "InitProducerIdResponse",
    "LeaderIdAndEpoch",
    "ListGroupsRequest",
    "ListGroupsResponse",
    "ListOffsetsPartition",
    "ListOffsetsPartitionResponse",
    "ListOffsetsRequest",
    "ListOffsetsResponse",
    "ListOffsetsTopic",
    "ListOffsetsTopicResponse",
    "ListedGroup",
    "MetadataRequest",
    "MetadataRequestTopic",
    "MetadataResponse",
    "MetadataResponseBroker",
    "MetadataResponsePartition",
    "MetadataResponseTopic",
    "NodeEndpoint",
    "ProducePartition",
    "ProducePartitionResponse",
    "ProduceRequest",
    "ProduceResponse",
    "ProduceTopic",
    "ProduceTopicResponse",
    "SaslAuthenticateRequest",
    "SaslAuthenticateResponse",
    "SaslHandshakeRequest",
    "SaslHandshakeResponse",
    "SnapshotId",
    "SupportedFeatureKey",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    for home in _LATER:
        found = vars(importlib.import_module(f"{__name__}.{home}"))
        globals().update((known, found[known]) for known in __all__ if known in found)
    return globals()[name]
