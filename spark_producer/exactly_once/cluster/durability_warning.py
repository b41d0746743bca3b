"""What a process says, once, of topics whose acknowledged data one broker can lose: no transaction helps against that."""

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

_looked_at: set[str] = set()
"""The topics that were looked at in this process."""


def warn_once(brokers: TransactionAdmin, topics: Collection[str]) -> None:
    """Warn about those of `topics` that this process has not looked at before. What the user may not see is passed over.

    A cluster of one broker, where nothing else is possible, is no reason for a warning: the log says it for those who look there.
    """
    fresh = sorted(set(topics) - _looked_at)
    if not fresh:
        return
    _looked_at.update(fresh)
    deadline = brokers.client.clock() + _SECONDS
    try:
        metadata = brokers.client.metadata(fresh, deadline)
        in_sync = _min_in_sync(brokers, fresh, deadline)
    except PyProducerError as error:
        logger.debug("the replicas of %s are not known: %s", ", ".join(fresh), error)
        return
    weak = _weak(metadata, in_sync)
    if weak and _has_one_broker(metadata):
        logger.info(
            "the cluster has one broker, so the loss of its disk loses what was acknowledged, also by exactly-once writes"
        )
    elif weak:
        logger.warning(
            "the loss of one broker's disk can lose what was acknowledged, also by exactly-once writes: %s. Use three replicas "
            "and min.insync.replicas=2",
            ", ".join(weak),
        )


def _weak(metadata: MetadataResponse, in_sync: Mapping[str, int]) -> list[str]:
    """Return what is wrong with each topic that one broker can lose."""
    found = []
    for row in metadata.topics:
        replicas = min((len(one.replica_nodes) for one in row.partitions), default=0)
        if replicas == 1:
            found.append(f"topic {row.name} has one replica")
        elif replicas and in_sync.get(row.name or "", replicas) < 2:
            found.append(f"topic {row.name} has min.insync.replicas=1")
    return found


def _has_one_broker(metadata: MetadataResponse) -> bool:
    """Whether the cluster has one broker, and not several of which one is live: those that are down are named as replicas."""
    replicas = {node for row in metadata.topics for one in row.partitions for node in one.replica_nodes}
    return len(replicas | {row.node_id for row in metadata.brokers}) == 1


def _min_in_sync(brokers: TransactionAdmin, topics: Collection[str], deadline: float) -> Mapping[str, int]:
    resources = tuple(DescribeConfigsResource(_TOPIC, topic, ("min.insync.replicas",)) for topic in topics)
    answer = brokers.any(DESCRIBE_CONFIGS, DescribeConfigsRequest(resources), deadline)
    return {
        row.resource_name: int(entry.value or 1)
        for row in answer.results
        if not row.error_code
        for entry in row.configs
    }
