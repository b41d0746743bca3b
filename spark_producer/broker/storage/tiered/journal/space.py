"""Retries of calls that failed because the disk is full."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from spark_producer.broker.storage.disk import DISK_FULL_ERRNOS
from spark_producer.broker.storage.space_notice import SpaceNotice

RETRY_S: Final = 1.0
"""Seconds between two attempts on a full disk."""


class SpaceWaiter:
    """Waits until the disk of the journal in `directory` has space. The journal thread uses it; any thread may read `full`.

    `is_over` returns whether to stop waiting, and `wait` waits for a number of seconds, or until `is_over`.
    """

    def __init__(self, directory: Path, is_over: Callable[[], bool], wait: Callable[[float], None]) -> None:
        self._notice = SpaceNotice(directory)
        self._is_over, self._wait = is_over, wait

    @property
    def full(self) -> str:
        """Message that says how much space is missing; empty while the disk has space."""
        return self._notice.full

    def retry_until_free(self, work: Callable[[], None]) -> bool:
        """Call `work`, which has no effect if the disk is full, until it succeeds. Return False if `is_over` came first.

        Raises:
            OSError: another error of the disk.
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
        """Record that the disk is full. It is logged the first time."""
        self._notice.refused(error.strerror or str(error))
