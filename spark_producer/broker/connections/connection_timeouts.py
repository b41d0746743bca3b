"""The time that the broker waits for a client that does nothing, or too little.

A transfer must move `MIN_PROGRESS_BYTES`, or what is left of it, in each `stall_timeout`: a client that sends or takes a byte
now and then, and so holds the memory of a large frame, makes no progress. While others wait for that memory, the whole transfer
must be over in one `stall_timeout`, which is as long as clients wait for an answer. The time is passed in.
"""

from __future__ import annotations

import enum
import math
from typing import Final

MIN_PROGRESS_BYTES: Final = 1024 * 1024
"""Bytes. In 30 seconds that is 35 KB/s, and any line over which the producer's requests of 4 MiB pass in time is faster."""


class ConnectionStage(enum.Enum):
    """The stages of a connection, each with what the connection waits for."""

    IDLE = "the client's next request"
    RECEIVING = "the rest of a request"
    SENDING = "the client to take the answer"
    WORKING = "the broker itself"


class ConnectionTimeouts:
    """The deadline of one connection, in seconds of the server's clock."""

    def __init__(self, idle_timeout: float, stall_timeout: float) -> None:
        self._timeouts = {
            ConnectionStage.IDLE: idle_timeout,
            ConnectionStage.RECEIVING: stall_timeout,
            ConnectionStage.SENDING: stall_timeout,
            ConnectionStage.WORKING: math.inf,
        }
        self._seen: tuple[ConnectionStage, int] | None = None
        self._moved = 0
        self.deadline = math.inf
        self.whole_deadline = math.inf
        """The time at which the whole transfer must be over, however much moves, if others wait for its memory."""

    def observe(self, stage: ConnectionStage, transfer: int, moved: int, now: float) -> None:
        """Note the state of the connection after a step.

        Args:
            stage: the stage that the connection is in.
            transfer: a number that differs for each request and each answer.
            moved: the bytes that the connection has received and sent since its beginning.
            now: the time in seconds.
        """
        if self._seen != (stage, transfer):
            self.whole_deadline = now + self._timeouts[stage]
        if self._seen != (stage, transfer) or moved - self._moved >= MIN_PROGRESS_BYTES:
            self._seen = (stage, transfer)
            self._moved = moved
            self.deadline = now + self._timeouts[stage]

    def reason(self) -> str:
        """Return, for a message, how long the broker has waited in vain and for what."""
        stage = self._seen[0] if self._seen else ConnectionStage.IDLE
        return f"waited {self._timeouts[stage]:g} s for {stage.value}"
