"""The cluster whose brokers a client knows, and the responses after which it asks the bootstrap servers again (KIP-1242)."""

from __future__ import annotations

from typing import Final

from spark_producer.common.error_codes import Code
from spark_producer.common.escape import escaping_logger, for_log
from spark_producer.errors import BrokerError, ConnectionFailed, PyProducerError, broker_error
from spark_producer.protocol.messages import MetadataResponse

logger = escaping_logger("pyproducer")

MAX_WARNED: Final = 1000
"""Maximum number of brokers of other clusters that are remembered, so that each is logged once. Brokers name any addresses."""


class ClusterIdentity:
    """The id of the cluster in the first Metadata response from a bootstrap server. Responses of other clusters are not used.

    The thread that handles the responses owns it.
    """

    def __init__(self, *, checks: bool) -> None:
        """`checks` is `metadata.cluster.check.enable`; without it there is no id, and every cluster is the right one."""
        self.cluster_id: str | None = None
        """the id; None before the first response, if brokers have none (before 0.10.1), or without `checks`"""
        self._checks = checks
        self._warned: set[str] = set()
        """the brokers of other clusters that were logged"""

    def forget(self) -> None:
        """Forget the id, because the bootstrap servers are used again: they may name another cluster."""
        self.cluster_id = None

    def accept(self, response: MetadataResponse, broker: str) -> PyProducerError | None:
        """Remember the cluster of a response that is to be used, and return None.

        Otherwise return the error because of which the bootstrap servers must be asked again: the response is of another cluster,
        which is logged once for each broker, or says so itself (REBOOTSTRAP_REQUIRED, KIP-1102). `broker` is the name of its
        sender (`broker_name`).
        """
        problem = other_cluster(response, self.cluster_id, broker)
        if problem is not None:
            self._warn(str(problem), broker)
            return problem
        if response.error_code == Code.REBOOTSTRAP_REQUIRED:
            return broker_error(response.error_code, f"Metadata of {broker}")
        if self._checks and self.cluster_id is None and response.brokers and not response.error_code:
            self.cluster_id = response.cluster_id
        return None

    def _warn(self, problem: str, broker: str) -> None:
        if broker in self._warned:
            return
        if len(self._warned) >= MAX_WARNED:
            self._warned.clear()
        self._warned.add(broker)
        logger.warning("%s The bootstrap servers are asked again (kafka.metadata.cluster.check.enable)", problem)


def other_cluster(response: MetadataResponse, cluster_id: str | None, broker: str) -> ConnectionFailed | None:
    """Return the error of a response of another cluster than `cluster_id`; None if it is of that one, or an id is unknown."""
    if cluster_id is None or response.cluster_id in (cluster_id, None):
        return None
    return ConnectionFailed(
        f"{broker} is of cluster {for_log(response.cluster_id or '')!r}, not of {for_log(cluster_id)!r}. "
        f"What to do: {Code.REBOOTSTRAP_REQUIRED.advice}.",
        misrouted=True,
    )


def is_misrouted(error: PyProducerError | None) -> bool:
    """Return whether an address leads to another broker or cluster than expected, by what the broker or its response says."""
    refused = isinstance(error, BrokerError) and error.code == Code.REBOOTSTRAP_REQUIRED
    return refused or getattr(error, "misrouted", False)
