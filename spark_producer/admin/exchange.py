"""The requests of one call of a client, and their responses, by their positions."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, TypeAlias

from spark_producer.errors import PyProducerError
from spark_producer.protocol import AnyApi

ANY = None
"""The node of a request that any broker can answer."""


class NodeRequest(NamedTuple):
    """A request to the broker `node`, or to any broker if that is None."""

    node: int | None
    api: AnyApi
    body: Any


ResponseOrError: TypeAlias = Any | PyProducerError
"""The body of a response, or the error in its place."""


class Exchange:
    """The requests of one call: those that wait for a connection, and those that wait for a response."""

    def __init__(self, requests: Sequence[NodeRequest], started: float, deadline: float, fail_fast: bool) -> None:
        self.requests = requests
        self.started = started
        self.deadline = deadline
        self.fail_fast = fail_fast
        """Whether a node is given up after its first failed attempt to connect, and not only at the deadline."""
        self.is_in_round = False
        """Whether a wait has begun while it was under way."""
        self.responses: list[ResponseOrError] = [None] * len(requests)
        self.last_response = math.inf
        """The time of the last response so far; infinite before the first."""
        self.unsent: dict[int | None, deque[int]] = {}
        self.in_flight: dict[object, tuple[int, int]] = {}
        """The position of a request and its node, by the tag of its completion."""
        for position, request in enumerate(requests):
            self.unsent.setdefault(request.node, deque()).append(position)

    @property
    def is_done(self) -> bool:
        """Whether each request has its response or error."""
        return not self.unsent and not self.in_flight

    def lose(self, error: PyProducerError) -> None:
        """Put an error in place of the responses that have not arrived."""
        waiting = [each for positions in self.unsent.values() for each in positions]
        for position in waiting + [position for position, _ in self.in_flight.values()]:
            self.responses[position] = error
        self.unsent.clear()
        self.in_flight.clear()

    def nodes(self) -> Iterable[int | None]:
        """Return the nodes that the call waits for."""
        return dict.fromkeys([*self.unsent, *(node for _, node in self.in_flight.values())])


def only_response(responses: Sequence[ResponseOrError]) -> Any:
    """Return the response to a single request, or raise the error in its place."""
    [response] = responses
    if isinstance(response, PyProducerError):
        raise response
    return response
