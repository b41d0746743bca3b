"""The messages about partitions: CreatePartitions, DeleteRecords and DescribeLogDirs."""

# Annotations are evaluated here on purpose (no `from __future__`): they are the schema.
from typing import Annotated, NamedTuple

from spark_producer.protocol.fields import Bool, Int16, Int32, Int64, NullableString, Since, String

# DeleteRecords (21)


class DeleteRecordsPartition(NamedTuple):
    """The new log start offset of a partition; -1 for its high watermark."""

    partition_index: Int32 = 0
    offset: Int64 = 0


class DeleteRecordsTopic(NamedTuple):
    """The partitions of one topic."""

    name: String = ""
    partitions: tuple[DeleteRecordsPartition, ...] = ()


class DeleteRecordsRequest(NamedTuple):
    """Deletes the records before given offsets (KIP-107)."""

    topics: tuple[DeleteRecordsTopic, ...] = ()
    timeout_ms: Int32 = 0


class DeleteRecordsPartitionResult(NamedTuple):
    """The log start offset of a partition now; -1 with an error."""

    partition_index: Int32 = 0
    low_watermark: Int64 = -1
    error_code: Int16 = 0


class DeleteRecordsTopicResult(NamedTuple):
    """The results of one topic."""

    name: String = ""
    partitions: tuple[DeleteRecordsPartitionResult, ...] = ()


class DeleteRecordsResponse(NamedTuple):
    """One result for each partition."""

    throttle_time_ms: Int32 = 0
    topics: tuple[DeleteRecordsTopicResult, ...] = ()


# DescribeLogDirs (35)


class DescribableLogDirTopic(NamedTuple):
    """Partitions of one topic."""

    topic: String = ""
    partitions: tuple[Int32, ...] = ()


class DescribeLogDirsRequest(NamedTuple):
    """Asks for the directories of a broker and the sizes of these partitions; None asks for all of them (KIP-113)."""

    topics: tuple[DescribableLogDirTopic, ...] | None = None


class DescribeLogDirsPartition(NamedTuple):
    """The bytes of a partition, and the number of offsets that it lags the high watermark."""

    partition_index: Int32 = 0
    partition_size: Int64 = 0
    offset_lag: Int64 = 0
    is_future_key: Bool = False


class DescribeLogDirsTopic(NamedTuple):
    """The partitions of one topic in a directory."""

    name: String = ""
    partitions: tuple[DescribeLogDirsPartition, ...] = ()


class DescribeLogDirsResult(NamedTuple):
    """One directory; -1 bytes if unknown (KIP-827)."""

    error_code: Int16 = 0
    log_dir: String = ""
    topics: tuple[DescribeLogDirsTopic, ...] = ()
    total_bytes: Annotated[Int64, Since(4)] = -1
    usable_bytes: Annotated[Int64, Since(4)] = -1


class DescribeLogDirsResponse(NamedTuple):
    """The directories of the broker."""

    throttle_time_ms: Int32 = 0
    error_code: Annotated[Int16, Since(3)] = 0
    results: tuple[DescribeLogDirsResult, ...] = ()


# CreatePartitions (37)


class CreatePartitionsAssignment(NamedTuple):
    """The brokers that hold one new partition."""

    broker_ids: tuple[Int32, ...] = ()


class CreatePartitionsTopic(NamedTuple):
    """The new total of a topic's partitions; `assignments` has the replicas of the added ones."""

    name: String = ""
    count: Int32 = 0  # type: ignore[assignment]  # Kafka's name wins over tuple.count
    assignments: tuple[CreatePartitionsAssignment, ...] | None = None


class CreatePartitionsRequest(NamedTuple):
    """Adds partitions to topics, or only checks whether that is possible (KIP-195)."""

    topics: tuple[CreatePartitionsTopic, ...] = ()
    timeout_ms: Int32 = 0
    validate_only: Bool = False


class CreatePartitionsTopicResult(NamedTuple):
    """The result for one topic: error code 0 if it has the partitions."""

    name: String = ""
    error_code: Int16 = 0
    error_message: NullableString = None


class CreatePartitionsResponse(NamedTuple):
    """One result for each topic."""

    throttle_time_ms: Int32 = 0
    results: tuple[CreatePartitionsTopicResult, ...] = ()
