"""Logs that a disk is full, and that it has space again: once each, not once per batch."""

from __future__ import annotations

from pathlib import Path

from spark_producer.common.escape import escaping_logger

logger = escaping_logger(__name__)


class SpaceNotice:
    """Tracks whether the disk of `directory` is full. One thread calls `refused` and `accepted`; any thread may read `full`."""

    def __init__(self, directory: Path) -> None:
        self.full = ""
        """Message that says how much space is missing; empty while the disk has space."""
        self._directory = directory

    def refused(self, text: str) -> None:
        """Record that the disk is full, with the message `text`. It is logged the first time."""
        if not self.full:
            logger.error("%s: batches are refused: %s", self._directory, text)
        self.full = text

    def accepted(self) -> None:
        """Record that a batch was written."""
        if self.full:
            logger.warning("%s: the disk has space again, batches are accepted", self._directory)
            self.full = ""  # after the line in the log: who sees the space finds the line
