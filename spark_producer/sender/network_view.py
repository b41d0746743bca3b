"""The sender's view of the network, and the requests that it returns."""

from __future__ import annotations

from typing import NamedTuple, Protocol, TypeAlias

from spark_producer.accumulator import ProducerBatch
from spark_producer.errors import PyProducerError
from spark_producer.protocol import AnyApi

NODE_RECHECK = 0.05
"""Seconds between two attempts to find a node for a request, while all nodes are busy or in backoff."""

RequestBatches: TypeAlias = tuple[ProducerBatch, ...]
"""The batches of a Produce request; empty for other requests."""


class NetworkView(Protocol):
    """The state of the network that the sender may read."""

    def ready(self, node: int) -> bool:
        """Return whether a request may be sent to `node` now, and begin a connection if there is none."""

    def least_loaded(self) -> int | None:
        """Return the node for a request that any node can answer; None if all are busy or in backoff."""

    def all_nodes_unavailable(self) -> bool:
        """Return whether no node of the cluster is connected, connecting, or out of backoff (KIP-899)."""

    def next_attempt_in(self, node: int) -> float:
        """Return the seconds until the next attempt to connect to `node`; 0 if it is connected or connecting."""

    def last_error(self, node: int) -> PyProducerError | None:
        """Return the error of the last connection to `node`, or attempt; None if it is ready or was never tried."""

    def finalized_level(self, feature: str) -> int:
        """Return the finalized level of a cluster feature, from the newest ApiVersions response; 0 if unknown (KIP-584)."""


class ClientRequest(NamedTuple):
    """A request to send: `body` is the request message of `api`. The network returns `batches` with the response."""

    node: int
    api: AnyApi
    body: tuple[object, ...]
    batches: RequestBatches
    expect_response: bool = True
