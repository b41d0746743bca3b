"""The cluster whose brokers a client knows, and the responses after which it asks the bootstrap servers again (KIP-1242)."""

from __future__ import annotations

from spark_producer.common.error_codes import Code
from spark_producer.common.escape import escaping_logger, for_log
from spark_producer.errors import BrokerError, PyProducerError
from spark_producer.protocol.messages import MetadataResponse

logger = escaping_logger("pyproducer")


class ClusterIdentity:
    """The id of the cluster in the first Metadata response from a bootstrap server. Responses of other clusters are not used.

    The thread that handles the responses owns it.
    """

    def __init__(self, *, checks: bool) -> None:
        """`checks` is `metadata.cluster.check.enable`; without it there is no id, and every cluster is the right one."""
        self.cluster_id: str | None = None
        """the id; None before the first response, if brokers have none (before 0.10.1), or without `checks`"""
        self._checks = checks

    def forget(self) -> None:
        """Forget the id, because the bootstrap servers are used again: they may name another cluster."""
        self.cluster_id = None

    def is_of_another(self, response: MetadataResponse) -> bool:
        """Return whether a response is of another cluster than the known one."""
        return self.cluster_id is not None and response.cluster_id not in (self.cluster_id, None)

    def demands_rebootstrap(self, response: MetadataResponse) -> bool:
        """Return whether the bootstrap servers must be asked again: a response says so (KIP-1102), or is of another cluster.

        The id of the first cluster is remembered. A response of another one is logged.
        """
        if response.error_code or not response.brokers:
            return response.error_code == Code.REBOOTSTRAP_REQUIRED
        if self.cluster_id is None and self._checks:
            self.cluster_id = response.cluster_id
        if not self.is_of_another(response):
            return False
        logger.warning(
            "A broker at a known address is now of cluster %r, not of %r: the bootstrap servers are asked again "
            "(kafka.metadata.cluster.check.enable)",
            for_log(response.cluster_id or ""),
            for_log(self.cluster_id or ""),
        )
        return True


def is_misrouted(error: PyProducerError | None) -> bool:
    """Return whether a broker has refused a connection because it is meant for another broker."""
    return isinstance(error, BrokerError) and error.code == Code.REBOOTSTRAP_REQUIRED
