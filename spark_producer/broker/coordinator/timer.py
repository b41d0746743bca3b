"""The timer of the coordinator's background work."""

from __future__ import annotations

from spark_producer.broker.coordinator.coordinator import BrokerCoordinator
from spark_producer.common.cluster import TopicPartition


class CoordinatorTimer:
    """Checks timeouts every `interval` seconds, and writes markers as long as some are due."""

    def __init__(self, coordinator: BrokerCoordinator, interval: float, now: float) -> None:
        self._coordinator = coordinator
        self._interval = interval
        self._next_scan = now + interval

    @property
    def due(self) -> float:
        """The time, in seconds of the caller's clock, at which `run_if_due` is next due."""
        return float("-inf") if self._coordinator.has_markers_to_write else self._next_scan

    def run_if_due(self, now: float) -> tuple[TopicPartition, ...]:
        """Run what is due; return the partitions that got markers."""
        if now >= self._next_scan:
            self._next_scan = now + self._interval
            self._coordinator.check_timeouts()
        self._coordinator.write_markers()
        return self._coordinator.take_changed()
