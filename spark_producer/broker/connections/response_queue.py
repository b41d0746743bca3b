"""The requests of one connection that have been handled and whose answers are still to be sent, in their order."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Final

from spark_producer.broker.deferred_response import DeferredResponse, waiting_size
from spark_producer.errors import ProtocolError, SecurityError
from spark_producer.protocol import Buffer

NOW: Final = -math.inf
"""The deadline of what need not wait for anything but the answers before it."""


@dataclass(eq=False)
class QueuedResponse:
    """One such request.

    answer: returns the frame of its answer, given the most bytes of records that it may hold (`DeferredResponse.response`).
    deadline: the time, in seconds of the server's clock, at which it is answered, ready or not.
    pending: what it waits for, if it is not only the time.
    size: the bytes of memory that it takes.
    published: the bytes of its frame if it is a Produce, and None otherwise. Produces wait together.
    ends: whether the answer is the last one of the connection.
    fails: whether there is no answer: the connection is dropped with an error at its turn.
    is_due: whether its wait is over.
    """

    answer: Callable[[int], list[Buffer]]
    deadline: float
    size: int
    deferred: DeferredResponse | None = None
    published: int | None = None
    ends: bool = False
    fails: bool = False
    is_due: bool = False

    @property
    def carries_records(self) -> bool:
        """Whether the answer does (`DeferredResponse.carries_records`)."""
        return self.deferred is not None and self.deferred.carries_records

    @property
    def keys(self) -> tuple[Hashable, ...]:
        """What it waits for, as `Answer.changed` names it."""
        return () if self.deferred is None else self.deferred.keys

    def check_due(self, now: float) -> bool:
        """Return whether its wait is over at the time `now`, and note it."""
        self.is_due = self.is_due or self.deadline <= now or (self.deferred is not None and self.deferred.is_ready())
        return self.is_due


def ready_response(buffers: list[Buffer], published: int) -> QueuedResponse:
    """Return a Produce that has its answer already, and waits for those before it."""
    return QueuedResponse(lambda _: buffers, NOW, waiting_size(0) + sum(map(len, buffers)), published=published)


def refusal_response(buffers: list[Buffer], deadline: float) -> QueuedResponse:
    """Return a refused login, which is told so after its pause, and whose connection is closed then."""
    return QueuedResponse(lambda _: buffers, deadline, waiting_size(0), ends=True)


def failing_response(error: ProtocolError | SecurityError) -> QueuedResponse:
    """Return a request for which its connection is dropped, but not before the earlier ones are answered."""

    def fail(_: int) -> list[Buffer]:
        raise error

    return QueuedResponse(fail, NOW, waiting_size(0), fails=True)
