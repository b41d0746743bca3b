"""Which brokers coordinate the transactional id and the consumer groups, as far as is known."""

from __future__ import annotations

import enum
from collections.abc import Container
from typing import NamedTuple

from spark_producer.errors import RemoteProtocolError
from spark_producer.protocol.messages import FindCoordinatorRequest
from spark_producer.protocol.messages.groups import FindCoordinatorResponse, FoundCoordinator


class KeyType(enum.IntEnum):
    """What a coordinator coordinates; the numbers are those of FindCoordinator."""

    GROUP = 0
    TRANSACTION = 1


class CoordinatorKey(NamedTuple):
    """A group or a transactional id."""

    kind: KeyType
    name: str


class Coordinators:
    """The nodes that coordinate keys.

    A node is forgotten when it says that it is not the one, when its connection breaks, or when it has left the cluster.
    """

    def __init__(self) -> None:
        self._nodes: dict[CoordinatorKey, int] = {}
        self._answers: dict[CoordinatorKey, int] = {}
        """how many Metadata answers there were when a key was looked up last"""

    def node_of(self, key: CoordinatorKey) -> int | None:
        """Return the coordinator's node; None if it must be looked up."""
        return self._nodes.get(key)

    def forget(self, key: CoordinatorKey) -> None:
        """Have the coordinator of a key looked up again."""
        self._nodes.pop(key, None)

    def disconnected(self, node: int) -> None:
        """Have the coordinators on a node looked up again."""
        self._nodes = {key: its for key, its in self._nodes.items() if its != node}

    def has_left(self, key: CoordinatorKey, nodes: Container[int], answers: int) -> bool:
        """Whether the coordinator's node is none of `nodes`, which Metadata answer number `answers` names, after the lookup.

        Until such an answer it may be a node that has just joined.
        """
        node = self._nodes.get(key)
        return node is not None and node not in nodes and answers > self._answers[key]

    def found(self, key: CoordinatorKey, answer: FindCoordinatorResponse, answers: int) -> FoundCoordinator:
        """Take in an answer about a key, and return it in the form of version 4, where it may be an error.

        `answers` is how many Metadata answers there were before.

        Raises:
            RemoteProtocolError: the answer is about another key, or about several.
        """
        if answer.coordinators:
            if len(answer.coordinators) > 1 or answer.coordinators[0].key != key.name:
                raise RemoteProtocolError(
                    f"a broker was asked for one coordinator, that of {key.name!r}, and named others"
                )
            (told,) = answer.coordinators
        else:
            told = FoundCoordinator(
                key.name, answer.node_id, answer.host, answer.port, answer.error_code, answer.error_message
            )
        if not told.error_code:
            self._nodes[key], self._answers[key] = told.node_id, answers
        return told


def find_coordinator_request(key: CoordinatorKey) -> FindCoordinatorRequest:
    """Return the request for the coordinator of a key, in the form of all versions."""
    return FindCoordinatorRequest(key.name, int(key.kind), (key.name,))
