"""The timer of the retention check."""

from __future__ import annotations

import time
from collections.abc import Callable


class RetentionTimer:
    """Calls `delete_old` with the time of day (milliseconds since 1970) every `interval` seconds.

    `now` is in seconds of the caller's monotonic clock.
    """

    def __init__(
        self,
        delete_old: Callable[[int], None],
        interval: float,
        now: float,
        time_of_day: Callable[[], float] = time.time,
    ) -> None:
        self._delete_old_segments = delete_old
        self._interval = interval
        self._time_of_day = time_of_day
        self.due = now + interval
        """The time at which `run_if_due` is next due."""

    def run_if_due(self, now: float) -> None:
        """Call `delete_old` if the interval has passed."""
        if now >= self.due:
            self.due = now + self._interval
            self._delete_old_segments(int(self._time_of_day() * 1000))
