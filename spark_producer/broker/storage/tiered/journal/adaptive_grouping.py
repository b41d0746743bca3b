"""Adaptive grouping: a short pause before a force, for the next records of the writers whose last records were just confirmed.

Writers that wait for each batch before they append the next one split into two crowds: while the batches of one crowd are forced,
those of the other are written, and are forced as soon as that is done. The crowds stay apart, each force has half of the batches,
and each batch takes the time of two forces. A short pause joins them. PostgreSQL's `commit_delay` is such a pause, and its manual
recommends half of the time of a force. BookKeeper has none (`journalAdaptiveGroupWrites` is read and not used).
"""

from __future__ import annotations

from spark_producer.broker.storage.tiered.journal.settings import JournalSettings


class AdaptiveGrouping:
    """The rule, without a clock: all times are in seconds of one monotonic clock."""

    def __init__(self, settings: JournalSettings) -> None:
        self._max_pause = 2 * settings.max_group_wait_ms / 1000
        self._expected = 0
        self._until = 0.0

    def forced(self, entries: int, waiting: int, seconds: float, now: float) -> None:
        """Record the end of a force.

        Args:
            entries: number of its records.
            waiting: number of records that were written meanwhile, and wait for the next force.
            seconds: its duration.
            now: the time.
        """
        self._expected = entries + waiting
        self._until = now + min(seconds / 2, self._max_pause) if waiting else now

    def seconds_left(self, waiting: int, now: float) -> float:
        """Return the pause before the next force of `waiting` records in seconds; 0 or less if there is none."""
        return 0.0 if waiting >= self._expected else self._until - now
