"""The timer of compaction: as in Kafka the log with the largest dirty ratio is next (LogCleanerManager)."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable
from typing import Final
from weakref import WeakKeyDictionary

from spark_producer.broker.log.compaction.passes import CompactionState, compact, dirty_ratio, is_overdue
from spark_producer.broker.log.partition import Partition
from spark_producer.common.escape import escaping_logger
from spark_producer.errors import BrokerError, CorruptRecord

MAX_TURN_S: Final = 0.005
"""Maximum time of compaction before clients are served again, in seconds."""

logger = escaping_logger(__name__)


class CompactionTimer:
    """Compacts logs, one at a time, a little with each call. Only the broker's thread uses it.

    `partitions` returns all partitions with the names of their topics. `now` is in seconds of the caller's monotonic clock.
    """

    def __init__(
        self,
        partitions: Callable[[], Iterable[tuple[str, Partition]]],
        interval: float,
        now: float,
        *,
        clock: Callable[[], float] = time.monotonic,
        time_of_day: Callable[[], float] = time.time,
    ) -> None:
        self._partitions = partitions
        self._interval = interval
        self._clock, self._time_of_day = clock, time_of_day
        self._states: WeakKeyDictionary[Partition, CompactionState] = WeakKeyDictionary()
        self._tried: WeakKeyDictionary[Partition, float] = WeakKeyDictionary()
        self._work: Generator[bool, None, None] | None = None
        self._name = ""
        self._partition: Partition | None = None
        self._logged_errors: dict[str, str] = {}
        self.due = now + interval
        """The time at which `run_if_due` is next due."""

    def run_if_due(self, now: float) -> None:
        """Continue the compaction of a log for a few milliseconds, or begin with the next log if the interval has passed."""
        if now < self.due:
            return
        if self._work is None and not self._begin():
            self.due = now + self._interval
            return
        end = self._clock() + MAX_TURN_S
        while self._work is not None and self._clock() < end:
            if self._step():  # the engine is busy
                self.due = now + MAX_TURN_S
                return

    def run_all(self) -> None:
        """Compact each log that needs it now."""
        self._tried.clear()
        while self._work is not None or self._begin():
            self._step()

    def _step(self) -> bool:
        """Run the next step; return whether to wait for the engine."""
        assert self._work is not None
        try:
            if all(each is not self._partition for _, each in self._partitions()):  # it was deleted
                self.close()
                return False
            return next(self._work)
        except StopIteration:
            self._logged_errors.pop(self._name, None)
        except (BrokerError, CorruptRecord) as error:
            self._failed(str(error))
        self._work = self._partition = None
        return False

    def _failed(self, why: str) -> None:
        """Log why a log is not compacted, once for each reason: it is retried after each interval."""
        if self._logged_errors.get(self._name) != why:
            logger.error("%s is not compacted: %s", self._name, why)
        self._logged_errors[self._name] = why

    def _begin(self) -> bool:
        """Begin with the log that needs it most; return whether there is one."""
        now_ms = int(self._time_of_day() * 1000)
        found: tuple[float, str, Partition] | None = None
        for topic, partition in self._partitions():
            if partition.settings.compacts:
                need = self._need(partition, now_ms)
                if need is not None and (found is None or need > found[0]):
                    found = (need, f"topic {topic}, partition {partition.index}", partition)
        if found is None:
            return False
        _, self._name, self._partition = found
        self._tried[self._partition] = self._clock()
        self._work = compact(self._partition, self._state(self._partition), now_ms, name=self._name)
        return True

    def _need(self, partition: Partition, now_ms: int) -> float | None:
        """Return the need of a log to be compacted; None if it has none, or was tried within the last interval."""
        tried = self._tried.get(partition)
        if tried is not None and self._clock() < tried + self._interval:
            return None
        state = self._state(partition)
        try:
            if is_overdue(partition, state, now_ms):
                return 1.0
            ratio = dirty_ratio(partition, state)
        except BrokerError:
            return None  # it cannot be read, which was logged already
        return ratio if ratio > 0 and ratio >= partition.settings.min_cleanable_dirty_ratio else None

    def _state(self, partition: Partition) -> CompactionState:
        return self._states.setdefault(partition, CompactionState())

    def close(self) -> None:
        """Abort the current compaction, which has changed nothing so far."""
        if self._work is not None:
            self._work.close()
            self._work = self._partition = None
