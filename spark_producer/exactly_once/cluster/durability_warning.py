"""The warning, once in a process, of topics whose acknowledged data one broker can lose: transactions do not prevent that."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from spark_producer.common.escape import escaping_logger
from spark_producer.errors import PyProducerError
from spark_producer.exactly_once.cluster.broker_requests import TransactionAdmin
from spark_producer.protocol import DESCRIBE_CONFIGS
from spark_producer.protocol.messages import DescribeConfigsRequest, DescribeConfigsResource, MetadataResponse

logger = escaping_logger(__name__)

_TOPIC = 2
_SECONDS = 5.0

_checked_topics: set[str] = set()
"""The topics that this process has checked."""


def warn_once(brokers: TransactionAdmin, topics: Collection[str]) -> None:
    """Warn about those of `topics` that this process has not checked before, if the user has the right to see them.

    On a cluster of one broker, where nothing else is possible, the message is an info and not a warning.
    """
    unchecked = sorted(set(topics) - _checked_topics)
    if not unchecked:
        return
    _checked_topics.update(unchecked)
    deadline = brokers.client.clock() + _SECONDS
    try:
        metadata = brokers.client.metadata(unchecked, deadline)
        in_sync = _min_in_sync(brokers, unchecked, deadline)
    except PyProducerError as error:
        logger.debug("the replicas of %s are unknown: %s", ", ".join(unchecked), error)
        return
    weaknesses = _weaknesses(metadata, in_sync)
    if weaknesses and _has_one_broker(metadata):
        logger.info(
            "the cluster has one broker, so the loss of its disk loses acknowledged rows, also those of exactly-once writes"
        )
    elif weaknesses:
        logger.warning(
            "the loss of one broker's disk can lose acknowledged rows, also those of exactly-once writes: %s. Use three replicas "
            "and min.insync.replicas=2",
            ", ".join(weaknesses),
        )


def _weaknesses(metadata: MetadataResponse, in_sync: Mapping[str, int]) -> list[str]:
    """Return the weakness of each topic that one broker can lose."""
    found = []
    for row in metadata.topics:
        replicas = min((len(one.replica_nodes) for one in row.partitions), default=0)
        if replicas == 1:
            found.append(f"topic {row.name} has one replica")
        elif replicas and in_sync.get(row.name or "", replicas) < 2:
            found.append(f"topic {row.name} has min.insync.replicas=1")
    return found


def _has_one_broker(metadata: MetadataResponse) -> bool:
    """Return whether the cluster has only one broker. Lists of replicas also name brokers that are down."""
    replicas = {node for row in metadata.topics for one in row.partitions for node in one.replica_nodes}
    return len(replicas | {row.node_id for row in metadata.brokers}) == 1


def _min_in_sync(brokers: TransactionAdmin, topics: Collection[str], deadline: float) -> Mapping[str, int]:
    resources = tuple(DescribeConfigsResource(_TOPIC, topic, ("min.insync.replicas",)) for topic in topics)
    response = brokers.request_any(DESCRIBE_CONFIGS, DescribeConfigsRequest(resources), deadline)
    return {
        row.resource_name: int(entry.value or 1)
        for row in response.results
        if not row.error_code
        for entry in row.configs
    }
