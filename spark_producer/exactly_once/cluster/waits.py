"""Log messages while the driver of a write waits for brokers: one when a wait takes long, and one when it is over."""

from __future__ import annotations

from collections.abc import Callable

from spark_producer.common.escape import escaping_logger

logger = escaping_logger(__name__)

LOG_AFTER_S = 5.0
"""Seconds of one wait before it is logged: an election takes some seconds, markers take milliseconds."""


class Waits:
    """The waits of one sink in one process. `limit` is the maximum time of each command in seconds."""

    def __init__(self, sink: str, limit: float, clock: Callable[[], float]) -> None:
        self._sink = sink
        self._limit = limit
        self._clock = clock
        self._since: float | None = None
        """The time at which the logged wait began; None if none is logged."""

    def __call__(self, seconds: float, subject: str) -> None:
        """Log that `subject` is waited for after `LOG_AFTER_S` of waiting; `BlockingClient` calls this in every wait, as its
        `on_wait`."""
        if self._since is not None or seconds < LOG_AFTER_S:
            return
        self._since = self._clock() - seconds
        logger.warning(
            "exactlyOnceId %s: waiting for %s for %.0f s, at most %g s in each step (kafka.max.block.ms). Nothing of the batch "
            "is lost: it continues from here, or runs again",
            self._sink,
            subject,
            seconds,
            self._limit,
        )

    def finished(self) -> None:
        """Log that the driver continues, if a wait was logged. After a failure the error is enough."""
        since, self._since = self._since, None
        if since is not None:
            logger.warning("exactlyOnceId %s: continues after %.1f s", self._sink, self._clock() - since)
