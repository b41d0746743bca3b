"""The round trips of a write: how often the driver sends requests together and waits for them. The numbers may only go down."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

import pytest

from spark_producer.broker import BrokerSettings, LocalBroker
from spark_producer.exactly_once import driver
from spark_producer.exactly_once.cluster.command_executor import CommandExecutor
from spark_producer.exactly_once.driver import SinkSettings
from tests.support.filled_tasks import Tasks, batch, inline, prepared, settings

EXPLICIT, IMPLICIT = 0, 2
WRITES = 5
"""Writes of a path, one after the other: the first ones learn the cluster. Under load a marker may be late in some others."""


class RoundTrips(NamedTuple):
    """The round trips of the planner and of the process that commits."""

    begin: int
    commit: int


NOW: Mapping[tuple[int, str, int], RoundTrips] = {
    (EXPLICIT, "A", 1): RoundTrips(3, 4),
    (IMPLICIT, "A", 1): RoundTrips(3, 3),
    (EXPLICIT, "A", 4): RoundTrips(3, 5),
    (IMPLICIT, "A", 4): RoundTrips(3, 3),
    (EXPLICIT, "B", 1): RoundTrips(3, 9),
    (IMPLICIT, "B", 1): RoundTrips(3, 7),
    (EXPLICIT, "B", 4): RoundTrips(3, 9),
    (IMPLICIT, "B", 4): RoundTrips(3, 7),
}
"""Round trips by transaction.version, path and number of tasks. Enter the lower number when a change has saved a round trip."""


class Process:
    """The state of one Python process of Spark's driver: the planner and the commit process share nothing."""

    def __init__(self) -> None:
        self._open: list[tuple[SinkSettings, CommandExecutor]] = []
        self.round_trips = 0
        """The round trips of the last call."""

    @contextmanager
    def running(self, patch: pytest.MonkeyPatch) -> Iterator[None]:
        patch.setattr(driver, "_open", self._open)
        before = self._rounds()
        yield
        self.round_trips = self._rounds() - before

    def _rounds(self) -> int:
        return sum(cluster.client.rounds for _, cluster in self._open)

    def close(self) -> None:
        for _, cluster in self._open:
            cluster.client.close()


@pytest.mark.parametrize(("version", "path", "tasks"), NOW)
def test_a_write_takes_no_more_round_trips_than_before(
    version: int, path: str, tasks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    planner, committer = Process(), Process()
    counted: list[RoundTrips] = []
    with LocalBroker(settings=BrokerSettings(transaction_version=version)) as broker:
        broker.create_topic("rows", 2)
        sink = SinkSettings("orders", settings(broker.bootstrap_servers), timeout=20.0)
        workers = Tasks(broker.bootstrap_servers, sink.name)
        for number in range(WRITES):
            with planner.running(monkeypatch):
                handle = driver.begin(sink)
            places = [slot % 2 for slot in range(tasks)]
            messages = [
                inline(handle, number, batch("rows", place, "a"))
                if path == "A"
                else prepared(handle, number, workers.fill(slot, handle.transaction_version, {("rows", place): ["a"]}))
                for slot, place in enumerate(places)
            ]
            with committer.running(monkeypatch):
                driver.commit(sink, messages, number)
            counted.append(RoundTrips(planner.round_trips, committer.round_trips))
        for each in (workers, planner, committer):
            each.close()
    least = RoundTrips(min(each.begin for each in counted[1:]), min(each.commit for each in counted[1:]))
    assert least == NOW[version, path, tasks]
