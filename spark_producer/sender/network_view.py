"""The network as the sender sees it: what it may ask, and the requests that it returns to be sent."""

from __future__ import annotations

from typing import NamedTuple, Protocol, TypeAlias

from spark_producer.accumulator import ProducerBatch
from spark_producer.errors import PyProducerError
from spark_producer.protocol import AnyApi

NODE_RECHECK = 0.05
"""Seconds between two attempts to find a node to ask, while all nodes are busy or in backoff."""

RequestBatches: TypeAlias = tuple[ProducerBatch, ...]
"""The batches of a Produce request; empty for other requests."""


class NetworkView(Protocol):
    """The questions that the sender may ask the network."""

    def ready(self, node: int) -> bool:
        """Return whether a request may go to `node` now, and start a connection if there is none."""

    def least_loaded(self) -> int | None:
        """Return the node for a request that any node can answer; None if all are busy or in backoff."""

    def all_nodes_unavailable(self) -> bool:
        """Return whether no known node of the cluster is connected or connecting, or may be connected to now."""

    def next_attempt_in(self, node: int) -> float:
        """Return the seconds until a connection to `node` may be tried again; 0 if it is made, or being made."""

    def last_error(self, node: int) -> PyProducerError | None:
        """Return why the last connection to `node`, or attempt at one, ended; None if it is ready or was never tried."""

    def finalized_level(self, feature: str) -> int:
        """Return the level of a feature that the cluster has agreed on, by the newest word of any broker; 0 if none (KIP-584)."""


class ClientRequest(NamedTuple):
    """A request to send: `body` is the request message of `api`. The network returns `batches` with the answer."""

    node: int
    api: AnyApi
    body: tuple[object, ...]
    batches: RequestBatches
    expect_response: bool = True
