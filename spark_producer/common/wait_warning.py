"""The warning about a long wait for brokers: in the check of a write, in the look-ups of a read, and in its tasks."""

from __future__ import annotations

from spark_producer.common.escape import escaping_logger

logger = escaping_logger("pyproducer")

WARN_AFTER_S = 2.0
"""Seconds of a wait before the warning: a connection takes milliseconds."""


class WaitWarning:
    """Logs one warning in each long wait. `limit` is its timeout in seconds, set by `option`."""

    def __init__(self, limit: float, option: str) -> None:
        self._limit = f"{limit:g} s ({option})"
        self._has_warned = False

    def __call__(self, seconds: float, subject: str) -> None:
        """Log a warning if the wait for `subject` takes `seconds` already."""
        if seconds < WARN_AFTER_S:
            self._has_warned = False
        elif not self._has_warned:
            self._has_warned = True
            logger.warning("still waiting for %s, at most %s", subject, self._limit)
