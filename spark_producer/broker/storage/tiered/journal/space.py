"""Waiting for space on a full disk: what failed for lack of it is tried again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from spark_producer.broker.storage.disk import FULL
from spark_producer.common.escape import escaping_logger

RETRY_S: Final = 1.0
"""Seconds between two attempts on a full disk."""

logger = escaping_logger(__name__)


class Space:
    """Whether the disk has space for the journal in `directory`. The journal's thread uses it; any thread may read `full`.

    `is_over` returns whether waiting has ended, and `wait` waits for a number of seconds, or until then.
    """

    def __init__(self, directory: Path, is_over: Callable[[], bool], wait: Callable[[float], None]) -> None:
        self.full = ""
        """Why records wait: how much space is missing. Empty while there is space."""
        self._directory, self._is_over, self._wait = directory, is_over, wait

    def until_there_is(self, work: Callable[[], None]) -> bool:
        """Call a function, which changes nothing if the disk is full, until there is space. Return False if the wait ends first.

        Raises:
            OSError: the disk refused for another reason.
        """
        while True:
            try:
                work()
            except OSError as error:
                if error.errno not in FULL:
                    raise
                self.note(error)
                if self._is_over():
                    return False
                self._wait(RETRY_S)
            else:
                break
        if self.full:
            self.full = ""
            logger.warning("%s: there is space again, and batches are taken", self._directory)
        return True

    def note(self, error: OSError) -> None:
        """Note, and say once, that there is no space."""
        text = error.strerror or str(error)
        if not self.full:
            logger.error("%s: no batches are taken: %s", self._directory, text)
        self.full = text
