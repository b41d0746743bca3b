"""What the log says while the driver of a write waits for brokers: once when it takes long, and once when that is over."""

from __future__ import annotations

from collections.abc import Callable

from spark_producer.common.escape import escaping_logger

logger = escaping_logger(__name__)

LOG_AFTER_S = 5.0
"""Seconds for which one thing must be waited for before the log says so: an election takes some, and markers milliseconds."""


class Waits:
    """The waits of one sink, in one process. `limit` is the seconds that each step may take."""

    def __init__(self, sink: str, limit: float, clock: Callable[[], float]) -> None:
        self._sink = sink
        self._limit = limit
        self._clock = clock
        self._since: float | None = None
        """The time since which is waited, once the log has said so."""

    def __call__(self, seconds: float, subject: str) -> None:
        """Say that `subject` is waited for, if it has been for so long; a `BlockingClient` calls this in every wait."""
        if self._since is not None or seconds < LOG_AFTER_S:
            return
        self._since = self._clock() - seconds
        logger.warning(
            "exactlyOnceId %s: waiting for %s for %.0f s, at most %g s in each step (kafka.max.block.ms). Nothing of the batch "
            "is lost: it goes on from here, or is run again",
            self._sink,
            subject,
            seconds,
            self._limit,
        )

    def over(self) -> None:
        """Say that the driver went on, if the log has said that it waits. What fails is told by its error."""
        since, self._since = self._since, None
        if since is not None:
            logger.warning("exactlyOnceId %s: went on after %.1f s", self._sink, self._clock() - since)
