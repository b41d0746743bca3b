"""The administration of topics: list, describe, create and delete them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from spark_producer.admin.client import BlockingClient
from spark_producer.admin.offsets import check, offsets
from spark_producer.common.cluster import NO_LEADER
from spark_producer.common.error_codes import Code
from spark_producer.common.offsets import EARLIEST
from spark_producer.errors import broker_error
from spark_producer.protocol import CREATE_TOPICS, DELETE_TOPICS, DESCRIBE_CONFIGS
from spark_producer.protocol.messages import (
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
    DeletableTopicResult,
    DeleteTopicsRequest,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    MetadataResponseTopic,
)

TOPIC = 2
"""The resource type of a topic in DescribeConfigs."""

POLL_SECONDS = 0.5
"""Seconds between two checks whether a topic exists now."""

SET_FOR_TOPIC = 1
"""The source of a config that was set for the topic itself (ConfigSource)."""


class PartitionRow(NamedTuple):
    """A partition: its leader (-1: none now), replicas, in-sync replicas, first offset, and the offset after its last record."""

    partition: int
    leader: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    first: int | None
    end: int | None


class TopicRow(NamedTuple):
    """A topic in a list, with its number of partitions, of replicas, and of partitions without a leader."""

    name: str
    partitions: int
    replicas: int
    without_leader: int


class TopicPage(NamedTuple):
    """The description of a topic. `config` has the configs that were set for it; None if the user may not see them."""

    name: str
    rows: tuple[PartitionRow, ...]
    config: Mapping[str, str] | None


def list_topics(client: BlockingClient, *, internal: bool = False) -> list[TopicRow]:
    """Return the topics that the user may see, by name; with `internal` also Kafka's own.

    Raises: as `BlockingClient.metadata`.
    """
    response = client.metadata(None)
    check(response.error_code, "the list of topics")
    rows = [row for row in response.topics if not row.error_code and (internal or not row.is_internal)]
    return sorted(_listed(row) for row in rows)


def _listed(row: MetadataResponseTopic) -> TopicRow:
    replicas = min((len(each.replica_nodes) for each in row.partitions), default=0)
    without = sum(each.leader_id == NO_LEADER for each in row.partitions)
    return TopicRow(row.name or "", len(row.partitions), replicas, without)


def describe_topic(client: BlockingClient, topic: str) -> TopicPage:
    """Return the partitions of a topic, with offsets where they have a leader, and its configs.

    Raises:
        TopicNotFound, BrokerError: it does not exist, or the user may not see it. And as `BlockingClient.request`.
    """
    response = client.metadata([topic])
    check(response.error_code, f"topic {topic!r}")
    row = next(
        (one for one in response.topics if one.name == topic),
        MetadataResponseTopic(Code.UNKNOWN_TOPIC_OR_PARTITION, topic),
    )
    check(row.error_code, f"topic {topic!r}")
    brokers = {broker.node_id for broker in response.brokers}  # a leader without an address cannot be reached
    led = [each.partition_index for each in row.partitions if each.leader_id in brokers]
    firsts = offsets(client, topic, EARLIEST, led) if led else {}
    ends = offsets(client, topic, partitions=led) if led else {}
    rows = tuple(
        PartitionRow(index, each.leader_id, each.replica_nodes, each.isr_nodes, firsts.get(index), ends.get(index))
        for each in sorted(row.partitions, key=lambda one: one.partition_index)
        for index in (each.partition_index,)
    )
    return TopicPage(topic, rows, topic_config(client, topic))


def topic_config(client: BlockingClient, topic: str, names: Sequence[str] | None = None) -> dict[str, str] | None:
    """Return the configs that were set for a topic, or those of `names` with their defaults; None if the user may not see them.

    Raises: as `BlockingClient.request`; BrokerError, if the broker refuses for another reason.
    """
    wanted = DescribeConfigsResource(TOPIC, topic, None if names is None else tuple(names))
    results = client.request(DESCRIBE_CONFIGS, DescribeConfigsRequest((wanted,))).results
    if not results or results[0].error_code in (Code.TOPIC_AUTHORIZATION_FAILED, Code.CLUSTER_AUTHORIZATION_FAILED):
        return None
    check(results[0].error_code, f"the configs of topic {topic!r}")
    return {
        entry.name: entry.value or ""
        for entry in results[0].configs
        if names is not None or entry.config_source == SET_FOR_TOPIC
    }


def create_topic(
    client: BlockingClient,
    topic: str,
    partitions: int = -1,
    replicas: int = -1,
    config: Mapping[str, str] | None = None,
) -> bool:
    """Create a topic; -1 is the broker's default. Return False if it existed before.

    Raises:
        BrokerError: the cluster refuses. And as `BlockingClient.request`.
    """
    entries = tuple(CreatableTopicConfig(name, value) for name, value in (config or {}).items())
    body = CreateTopicsRequest((CreatableTopic(topic, partitions, replicas, configs=entries),))
    results = client.request(CREATE_TOPICS, body, node=_controller(client)).topics
    result = results[0] if results else CreatableTopicResult(topic, error_code=Code.UNKNOWN_SERVER_ERROR)
    if result.error_code and result.error_code != Code.TOPIC_ALREADY_EXISTS:
        raise broker_error(result.error_code, f"topic {topic!r}", result.error_message)
    return not result.error_code


def wait_for_topic(client: BlockingClient, topic: str) -> None:
    """Wait until the brokers know a topic that was just created and its partitions have leaders.

    Raises:
        TopicNotFound, MetadataTimeout: the topic does not appear within the timeout of the client.
    """
    client.leaders_of(topic, range(len(client.wait_for_topic(topic, may_appear=True))), may_appear=True)


def is_missing(client: BlockingClient, topic: str) -> bool:
    """Return whether the brokers report the topic as unknown.

    Raises: as `BlockingClient.metadata`.
    """
    rows = client.metadata([topic]).topics
    return all(row.error_code == Code.UNKNOWN_TOPIC_OR_PARTITION for row in rows if row.name == topic)


def wait_for_creation(
    client: BlockingClient,
    topic: str,
    timeout: float | None,
    on_wait: Callable[[], None],
    *,
    pause: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Wait until a topic is created and its partitions have leaders. `timeout` is in seconds; None: without end.

    `on_wait` is called before each check; an exception from it ends the wait.

    Raises:
        TopicNotFound: it was not created within `timeout`. And as `BlockingClient.metadata` and `wait_for_topic`.
    """
    deadline = None if timeout is None else clock() + timeout
    while is_missing(client, topic):
        if deadline is not None and clock() >= deadline:
            raise broker_error(Code.UNKNOWN_TOPIC_OR_PARTITION, f"topic {topic!r}", topic=topic)
        on_wait()
        pause(POLL_SECONDS)
    wait_for_topic(client, topic)


def delete_topic(client: BlockingClient, topic: str) -> None:
    """Delete a topic and its records.

    Raises:
        TopicNotFound: there is no such topic. BrokerError: the cluster refuses. And as `BlockingClient.request`.
    """
    rows = client.request(DELETE_TOPICS, DeleteTopicsRequest((topic,)), node=_controller(client)).responses
    row = rows[0] if rows else DeletableTopicResult(topic, Code.UNKNOWN_SERVER_ERROR)
    if row.error_code:
        raise broker_error(row.error_code, f"topic {topic!r}", row.error_message)


def _controller(client: BlockingClient) -> int | None:
    """Return the node that creates and deletes topics; None if every node forwards such requests."""
    controller = client.metadata([]).controller_id
    return controller if controller >= 0 else None
