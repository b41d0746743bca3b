"""Whether the next force waits a moment for records of those who have just been told that their last ones are safe.

Writers that each wait for their batch before they append the next one fall into two crowds: while the batches of one are forced,
those of the other are written, and are forced at once when that is done. The crowds never meet again, each force has half of the
batches, and each batch takes the time of two. A short pause lets them meet. `commit_delay` of PostgreSQL is such a pause, and its
manual recommends half of the time of a force. BookKeeper has none (`journalAdaptiveGroupWrites` is read and not used).
"""

from __future__ import annotations

from spark_producer.broker.storage.tiered.journal.settings import JournalSettings


class AdaptiveGrouping:
    """The rule, without a clock: all times are seconds of one clock that never goes back."""

    def __init__(self, settings: JournalSettings) -> None:
        self._max_pause = 2 * settings.max_group_wait_ms / 1000
        self._expected = 0
        self._until = 0.0

    def forced(self, entries: int, waiting: int, seconds: float, now: float) -> None:
        """Note the end of a force.

        Args:
            entries: the records that it had.
            waiting: those that were written in the meantime, and wait for the next one.
            seconds: how long it took.
            now: the time.
        """
        self._expected = entries + waiting
        self._until = now + min(seconds / 2, self._max_pause) if waiting else now

    def seconds_left(self, waiting: int, now: float) -> float:
        """Return for how long the next force waits, with so many records that wait for it; 0 or less if it begins."""
        return 0.0 if waiting >= self._expected else self._until - now
