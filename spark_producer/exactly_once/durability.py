"""Warnings, once in a process, about topics whose acknowledged data one broker can lose: no transaction helps against that."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping

from spark_producer.errors import PyProducerError
from spark_producer.exactly_once.brokers import Brokers
from spark_producer.exactly_once.control_topic import COORDINATORS_TOPIC, ControlTopic
from spark_producer.protocol import DESCRIBE_CONFIGS
from spark_producer.protocol.messages import DescribeConfigsRequest, DescribeConfigsResource

logger = logging.getLogger(__name__)

_TOPIC = 2
_SECONDS = 5.0

_told: set[str] = set()
"""The topics that were looked at in this process."""


def warn_once(brokers: Brokers, control_topic: str, known: ControlTopic) -> None:
    """Warn about the control topic and the coordinators' own topic, the first time."""
    if control_topic not in _told:
        _told.add(control_topic)
        _warn(control_topic, known.replicas, known.min_in_sync)
    warn_of_topics(brokers, [COORDINATORS_TOPIC])


def warn_of_topics(brokers: Brokers, topics: Collection[str]) -> None:
    """Warn about topics that were not looked at before. What the user may not see is passed over."""
    fresh = sorted(set(topics) - _told)
    if not fresh:
        return
    _told.update(fresh)
    deadline = brokers.client.clock() + _SECONDS
    try:
        metadata = brokers.client.metadata(fresh, deadline)
        in_sync = _min_in_sync(brokers, fresh, deadline)
    except PyProducerError as error:
        logger.debug("the replicas of %s are not known: %s", ", ".join(fresh), error)
        return
    for row in metadata.topics:
        replicas = min((len(one.replica_nodes) for one in row.partitions), default=0)
        if row.name and replicas:
            _warn(row.name, replicas, in_sync.get(row.name, replicas))


def _min_in_sync(brokers: Brokers, topics: Collection[str], deadline: float) -> Mapping[str, int]:
    resources = tuple(DescribeConfigsResource(_TOPIC, topic, ("min.insync.replicas",)) for topic in topics)
    answer = brokers.any(DESCRIBE_CONFIGS, DescribeConfigsRequest(resources), deadline)
    return {
        row.resource_name: int(entry.value or 1)
        for row in answer.results
        if not row.error_code
        for entry in row.configs
    }


def _warn(topic: str, replicas: int, in_sync: int) -> None:
    if replicas > 1 and in_sync > 1:
        return
    why = "it has one replica" if replicas < 2 else "it has min.insync.replicas=1"
    logger.warning(
        "topic %s: %s, so the loss of one broker's disk can lose what was acknowledged, also by exactly-once writes. Use three "
        "replicas and min.insync.replicas=2",
        topic,
        why,
    )
