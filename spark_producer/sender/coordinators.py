"""The known coordinators of the transactional id and of consumer groups."""

from __future__ import annotations

import enum
from collections.abc import Container
from typing import NamedTuple

from spark_producer.errors import RemoteProtocolError
from spark_producer.protocol.messages import FindCoordinatorRequest
from spark_producer.protocol.messages.groups import FindCoordinatorResponse, FoundCoordinator


class KeyType(enum.IntEnum):
    """The type of a coordinator's key, with the numbers of FindCoordinator."""

    GROUP = 0
    TRANSACTION = 1


class CoordinatorKey(NamedTuple):
    """A consumer group or a transactional id."""

    kind: KeyType
    name: str


class Coordinators:
    """The coordinator node of each key.

    A node is forgotten when it returns NOT_COORDINATOR, when its connection is closed, or when it has left the cluster.
    """

    def __init__(self) -> None:
        self._nodes: dict[CoordinatorKey, int] = {}
        self._responses: dict[CoordinatorKey, int] = {}
        """the number of Metadata responses at the last lookup of each key"""

    def node_of(self, key: CoordinatorKey) -> int | None:
        """Return the coordinator of a key; None if it must be looked up."""
        return self._nodes.get(key)

    def forget(self, key: CoordinatorKey) -> None:
        """Forget the coordinator of a key."""
        self._nodes.pop(key, None)

    def on_disconnect(self, node: int) -> None:
        """Forget the coordinators on a node."""
        self._nodes = {key: known for key, known in self._nodes.items() if known != node}

    def has_left(self, key: CoordinatorKey, nodes: Container[int], responses: int) -> bool:
        """Return whether the coordinator is not in `nodes`, the nodes of Metadata response number `responses`.

        Only a response after the lookup counts: in an older one a node that has just joined is missing too.
        """
        node = self._nodes.get(key)
        return node is not None and node not in nodes and responses > self._responses[key]

    def on_response(self, key: CoordinatorKey, response: FindCoordinatorResponse, responses: int) -> FoundCoordinator:
        """Store the coordinator of a response, and return it, or its error, in the form of version 4.

        `responses` is the number of Metadata responses so far.

        Raises:
            RemoteProtocolError: the response has another key, or several.
        """
        if response.coordinators:
            if len(response.coordinators) > 1 or response.coordinators[0].key != key.name:
                raise RemoteProtocolError(
                    f"the FindCoordinator response lacks the coordinator of {key.name!r}, or has others"
                )
            (coordinator,) = response.coordinators
        else:
            coordinator = FoundCoordinator(
                key.name, response.node_id, response.host, response.port, response.error_code, response.error_message
            )
        if not coordinator.error_code:
            self._nodes[key], self._responses[key] = coordinator.node_id, responses
        return coordinator


def find_coordinator_request(key: CoordinatorKey) -> FindCoordinatorRequest:
    """Return the request for the coordinator of a key, for all versions."""
    return FindCoordinatorRequest(key.name, int(key.kind), (key.name,))
