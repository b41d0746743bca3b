"""The messages about topics: CreateTopics and DeleteTopics."""

# Annotations are evaluated here on purpose (no `from __future__`): they are the schema.
from typing import Annotated, NamedTuple

from spark_producer.protocol.fields import Bool, Int8, Int16, Int32, NullableString, Since, String, Tag, Uuid
from spark_producer.protocol.messages.cluster import NO_UUID

# CreateTopics (19)


class CreatableReplicaAssignment(NamedTuple):
    """The brokers that hold a partition."""

    partition_index: Int32 = 0
    broker_ids: tuple[Int32, ...] = ()


class CreatableTopicConfig(NamedTuple):
    """One configuration entry of a new topic."""

    name: String = ""
    value: NullableString = None


class CreatableTopic(NamedTuple):
    """A topic to create; -1 for partitions or replicas means the broker's default (KIP-464)."""

    name: String = ""
    num_partitions: Int32 = -1
    replication_factor: Int16 = -1
    assignments: tuple[CreatableReplicaAssignment, ...] = ()
    configs: tuple[CreatableTopicConfig, ...] = ()


class CreateTopicsRequest(NamedTuple):
    """Creates topics, or only checks whether they could be created."""

    topics: tuple[CreatableTopic, ...] = ()
    timeout_ms: Int32 = 60_000
    validate_only: Annotated[Bool, Since(1)] = False


class CreatableTopicConfigs(NamedTuple):
    """A configuration entry of the created topic (KIP-525)."""

    name: String = ""
    value: NullableString = None
    read_only: Bool = False
    config_source: Int8 = -1
    is_sensitive: Bool = False


class CreatableTopicResult(NamedTuple):
    """The created topic, or the reason why there is none."""

    name: String = ""
    topic_id: Annotated[Uuid, Since(7)] = NO_UUID
    error_code: Int16 = 0
    error_message: Annotated[NullableString, Since(1)] = None
    topic_config_error_code: Annotated[Int16, Since(5), Tag(0)] = 0
    num_partitions: Annotated[Int32, Since(5)] = -1
    replication_factor: Annotated[Int16, Since(5)] = -1
    configs: Annotated[tuple[CreatableTopicConfigs, ...] | None, Since(5)] = ()


class CreateTopicsResponse(NamedTuple):
    """One result for each topic."""

    throttle_time_ms: Annotated[Int32, Since(2)] = 0
    topics: tuple[CreatableTopicResult, ...] = ()


# DeleteTopics (20)


class DeleteTopicsRequest(NamedTuple):
    """Deletes topics by name."""

    topic_names: tuple[String, ...] = ()
    timeout_ms: Int32 = 60_000


class DeletableTopicResult(NamedTuple):
    """The result for one topic: error code 0 if it was deleted."""

    name: String = ""
    error_code: Int16 = 0
    error_message: Annotated[NullableString, Since(5)] = None


class DeleteTopicsResponse(NamedTuple):
    """One result for each topic."""

    throttle_time_ms: Annotated[Int32, Since(1)] = 0
    responses: tuple[DeletableTopicResult, ...] = ()
