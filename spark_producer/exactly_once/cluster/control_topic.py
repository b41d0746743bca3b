"""The topic of control records: made if it is not there, and checked before anything is entrusted to it.

One partition is used, the first, whatever their number: a partition that were chosen by a hash would change with it, and the sink
would forget what it has written.
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
"""Copies of the topic, if the cluster has as many brokers."""

CONFIG = {"cleanup.policy": "compact", "segment.bytes": "16777216", "min.cleanable.dirty.ratio": "0.1"}
"""Small segments, often compacted: whoever starts reads the whole partition."""

KEPT_FOR_EVER = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
"""What is as good, but grows, for brokers that do not compact."""

_unchecked: set[str] = set()
"""The topics of which this process has said that they cannot be checked."""

_TOPIC = 2
_ROOM = 4096
"""Bytes that the header of a batch and its records need at most, beside a part of the control record."""

DEFAULT_LARGEST = 1_048_588

MIN_PART_BYTES = 4096
"""Bytes of a part of the control record that every topic has to take."""


class ControlTopic(NamedTuple):
    """What is known of the topic: the largest batch that it takes, in bytes."""

    largest_batch: int = DEFAULT_LARGEST

    @property
    def largest_part(self) -> int:
        """The most bytes of a part of the control record."""
        return max(MIN_PART_BYTES, min(900_000, self.largest_batch - _ROOM))


def ensure(
    brokers: TransactionAdmin, topic: str, deadline: float, before_making: Callable[[], None] = lambda: None
) -> ControlTopic:
    """Create the topic if it is missing, and check that it keeps the last record of each sink. `before_making` may refuse that.

    Raises:
        ExactlyOnceError: it would lose control records. BrokerError: a right is missing, or the brokers refuse to make it.
    """
    known = _look(brokers, topic, deadline)
    if known is None:
        before_making()
        _make(brokers, topic, deadline)
        brokers.leaders([TopicPartition(topic, PARTITION)], deadline)
        known = _look(brokers, topic, deadline)
    if known is None or not known.partitions:
        raise broker_error(Code.UNKNOWN_TOPIC_OR_PARTITION, f"the control topic {topic!r}")
    api, body = settings_request(topic)
    return check_settings(topic, brokers.any(api, body, deadline))


def _look(brokers: TransactionAdmin, topic: str, deadline: float) -> MetadataResponseTopic | None:
    answer = brokers.client.metadata([topic], deadline)
    found = next((row for row in answer.topics if row.name == topic), None)
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
        raise broker_error(row.error_code, f"making the control topic {topic!r}", row.error_message)
    if not row.error_code:
        logger.info("made the control topic %s, with %d replicas", topic, replicas)


def _replicas(brokers: TransactionAdmin, deadline: float) -> int:
    """Return how many replicas the topic gets: they are not added later, so it waits for brokers that are just being started.

    The coordinators' own topic tells how many there are. It is made when a coordinator is looked for, once enough brokers live.

    Raises:
        KafkaTimeout: too few came.
    """
    brokers.coordinators([control_id(brokers.sink)], deadline)
    told = brokers.client.metadata([COORDINATORS_TOPIC], deadline).topics
    kept = max((len(row.replica_nodes) for topic in told for row in topic.partitions), default=1)
    needed = min(REPLICAS, kept)
    attempts = brokers.attempts(deadline, "")
    for _ in attempts:
        found = len(brokers.nodes(deadline, anew=True))
        if found >= needed:
            return min(REPLICAS, found)
        attempts.waiting_for = (
            f"{needed} brokers, as many as {COORDINATORS_TOPIC} has replicas, to make the control topic: {found} live"
        )
    raise AssertionError


def _create(
    brokers: TransactionAdmin, topic: str, replicas: int, config: Mapping[str, str], deadline: float
) -> CreatableTopicResult:
    entries = tuple(CreatableTopicConfig(name, value) for name, value in config.items())
    wanted = CreatableTopic(topic, 1, replicas, configs=entries)
    answer = brokers.any(CREATE_TOPICS, CreateTopicsRequest((wanted,), timeout_ms=30_000), deadline)
    return next(iter(answer.topics), CreatableTopicResult(topic, error_code=Code.UNKNOWN_SERVER_ERROR))


def settings_request(topic: str) -> tuple[AnyApi, DescribeConfigsRequest]:
    """Return the request for the topic's settings, which any broker answers."""
    names = (*KEPT_FOR_EVER, "max.message.bytes")
    return DESCRIBE_CONFIGS, DescribeConfigsRequest((DescribeConfigsResource(_TOPIC, topic, names),))


def is_gone(answer: DescribeConfigsResponse) -> bool:
    """Return whether the answer about the topic's settings says that there is no such topic."""
    return any(row.error_code == Code.UNKNOWN_TOPIC_OR_PARTITION for row in answer.results)


def check_settings(topic: str, answer: DescribeConfigsResponse) -> ControlTopic:
    """Return what the answer about its settings says of the topic.

    Raises:
        ExactlyOnceError: it would lose control records.
    """
    [result] = answer.results
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
            f"the control topic {topic!r} has cleanup.policy={policy}: it would forget what was written, and rows would be "
            "written twice. It must be compacted and nothing else: kafka-configs.sh --bootstrap-server … --alter --entity-type "
            f"topics --entity-name {topic} --add-config cleanup.policy=compact"
        )
    return ControlTopic(int(config.get("max.message.bytes") or DEFAULT_LARGEST))
