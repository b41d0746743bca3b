"""The notice in the log that a disk is full, and that it has space again: each once, however many batches are refused."""

from __future__ import annotations

from pathlib import Path

from spark_producer.common.escape import escaping_logger

logger = escaping_logger(__name__)


class SpaceNotice:
    """Whether the disk of `directory` has space for batches. One thread calls `refused` and `accepted`; any may read `full`."""

    def __init__(self, directory: Path) -> None:
        self.full = ""
        """Why batches are refused: how much space is missing. Empty while there is space."""
        self._directory = directory

    def refused(self, text: str) -> None:
        """Note that the disk is full, for the reason `text`."""
        if not self.full:
            logger.error("%s: no batches are taken: %s", self._directory, text)
        self.full = text

    def accepted(self) -> None:
        """Note that the disk took a batch."""
        if self.full:
            self.full = ""
            logger.warning("%s: there is space again, and batches are taken", self._directory)
