"""The messages that write: Produce and InitProducerId."""

# Annotations are evaluated here on purpose (no `from __future__`): they are the schema.
from typing import Annotated, NamedTuple

from spark_producer.protocol.fields import (
    Int16,
    Int32,
    Int64,
    NullableString,
    Records,
    Since,
    String,
    Tag,
    Until,
    Uuid,
)
from spark_producer.protocol.messages.cluster import NO_UUID

NO_TIMEOUT = 0x7FFFFFFF
"""The transaction timeout that a merely idempotent producer sends, since it must be positive."""


# Produce (0)


class ProducePartition(NamedTuple):
    """The record batch of one partition (exactly one since version 3)."""

    index: Int32 = 0  # type: ignore[assignment]  # Kafka's name wins over tuple.index
    records: Records = None


class ProduceTopic(NamedTuple):
    """The partitions of one topic, which has its id instead of its name from 13 on (KIP-516)."""

    name: Annotated[String, Until(12)] = ""
    topic_id: Annotated[Uuid, Since(13)] = NO_UUID
    partition_data: tuple[ProducePartition, ...] = ()


class ProduceRequest(NamedTuple):
    """Writes batches. `acks` -1 is all replicas in sync, 1 is the leader, 0 is none: then there is no response frame at all."""

    transactional_id: Annotated[NullableString, Since(3)] = None
    acks: Int16 = -1
    timeout_ms: Int32 = 0
    topic_data: tuple[ProduceTopic, ...] = ()


class BatchIndexAndErrorMessage(NamedTuple):
    """A record that made the broker drop the batch (KIP-467)."""

    batch_index: Int32 = 0
    batch_index_error_message: NullableString = None


class LeaderIdAndEpoch(NamedTuple):
    """The leader that the broker knows (KIP-951)."""

    leader_id: Int32 = -1
    leader_epoch: Int32 = -1


class ProducePartitionResponse(NamedTuple):
    """The base offset of the batch, or the reason why it was refused. `log_append_time_ms` is -1 for topics with CreateTime."""

    index: Int32 = 0  # type: ignore[assignment]  # Kafka's name wins over tuple.index
    error_code: Int16 = 0
    base_offset: Int64 = -1
    log_append_time_ms: Annotated[Int64, Since(2)] = -1
    log_start_offset: Annotated[Int64, Since(5)] = -1
    record_errors: Annotated[tuple[BatchIndexAndErrorMessage, ...], Since(8)] = ()
    error_message: Annotated[NullableString, Since(8)] = None
    current_leader: Annotated[LeaderIdAndEpoch, Since(10), Tag(0)] = LeaderIdAndEpoch()


class ProduceTopicResponse(NamedTuple):
    """The partitions of one topic, by name or, from 13 on, by id."""

    name: Annotated[String, Until(12)] = ""
    topic_id: Annotated[Uuid, Since(13)] = NO_UUID
    partition_responses: tuple[ProducePartitionResponse, ...] = ()


class NodeEndpoint(NamedTuple):
    """The address of a new leader (KIP-951)."""

    node_id: Int32 = 0
    host: String = ""
    port: Int32 = 0
    rack: NullableString = None


class ProduceResponse(NamedTuple):
    """One result for each partition of the request, in any order."""

    responses: tuple[ProduceTopicResponse, ...] = ()
    throttle_time_ms: Annotated[Int32, Since(1)] = 0
    node_endpoints: Annotated[tuple[NodeEndpoint, ...], Since(10), Tag(0)] = ()


# InitProducerId (22)


class InitProducerIdRequest(NamedTuple):
    """Asks for a producer id and epoch; it names those in use to bump the epoch (KIP-360), or -1 to get new ones."""

    transactional_id: NullableString = None
    transaction_timeout_ms: Int32 = NO_TIMEOUT
    producer_id: Annotated[Int64, Since(3)] = -1
    producer_epoch: Annotated[Int16, Since(3)] = -1


class InitProducerIdResponse(NamedTuple):
    """The producer's id and epoch."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    producer_id: Int64 = -1
    producer_epoch: Int16 = 0
