"""When the broker looks for records that may be deleted: the clock's side of retention."""

from __future__ import annotations

import time
from collections.abc import Callable


class RetentionTimer:
    """Calls `delete_old` with the time of day (milliseconds since 1970), once in `interval` seconds.

    `now`, here and below: seconds of the caller's clock, which never goes back. The time of day may.
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
        """When `run_if_due` has something to do next."""

    def run_if_due(self, now: float) -> None:
        """Look for records to delete, if it is time."""
        if now >= self.due:
            self.due = now + self._interval
            self._delete_old_segments(int(self._time_of_day() * 1000))
