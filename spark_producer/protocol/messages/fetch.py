"""The messages that read records: Fetch."""

# Annotations are evaluated here on purpose (no `from __future__`): they are the schema.
from typing import Annotated, NamedTuple

from spark_producer.protocol.fields import (
    Int8,
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
from spark_producer.protocol.messages.produce import LeaderIdAndEpoch

# Fetch (1)


class FetchPartition(NamedTuple):
    """One partition to read: the first offset, and the maximum bytes."""

    partition: Int32 = 0
    current_leader_epoch: Annotated[Int32, Since(9)] = -1
    fetch_offset: Int64 = 0
    last_fetched_epoch: Annotated[Int32, Since(12)] = -1
    log_start_offset: Annotated[Int64, Since(5)] = -1
    partition_max_bytes: Int32 = 0


class FetchTopic(NamedTuple):
    """The partitions of one topic, which has its id instead of its name from 13 on (KIP-516)."""

    topic: Annotated[String, Until(12)] = ""
    topic_id: Annotated[Uuid, Since(13)] = NO_UUID
    partitions: tuple[FetchPartition, ...] = ()


class ForgottenTopic(NamedTuple):
    """Partitions to drop from an incremental fetch session (KIP-227)."""

    topic: Annotated[String, Until(12)] = ""
    topic_id: Annotated[Uuid, Since(13)] = NO_UUID
    partitions: tuple[Int32, ...] = ()


class FetchRequest(NamedTuple):
    """Asks for records. `replica_id` -1 is a consumer; `session_epoch` -1 is a fetch without a session."""

    replica_id: Int32 = -1
    max_wait_ms: Int32 = 0
    min_bytes: Int32 = 0
    max_bytes: Annotated[Int32, Since(3)] = 0x7FFFFFFF
    isolation_level: Annotated[Int8, Since(4)] = 0
    session_id: Annotated[Int32, Since(7)] = 0
    session_epoch: Annotated[Int32, Since(7)] = -1
    topics: tuple[FetchTopic, ...] = ()
    forgotten_topics_data: Annotated[tuple[ForgottenTopic, ...], Since(7)] = ()
    rack_id: Annotated[String, Since(11)] = ""
    cluster_id: Annotated[NullableString, Since(12), Tag(0)] = None


class EpochEndOffset(NamedTuple):
    """The epoch and offset at which the log of a replica diverges (KIP-595)."""

    epoch: Int32 = -1
    end_offset: Int64 = -1


class SnapshotId(NamedTuple):
    """The snapshot to fetch instead (KIP-630)."""

    end_offset: Int64 = -1
    epoch: Int32 = -1


class FetchAbortedTransaction(NamedTuple):
    """A transaction whose records, from this producer and from this offset on, were aborted."""

    producer_id: Int64 = 0
    first_offset: Int64 = 0


class FetchPartitionResponse(NamedTuple):
    """The response for one partition: its record batches, of which the last may be incomplete."""

    partition_index: Int32 = 0
    error_code: Int16 = 0
    high_watermark: Int64 = 0
    last_stable_offset: Annotated[Int64, Since(4)] = -1
    log_start_offset: Annotated[Int64, Since(5)] = -1
    diverging_epoch: Annotated[EpochEndOffset, Since(12), Tag(0)] = EpochEndOffset()
    current_leader: Annotated[LeaderIdAndEpoch, Since(12), Tag(1)] = LeaderIdAndEpoch()
    snapshot_id: Annotated[SnapshotId, Since(12), Tag(2)] = SnapshotId()
    aborted_transactions: Annotated[tuple[FetchAbortedTransaction, ...] | None, Since(4)] = ()
    preferred_read_replica: Annotated[Int32, Since(11)] = -1
    records: Records = None


class FetchTopicResponse(NamedTuple):
    """The partitions of one topic, named as in the request."""

    topic: Annotated[String, Until(12)] = ""
    topic_id: Annotated[Uuid, Since(13)] = NO_UUID
    partitions: tuple[FetchPartitionResponse, ...] = ()


class FetchResponse(NamedTuple):
    """The records that were read."""

    throttle_time_ms: Annotated[Int32, Since(1)] = 0
    error_code: Annotated[Int16, Since(7)] = 0
    session_id: Annotated[Int32, Since(7)] = 0
    responses: tuple[FetchTopicResponse, ...] = ()
