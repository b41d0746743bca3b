"""The queued responses of one connection, in the order of its requests."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Final

from spark_producer.broker.deferred_response import DeferredResponse, waiting_size
from spark_producer.errors import ProtocolError, SecurityError
from spark_producer.protocol import Buffer

NOW: Final = -math.inf
"""The deadline of a response that only waits for the earlier ones."""


@dataclass(eq=False)
class QueuedResponse:
    """A response that is queued after others, or delayed.

    encode: returns the frame of the response, given the maximum bytes of its records (`DeferredResponse.response`).
    deadline: the time, in seconds of the server's clock, at which it is sent, ready or not.
    size: the bytes of memory that it takes.
    deferred: the response that a change of state can make ready before `deadline`; None if only the time does.
    produce_bytes: the size of the request's frame if it is a Produce, else None. Produces wait together.
    closes: whether it is the last response of the connection.
    fails: whether there is no response: the connection is dropped with an error in its turn.
    is_due: whether it can be sent.
    """

    encode: Callable[[int], list[Buffer]]
    deadline: float
    size: int
    deferred: DeferredResponse | None = None
    produce_bytes: int | None = None
    closes: bool = False
    fails: bool = False
    is_due: bool = False

    @property
    def carries_records(self) -> bool:
        """Whether the response carries records (`DeferredResponse.carries_records`)."""
        return self.deferred is not None and self.deferred.carries_records

    @property
    def keys(self) -> tuple[Hashable, ...]:
        """The keys that it waits for, as in `HandlerResult.changed`."""
        return () if self.deferred is None else self.deferred.keys

    def check_due(self, now: float) -> bool:
        """Update `is_due` at the time `now`, and return it."""
        self.is_due = self.is_due or self.deadline <= now or (self.deferred is not None and self.deferred.is_ready())
        return self.is_due


def ready_response(buffers: list[Buffer], produce_bytes: int) -> QueuedResponse:
    """Return the response of a Produce, which only waits for the earlier ones."""
    return QueuedResponse(lambda _: buffers, NOW, waiting_size(0) + sum(map(len, buffers)), produce_bytes=produce_bytes)


def refusal_response(buffers: list[Buffer], deadline: float) -> QueuedResponse:
    """Return the response to a refused login: it is sent after a pause, and closes the connection."""
    return QueuedResponse(lambda _: buffers, deadline, waiting_size(0), closes=True)


def failing_response(error: ProtocolError | SecurityError) -> QueuedResponse:
    """Return an entry that drops the connection, once the earlier responses are sent."""

    def fail(_: int) -> list[Buffer]:
        raise error

    return QueuedResponse(fail, NOW, waiting_size(0), fails=True)
