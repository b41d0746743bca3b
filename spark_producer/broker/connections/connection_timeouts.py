"""The timeouts of a connection whose client sends or takes too little.

A transfer must move `MIN_PROGRESS_BYTES`, or its remaining bytes, within each `stall_timeout`: a client that moves one byte now
and then would otherwise hold the memory of a large frame for ever. While other clients wait for that memory, the whole transfer
must end within one `stall_timeout`, which is as long as clients wait for a response. The time is passed in.
"""

from __future__ import annotations

import enum
import math
from typing import Final

MIN_PROGRESS_BYTES: Final = 1024 * 1024
"""Minimum number of bytes per `stall_timeout`. In 30 seconds that is 35 KB/s: slower lines could not carry the producer's
requests of 4 MiB in time either."""


class ConnectionStage(enum.Enum):
    """The stages of a connection, each with the event that it waits for."""

    IDLE = "the client's next request"
    RECEIVING = "the rest of a request"
    SENDING = "the client to take the response"
    WORKING = "the broker itself"


class ConnectionTimeouts:
    """The deadlines of one connection, in seconds of the server's clock."""

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
        """The deadline of the whole transfer, whatever its progress, while other clients wait for its memory."""

    def observe(self, stage: ConnectionStage, transfer: int, moved: int, now: float) -> None:
        """Update the deadlines after a step.

        Args:
            stage: the stage of the connection.
            transfer: a number that differs for each request and each response.
            moved: the bytes that the connection has received and sent since it began.
            now: the time in seconds.
        """
        if self._seen != (stage, transfer):
            self.whole_deadline = now + self._timeouts[stage]
        if self._seen != (stage, transfer) or moved - self._moved >= MIN_PROGRESS_BYTES:
            self._seen = (stage, transfer)
            self._moved = moved
            self.deadline = now + self._timeouts[stage]

    def reason(self) -> str:
        """Return the timeout that has passed, and the event that did not come, for a message."""
        stage = self._seen[0] if self._seen else ConnectionStage.IDLE
        return f"waited {self._timeouts[stage]:g} s for {stage.value}"
