"""How long the broker waits for a client that does nothing, or too little.

Owns: the deadline of one connection. The clock is passed in.
Must not know: sockets, or what happens when the deadline has come.

A transfer must move `LEAST_PROGRESS` bytes, or its rest, in each `stall_timeout`: who sends or takes a byte now and then, to hold
the memory of a large frame, is not making progress. While others wait for that memory, the whole transfer must be over in one
`stall_timeout`, which is as long as clients wait for an answer.
"""

from __future__ import annotations

import enum
import math
from typing import Final

LEAST_PROGRESS: Final = 1024 * 1024
"""Bytes; in 30 seconds that is 35 KB/s, less than any line over which the producer's requests of 4 MiB pass in time."""


class Stage(enum.Enum):
    """What a connection is waiting for."""

    IDLE = "the client's next request"
    RECEIVING = "the rest of a request"
    SENDING = "the client to take the answer"
    WORKING = "the broker itself"


class Patience:
    """The deadline of one connection, in seconds of the server's clock."""

    def __init__(self, idle_timeout: float, stall_timeout: float) -> None:
        self._timeouts = {
            Stage.IDLE: idle_timeout,
            Stage.RECEIVING: stall_timeout,
            Stage.SENDING: stall_timeout,
            Stage.WORKING: math.inf,
        }
        self._seen: tuple[Stage, int] | None = None
        self._moved = 0
        self.deadline = math.inf
        self.whole_deadline = math.inf
        """When the whole transfer should be over, however much moves: for times when others wait for its memory."""

    def observe(self, stage: Stage, transfer: int, moved: int, now: float) -> None:
        """Note how things are after a step.

        Args:
            stage: what is being waited for.
            transfer: a number that is another one for each request and answer.
            moved: bytes that the connection has received and sent since its beginning.
            now: seconds.
        """
        if self._seen != (stage, transfer):
            self.whole_deadline = now + self._timeouts[stage]
        if self._seen != (stage, transfer) or moved - self._moved >= LEAST_PROGRESS:
            self._seen = (stage, transfer)
            self._moved = moved
            self.deadline = now + self._timeouts[stage]

    def reason(self) -> str:
        """What was waited for in vain."""
        stage = self._seen[0] if self._seen else Stage.IDLE
        return f"waited {self._timeouts[stage]:g} s for {stage.value}"
