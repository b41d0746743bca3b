"""The control topic: created if it does not exist, and its settings checked before control records are written to it.

Only its first partition is used, whatever their number: a partition chosen by a hash would change with the number, and the sink's
control record would not be found any more.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import NamedTuple

from spark_producer.common.cluster import TopicPartition
from spark_producer.common.error_codes import Code
from spark_producer.common.escape import escaping_logger
from spark_producer.errors import ExactlyOnceError, broker_error
from spark_producer.exactly_once.cluster.broker_requests import TransactionAdmin
from spark_producer.exactly_once.cluster.required_acls import Right, missing_right
from spark_producer.exactly_once.names import control_id
from spark_producer.protocol import CREATE_TOPICS, DESCRIBE_CONFIGS, AnyApi
from spark_producer.protocol.messages import (
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
    MetadataResponseTopic,
)

logger = escaping_logger(__name__)

PARTITION = 0

COORDINATORS_TOPIC = "__transaction_state"

REPLICAS = 3
"""Replication factor of the topic, if the cluster has as many brokers."""

CONFIG = {"cleanup.policy": "compact", "segment.bytes": "16777216", "min.cleanable.dirty.ratio": "0.1"}
"""Small segments, often compacted: each driver that starts reads the whole partition."""

KEPT_FOR_EVER = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
"""The settings for brokers without compaction: as safe, but the topic grows."""

_unchecked: set[str] = set()
"""The topics of which this process has warned that they cannot be checked."""

_TOPIC = 2
_OVERHEAD_BYTES = 4096
"""Maximum bytes of the headers of a batch and its records, beside a part of the control record."""

DEFAULT_LARGEST = 1_048_588

MIN_PART_BYTES = 4096
"""Bytes of a part of the control record that every control topic must accept."""


class ControlTopic(NamedTuple):
    """The known settings of the topic: the maximum bytes of a batch."""

    largest_batch: int = DEFAULT_LARGEST

    @property
    def max_part_bytes(self) -> int:
        """Maximum bytes of a part of the control record."""
        return max(MIN_PART_BYTES, min(900_000, self.largest_batch - _OVERHEAD_BYTES))


def ensure(
    brokers: TransactionAdmin, topic: str, deadline: float, before_making: Callable[[], None] = lambda: None
) -> ControlTopic:
    """Create the topic if it is missing, and check that it keeps the last record of each sink.

    `before_making` is called before the topic is created, and may raise an error instead.

    Raises:
        ExactlyOnceError: it would lose control records. BrokerError: a right is missing, or the brokers refuse to create it.
    """
    known = _find(brokers, topic, deadline)
    if known is None:
        before_making()
        _make(brokers, topic, deadline)
        brokers.leaders([TopicPartition(topic, PARTITION)], deadline)
        known = _find(brokers, topic, deadline)
    if known is None or not known.partitions:
        raise broker_error(Code.UNKNOWN_TOPIC_OR_PARTITION, f"the control topic {topic!r}")
    api, body = settings_request(topic)
    return check_settings(topic, brokers.request_any(api, body, deadline))


def _find(brokers: TransactionAdmin, topic: str, deadline: float) -> MetadataResponseTopic | None:
    response = brokers.client.metadata([topic], deadline)
    found = next((row for row in response.topics if row.name == topic), None)
    if found is not None and found.error_code == Code.TOPIC_AUTHORIZATION_FAILED:
        raise missing_right(Right.CONTROL_TOPIC, brokers.sink, brokers.client.user, topic)
    return found if found is not None and found.partitions else None


def _make(brokers: TransactionAdmin, topic: str, deadline: float) -> None:
    replicas = _replicas(brokers, deadline)
    in_sync = {"min.insync.replicas": "2" if replicas > 2 else "1"}
    row = _create(brokers, topic, replicas, {**CONFIG, **in_sync}, deadline)
    if row.error_code == Code.INVALID_CONFIG:
        row = _create(brokers, topic, replicas, {**KEPT_FOR_EVER, **in_sync}, deadline)
    if row.error_code in (Code.TOPIC_AUTHORIZATION_FAILED, Code.CLUSTER_AUTHORIZATION_FAILED):
        raise missing_right(Right.MAKE_CONTROL_TOPIC, brokers.sink, brokers.client.user, topic)
    if row.error_code not in (Code.NONE, Code.TOPIC_ALREADY_EXISTS):
        raise broker_error(row.error_code, f"creating the control topic {topic!r}", row.error_message)
    if not row.error_code:
        logger.info("created the control topic %s, with %d replicas", topic, replicas)


def _replicas(brokers: TransactionAdmin, deadline: float) -> int:
    """Return the replication factor for the topic. It is not raised later, so brokers that are starting are waited for.

    The coordinators' own topic shows their number: brokers create it at the first FindCoordinator, once enough of them live.

    Raises:
        KafkaTimeout: too few brokers have started.
    """
    brokers.coordinators([control_id(brokers.sink)], deadline)
    topics = brokers.client.metadata([COORDINATORS_TOPIC], deadline).topics
    kept = max((len(row.replica_nodes) for topic in topics for row in topic.partitions), default=1)
    needed = min(REPLICAS, kept)
    attempts = brokers.attempts(deadline, "")
    for _ in attempts:
        found = len(brokers.nodes(deadline, refresh=True))
        if found >= needed:
            return min(REPLICAS, found)
        attempts.waiting_for = (
            f"{needed} brokers, as many as {COORDINATORS_TOPIC} has replicas, to create the control topic: {found} live"
        )
    raise AssertionError


def _create(
    brokers: TransactionAdmin, topic: str, replicas: int, config: Mapping[str, str], deadline: float
) -> CreatableTopicResult:
    entries = tuple(CreatableTopicConfig(name, value) for name, value in config.items())
    wanted = CreatableTopic(topic, 1, replicas, configs=entries)
    response = brokers.request_any(CREATE_TOPICS, CreateTopicsRequest((wanted,), timeout_ms=30_000), deadline)
    return next(iter(response.topics), CreatableTopicResult(topic, error_code=Code.UNKNOWN_SERVER_ERROR))


def settings_request(topic: str) -> tuple[AnyApi, DescribeConfigsRequest]:
    """Return the request for the topic's settings, which any broker answers."""
    names = (*KEPT_FOR_EVER, "max.message.bytes")
    return DESCRIBE_CONFIGS, DescribeConfigsRequest((DescribeConfigsResource(_TOPIC, topic, names),))


def is_gone(response: DescribeConfigsResponse) -> bool:
    """Return whether the response about the topic's settings says that the topic does not exist."""
    return any(row.error_code == Code.UNKNOWN_TOPIC_OR_PARTITION for row in response.results)


def check_settings(topic: str, response: DescribeConfigsResponse) -> ControlTopic:
    """Return the topic's settings from a response.

    Raises:
        ExactlyOnceError: it would lose control records.
    """
    [result] = response.results
    if result.error_code:
        level = logging.DEBUG if topic in _unchecked else logging.WARNING
        _unchecked.add(topic)
        logger.log(
            level,
            "control topic %s: its settings cannot be checked (%s). It must have cleanup.policy=compact and nothing else; grant "
            "DESCRIBE_CONFIGS on it to have that checked",
            topic,
            Code(result.error_code).name,
        )
        return ControlTopic()
    config = {row.name: row.value or "" for row in result.configs}
    policy = config.get("cleanup.policy", "")
    if policy != "compact" and any(config.get(name) != value for name, value in KEPT_FOR_EVER.items()):
        raise ExactlyOnceError(
            f"the control topic {topic!r} has cleanup.policy={policy}: it would lose control records, and rows would be "
            "written twice. It must be compacted and nothing else: kafka-configs.sh --bootstrap-server … --alter --entity-type "
            f"topics --entity-name {topic} --add-config cleanup.policy=compact"
        )
    return ControlTopic(int(config.get("max.message.bytes") or DEFAULT_LARGEST))
