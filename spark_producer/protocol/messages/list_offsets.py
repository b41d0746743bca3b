"""The messages that look up offsets by timestamps: ListOffsets."""

# Annotations are evaluated here on purpose (no `from __future__`): they are the schema.
from typing import Annotated, NamedTuple

from spark_producer.protocol.fields import Int8, Int16, Int32, Int64, Since, String

# ListOffsets (2)


class ListOffsetsPartition(NamedTuple):
    """A partition, and the timestamp to look up.

    `timestamp` -1 is the end of the log, -2 its start, -3 the highest timestamp (version 7).
    """

    partition_index: Int32 = 0
    current_leader_epoch: Annotated[Int32, Since(4)] = -1
    timestamp: Int64 = 0


class ListOffsetsTopic(NamedTuple):
    """The partitions of one topic."""

    name: String = ""
    partitions: tuple[ListOffsetsPartition, ...] = ()


class ListOffsetsRequest(NamedTuple):
    """Asks for the offsets at timestamps."""

    replica_id: Int32 = -1
    isolation_level: Annotated[Int8, Since(2)] = 0
    topics: tuple[ListOffsetsTopic, ...] = ()


class ListOffsetsPartitionResponse(NamedTuple):
    """The first record at or after the timestamp; the offset is -1 if there is none."""

    partition_index: Int32 = 0
    error_code: Int16 = 0
    timestamp: Annotated[Int64, Since(1)] = -1
    offset: Annotated[Int64, Since(1)] = -1
    leader_epoch: Annotated[Int32, Since(4)] = -1


class ListOffsetsTopicResponse(NamedTuple):
    """The partitions of one topic."""

    name: String = ""
    partitions: tuple[ListOffsetsPartitionResponse, ...] = ()


class ListOffsetsResponse(NamedTuple):
    """The requested offsets."""

    throttle_time_ms: Annotated[Int32, Since(2)] = 0
    topics: tuple[ListOffsetsTopicResponse, ...] = ()
