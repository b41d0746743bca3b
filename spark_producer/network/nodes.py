"""All nodes of a client, and the choice of the least loaded one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from random import Random

from spark_producer.network.node import NodeConnection, NodeState
from spark_producer.network.settings import ConnectionSettings
from spark_producer.protocol import AnyApi

_UNDER_WAY = (NodeState.CONNECTING, NodeState.NEGOTIATING, NodeState.REAUTHENTICATING)


class Nodes:
    """The bootstrap servers, as nodes -1, -2, … in the order given, and the brokers of the cluster once they are known."""

    def __init__(self, settings: ConnectionSettings, random: Random) -> None:
        self._max_in_flight = settings.max_in_flight
        self._random = random
        self.bootstrap = {
            -1 - i: NodeConnection(-1 - i, host, port) for i, (host, port) in enumerate(settings.bootstrap)
        }
        self._cluster: dict[int, NodeConnection] = {}

    def __iter__(self) -> Iterator[NodeConnection]:
        """Iterate over all nodes. It is thread-safe."""
        return iter([*self.bootstrap.values(), *self._cluster.values()])

    def find(self, node: int) -> NodeConnection | None:
        """Return the node with this id, if there is one."""
        return self.bootstrap.get(node) or self._cluster.get(node)

    def load(self) -> tuple[int, int]:
        """Return the number of open connections and of in-flight requests. It is thread-safe."""
        nodes = list(self)
        return sum(node.connection is not None for node in nodes), sum(node.in_flight for node in nodes)

    def replace(self, nodes: Mapping[int, tuple[str, int]]) -> list[NodeConnection]:
        """Set the nodes of the cluster. Return those that have left or have another address, for the caller to close."""
        gone = [node for node in self._cluster.values() if nodes.get(node.id) != (node.host, node.port)]
        for node in gone:
            del self._cluster[node.id]
        for node_id, (host, port) in nodes.items():
            if node_id not in self._cluster:
                self._cluster[node_id] = NodeConnection(node_id, host, port)
        return gone

    def least_loaded(self, now: float) -> int | None:
        """Return the best node for a request that any node can answer; see `Client.least_loaded`.

        It may be a node whose login has no token yet: `Client.ready` then returns False and stores the error.
        """
        nodes = list((self._cluster or self.bootstrap).values())
        self._random.shuffle(nodes)
        sendable = [node for node in nodes if node.can_send(now, self._max_in_flight)]
        if sendable:
            return min(sendable, key=lambda node: node.in_flight).id
        for node in nodes:
            if node.state in _UNDER_WAY or node.reauthentication_due(now):
                return node.id
        connectable = [node for node in nodes if node.can_connect(now)]
        return min(connectable, key=lambda node: node.last_attempt).id if connectable else None

    def ready_with(self, api: AnyApi, now: float) -> int | None:
        """Return the node with the fewest in-flight requests of those that may get one now and support `api`."""
        found = [
            node
            for node in self
            if node.can_send(now, self._max_in_flight) and node.connection is not None and node.connection.supports(api)
        ]
        return min(found, key=lambda node: node.in_flight).id if found else None

    def all_nodes_unavailable(self, now: float) -> bool:
        """Return whether no node of the cluster is connected, connecting, or out of backoff (KIP-899)."""
        return bool(self._cluster) and not any(
            node.state is not NodeState.DISCONNECTED or node.can_connect(now) for node in self._cluster.values()
        )
