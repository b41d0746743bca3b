"""The interface between a producer and its network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from spark_producer.errors import PyProducerError
from spark_producer.metrics import ProducerMetrics
from spark_producer.network import ConnectionSettings
from spark_producer.network.client import Completion
from spark_producer.protocol import AnyApi
from spark_producer.sender import NetworkView


class Network(NetworkView, Protocol):
    """The connections of one producer, for the sender and the I/O thread.

    `spark_producer.network.Client` implements it with sockets, and documents the methods. Only the I/O thread calls them,
    except for `wakeup` and `load`.
    """

    def load(self) -> tuple[int, int]:
        """Return the number of open connections and of in-flight requests. It is thread-safe."""

    def ready_with(self, api: AnyApi) -> int | None:
        """Return the least loaded node that is connected, supports `api`, and may get a request now."""

    def set_nodes(self, nodes: Mapping[int, tuple[str, int]], cluster_id: str | None = None) -> None:
        """Set the nodes of the cluster, and its id if the brokers shall compare it."""

    def send(self, node: int, api: AnyApi, body: tuple[object, ...], *, tag: object, expect_response: bool) -> None:
        """Send a request to a node that was `ready`; a later `poll` returns its completion with `tag`."""

    def poll(self, timeout: float) -> Sequence[Completion]:
        """Wait at most `timeout` seconds for an event, and return the completions."""

    def take_disconnected(self) -> Sequence[int]:
        """Return the nodes whose connection, or attempt to connect, has failed since the last call."""

    def fatal_error(self) -> PyProducerError | None:
        """Return the error that ends the producer, because no attempt to connect can succeed. Called after a failure."""

    def wakeup(self) -> None:
        """Make the current poll, or the next one, return at once. It is thread-safe."""

    def close(self) -> None:
        """Close all connections. No poll follows."""


class Connect(Protocol):
    """Creates the network of a producer, which connects on demand."""

    def __call__(self, settings: ConnectionSettings, *, metrics: ProducerMetrics) -> Network:
        """Return a network that begins with the bootstrap servers of `settings` and reports to `metrics`."""
