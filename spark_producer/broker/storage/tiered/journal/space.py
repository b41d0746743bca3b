"""Waiting for space on a full disk: what failed for lack of it is tried again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from spark_producer.broker.storage.disk import DISK_FULL_ERRNOS
from spark_producer.broker.storage.space_notice import SpaceNotice

RETRY_S: Final = 1.0
"""Seconds between two attempts on a full disk."""


class SpaceWaiter:
    """Whether the disk has space for the journal in `directory`. The journal's thread uses it; any thread may read `full`.

    `is_over` returns whether waiting has ended, and `wait` waits for a number of seconds, or until then.
    """

    def __init__(self, directory: Path, is_over: Callable[[], bool], wait: Callable[[float], None]) -> None:
        self._notice = SpaceNotice(directory)
        self._is_over, self._wait = is_over, wait

    @property
    def full(self) -> str:
        """Why records wait: how much space is missing. Empty while there is space."""
        return self._notice.full

    def retry_until_free(self, work: Callable[[], None]) -> bool:
        """Call a function, which changes nothing if the disk is full, until there is space. Return False if the wait ends first.

        Raises:
            OSError: the disk refused for another reason.
        """
        while True:
            try:
                work()
            except OSError as error:
                if error.errno not in DISK_FULL_ERRNOS:
                    raise
                self.note(error)
                if self._is_over():
                    return False
                self._wait(RETRY_S)
            else:
                break
        self._notice.accepted()
        return True

    def note(self, error: OSError) -> None:
        """Note that there is no space, which is logged once."""
        self._notice.refused(error.strerror or str(error))
