"""The table of the APIs that this package supports, and their versions.

A new API is a constant here, an entry of `APIS`, and an export of `protocol`.
"""

from __future__ import annotations

import functools
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

from spark_producer.protocol import messages
from spark_producer.protocol.fields import Struct, describe

RequestBody = TypeVar("RequestBody", bound=tuple[Any, ...])
ResponseBody = TypeVar("ResponseBody", bound=tuple[Any, ...])


class Api(NamedTuple, Generic[RequestBody, ResponseBody]):
    """One API of the protocol: its versions (both ends included), and its messages.

    `messages` is the prefix of their names. Their schemas are made at first use, because a worker uses only four of these APIs
    (`python -m benchmarks.imports`). So their types are only in the annotations of the table below.
    """

    key: int
    name: str
    min_version: int
    max_version: int
    first_flexible: int
    messages: str

    @property
    def request(self) -> Struct[RequestBody]:
        """The schema of the request."""
        return _schema(f"{self.messages}Request")

    @property
    def response(self) -> Struct[ResponseBody]:
        """The schema of the response."""
        return _schema(f"{self.messages}Response")


NEVER_FLEXIBLE = 0x7FFF
"""The first flexible version of an API that has none."""

AnyApi: TypeAlias = Api[Any, Any]
"""An API whose messages are known only at run time."""


@functools.cache
def _schema(message: str) -> Struct[Any]:
    return describe(getattr(messages, message))


def _api(key: int, name: str, versions: tuple[int, int], first_flexible: int) -> Api[RequestBody, ResponseBody]:
    return Api(key, name, *versions, first_flexible, messages=name)


# Produce starts at 3: older versions carry V0/V1 message sets, which brokers since 4.0 refuse although they still
# advertise 0 (KAFKA-18659).
PRODUCE_BY_ID: Api[messages.ProduceRequest, messages.ProduceResponse] = _api(0, "Produce", (3, 13), first_flexible=9)
PRODUCE = PRODUCE_BY_ID._replace(max_version=12)
"""Produce by the names of topics, for requests without their ids: from 13 on a topic has only its id (KIP-516)."""
PRODUCE_ZSTD = PRODUCE_BY_ID._replace(name="Produce with zstd (kafka.compression.type)", min_version=7)
"""Brokers before 2.1, which speak Produce up to 6, do not know zstd (KIP-110)."""
# From 14 on Fetch has only what followers and tiered storage need.
FETCH_BY_ID: Api[messages.FetchRequest, messages.FetchResponse] = _api(1, "Fetch", (4, 13), first_flexible=12)
FETCH = FETCH_BY_ID._replace(max_version=12)
"""Fetch by the names of topics, for requests without their ids: from 13 on a topic has only its id (KIP-516)."""
LIST_OFFSETS: Api[messages.ListOffsetsRequest, messages.ListOffsetsResponse] = _api(
    2, "ListOffsets", (1, 7), first_flexible=6
)
METADATA: Api[messages.MetadataRequest, messages.MetadataResponse] = _api(3, "Metadata", (1, 13), first_flexible=9)
OFFSET_COMMIT: Api[messages.OffsetCommitRequest, messages.OffsetCommitResponse] = _api(
    8, "OffsetCommit", (2, 9), first_flexible=8
)
OFFSET_FETCH: Api[messages.OffsetFetchRequest, messages.OffsetFetchResponse] = _api(
    9, "OffsetFetch", (1, 9), first_flexible=6
)
FIND_COORDINATOR: Api[messages.FindCoordinatorRequest, messages.FindCoordinatorResponse] = _api(
    10, "FindCoordinator", (0, 6), first_flexible=3
)
JOIN_GROUP: Api[messages.JoinGroupRequest, messages.JoinGroupResponse] = _api(11, "JoinGroup", (0, 9), first_flexible=6)
HEARTBEAT: Api[messages.HeartbeatRequest, messages.HeartbeatResponse] = _api(12, "Heartbeat", (0, 4), first_flexible=4)
LEAVE_GROUP: Api[messages.LeaveGroupRequest, messages.LeaveGroupResponse] = _api(
    13, "LeaveGroup", (0, 5), first_flexible=4
)
SYNC_GROUP: Api[messages.SyncGroupRequest, messages.SyncGroupResponse] = _api(14, "SyncGroup", (0, 5), first_flexible=4)
DESCRIBE_GROUPS: Api[messages.DescribeGroupsRequest, messages.DescribeGroupsResponse] = _api(
    15, "DescribeGroups", (0, 6), first_flexible=5
)
LIST_GROUPS: Api[messages.ListGroupsRequest, messages.ListGroupsResponse] = _api(
    16, "ListGroups", (0, 5), first_flexible=3
)
SASL_HANDSHAKE: Api[messages.SaslHandshakeRequest, messages.SaslHandshakeResponse] = _api(
    17, "SaslHandshake", (0, 1), first_flexible=NEVER_FLEXIBLE
)
API_VERSIONS: Api[messages.ApiVersionsRequest, messages.ApiVersionsResponse] = _api(
    18, "ApiVersions", (0, 5), first_flexible=3
)
CREATE_TOPICS: Api[messages.CreateTopicsRequest, messages.CreateTopicsResponse] = _api(
    19, "CreateTopics", (2, 7), first_flexible=5
)
DELETE_TOPICS: Api[messages.DeleteTopicsRequest, messages.DeleteTopicsResponse] = _api(
    20, "DeleteTopics", (1, 5), first_flexible=4
)
DELETE_RECORDS: Api[messages.DeleteRecordsRequest, messages.DeleteRecordsResponse] = _api(
    21, "DeleteRecords", (0, 2), first_flexible=2
)
INIT_PRODUCER_ID: Api[messages.InitProducerIdRequest, messages.InitProducerIdResponse] = _api(
    22, "InitProducerId", (0, 5), first_flexible=2
)
# From 4 on AddPartitionsToTxn is spoken between brokers only.
ADD_PARTITIONS_TO_TXN: Api[messages.AddPartitionsToTxnRequest, messages.AddPartitionsToTxnResponse] = _api(
    24, "AddPartitionsToTxn", (0, 3), first_flexible=3
)
ADD_OFFSETS_TO_TXN: Api[messages.AddOffsetsToTxnRequest, messages.AddOffsetsToTxnResponse] = _api(
    25, "AddOffsetsToTxn", (0, 4), first_flexible=3
)
END_TXN: Api[messages.EndTxnRequest, messages.EndTxnResponse] = _api(26, "EndTxn", (0, 5), first_flexible=3)
WRITE_TXN_MARKERS: Api[messages.WriteTxnMarkersRequest, messages.WriteTxnMarkersResponse] = _api(
    27, "WriteTxnMarkers", (1, 1), first_flexible=1
)
TXN_OFFSET_COMMIT: Api[messages.TxnOffsetCommitRequest, messages.TxnOffsetCommitResponse] = _api(
    28, "TxnOffsetCommit", (0, 5), first_flexible=3
)
SASL_AUTHENTICATE: Api[messages.SaslAuthenticateRequest, messages.SaslAuthenticateResponse] = _api(
    36, "SaslAuthenticate", (0, 2), first_flexible=2
)
DESCRIBE_CONFIGS: Api[messages.DescribeConfigsRequest, messages.DescribeConfigsResponse] = _api(
    32, "DescribeConfigs", (1, 4), first_flexible=4
)
ALTER_CONFIGS: Api[messages.AlterConfigsRequest, messages.AlterConfigsResponse] = _api(
    33, "AlterConfigs", (0, 2), first_flexible=2
)
# DescribeLogDirs begins at 1: version 0 went with Kafka 4.0.
DESCRIBE_LOG_DIRS: Api[messages.DescribeLogDirsRequest, messages.DescribeLogDirsResponse] = _api(
    35, "DescribeLogDirs", (1, 4), first_flexible=2
)
CREATE_PARTITIONS: Api[messages.CreatePartitionsRequest, messages.CreatePartitionsResponse] = _api(
    37, "CreatePartitions", (0, 3), first_flexible=2
)
INCREMENTAL_ALTER_CONFIGS: Api[messages.IncrementalAlterConfigsRequest, messages.IncrementalAlterConfigsResponse] = (
    _api(44, "IncrementalAlterConfigs", (0, 1), first_flexible=1)
)
DELETE_GROUPS: Api[messages.DeleteGroupsRequest, messages.DeleteGroupsResponse] = _api(
    42, "DeleteGroups", (0, 2), first_flexible=2
)
OFFSET_DELETE: Api[messages.OffsetDeleteRequest, messages.OffsetDeleteResponse] = _api(
    47, "OffsetDelete", (0, 0), first_flexible=NEVER_FLEXIBLE
)
DESCRIBE_PRODUCERS: Api[messages.DescribeProducersRequest, messages.DescribeProducersResponse] = _api(
    61, "DescribeProducers", (0, 0), first_flexible=0
)
DESCRIBE_TRANSACTIONS: Api[messages.DescribeTransactionsRequest, messages.DescribeTransactionsResponse] = _api(
    65, "DescribeTransactions", (0, 0), first_flexible=0
)
LIST_TRANSACTIONS: Api[messages.ListTransactionsRequest, messages.ListTransactionsResponse] = _api(
    66, "ListTransactions", (0, 2), first_flexible=0
)

# Brokers offer these two only if they have a plugin that takes the metrics (KIP-714). The embedded broker has none.
GET_TELEMETRY_SUBSCRIPTIONS: Api[
    messages.GetTelemetrySubscriptionsRequest, messages.GetTelemetrySubscriptionsResponse
] = _api(71, "GetTelemetrySubscriptions", (0, 0), first_flexible=0)
PUSH_TELEMETRY: Api[messages.PushTelemetryRequest, messages.PushTelemetryResponse] = _api(
    72, "PushTelemetry", (0, 0), first_flexible=0
)

APIS: dict[int, AnyApi] = {
    api.key: api
    for api in (
        PRODUCE_BY_ID, FETCH_BY_ID, LIST_OFFSETS, METADATA, OFFSET_FETCH, FIND_COORDINATOR, LIST_GROUPS, API_VERSIONS,
        CREATE_TOPICS, DELETE_TOPICS, INIT_PRODUCER_ID, DESCRIBE_CONFIGS, INCREMENTAL_ALTER_CONFIGS, SASL_HANDSHAKE,
        SASL_AUTHENTICATE, ADD_PARTITIONS_TO_TXN, ADD_OFFSETS_TO_TXN, END_TXN, WRITE_TXN_MARKERS, TXN_OFFSET_COMMIT,
        DESCRIBE_PRODUCERS, DESCRIBE_TRANSACTIONS, LIST_TRANSACTIONS, OFFSET_COMMIT, JOIN_GROUP, HEARTBEAT, LEAVE_GROUP,
        SYNC_GROUP, DESCRIBE_GROUPS, DELETE_GROUPS, OFFSET_DELETE, DELETE_RECORDS, ALTER_CONFIGS, DESCRIBE_LOG_DIRS,
        CREATE_PARTITIONS,
    )
}  # fmt: skip
"""Every API that the embedded broker offers, by its key: all but those of telemetry."""

MAX_RESPONSE_BYTES = {GET_TELEMETRY_SUBSCRIPTIONS.key: 1 << 16}
"""Maximum bytes of the responses that a client decodes, of APIs (by key) whose responses it can do without."""


def produce_by_name(
    produce: Api[messages.ProduceRequest, messages.ProduceResponse],
) -> Api[messages.ProduceRequest, messages.ProduceResponse]:
    """Return the versions of `produce` that have the names of topics."""
    return produce._replace(max_version=min(produce.max_version, PRODUCE.max_version))


CLIENT_THROTTLES_SINCE: dict[int, int] = {
    0: 6, 1: 8, 2: 3, 3: 6, 9: 4, 10: 2, 18: 2, 19: 3, 20: 2, 22: 1, 24: 1, 25: 1, 26: 1, 28: 1,
}  # fmt: skip
"""The first version of each API (by key) whose throttle time the client must wait out; before, the broker waited (KIP-219)."""
