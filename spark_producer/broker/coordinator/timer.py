"""The timer that says when the coordinator has something to do by itself."""

from __future__ import annotations

from spark_producer.broker.coordinator.coordinator import BrokerCoordinator
from spark_producer.broker.coordinator.transactions import TopicPartition


class CoordinatorTimer:
    """Has late transactions aborted every `interval` seconds, and markers written as long as there are some to write."""

    def __init__(self, coordinator: BrokerCoordinator, interval: float, now: float) -> None:
        self._coordinator = coordinator
        self._interval = interval
        self._next_scan = now + interval

    @property
    def due(self) -> float:
        """The time, in seconds of the caller's clock, at which `run_if_due` next has something to do."""
        return float("-inf") if self._coordinator.has_markers_to_write else self._next_scan

    def run_if_due(self, now: float) -> tuple[TopicPartition, ...]:
        """Do what is due; return the partitions that got markers."""
        if now >= self._next_scan:
            self._next_scan = now + self._interval
            self._coordinator.scan()
        self._coordinator.work()
        return self._coordinator.take_changed()
