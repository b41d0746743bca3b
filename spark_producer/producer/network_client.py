"""What a producer asks of its network: questions, requests, and one call that waits."""

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
    """The connections of one producer: what the sender may ask, and the calls of the I/O thread.

    `spark_producer.network.Client`, whose methods say more, is the one with sockets. Only the I/O thread calls the methods,
    except for `wakeup` and `load`.
    """

    def load(self) -> tuple[int, int]:
        """Return the open connections and the requests in flight. Any thread may call it."""

    def set_nodes(self, nodes: Mapping[int, tuple[str, int]]) -> None:
        """Take the cluster's nodes from Metadata."""

    def send(self, node: int, api: AnyApi, body: tuple[object, ...], *, tag: object, expect_response: bool) -> None:
        """Send a request to a node that was `ready`; a later `poll` returns its completion with `tag`."""

    def poll(self, timeout: float) -> Sequence[Completion]:
        """Wait at most `timeout` seconds for an event, and return the completions."""

    def take_disconnected(self) -> Sequence[int]:
        """Return the nodes whose connection, or attempt at one, has failed since the last call."""

    def fatal_error(self) -> PyProducerError | None:
        """Return the error that ends the producer, since no attempt to connect can succeed; asked after a failure."""

    def wakeup(self) -> None:
        """Make a waiting poll, or else the next one, return at once. Any thread may call it."""

    def close(self) -> None:
        """Close every connection. No poll follows."""


class Connect(Protocol):
    """Makes the network of a producer, which may connect later."""

    def __call__(self, settings: ConnectionSettings, *, metrics: ProducerMetrics) -> Network:
        """Return a network that begins with the bootstrap servers of `settings` and reports to `metrics`."""
