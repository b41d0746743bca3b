"""Fixtures of these tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from spark_producer.broker import BrokerSettings, LocalBroker
from spark_producer.broker.coordinator.markers import PendingMarkers
from spark_producer.broker.coordinator.transactions import Transaction
from spark_producer.common.cluster import TopicPartition
from spark_producer.exactly_once import driver
from spark_producer.exactly_once.cluster import (
    await_markers,
    broker_requests,
    command_executor,
    control_write,
    log_outcome,
)
from spark_producer.exactly_once.repair import describe
from tests.fakes.hurry import skip_pauses
from tests.support.filled_tasks import Tasks
from tests.unit.exactly_once.lossy_world import SINK, Lossy, World


@pytest.fixture(params=[0, 2], ids=["explicit", "implicit"])
def world(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    # this broker shows each marker, and lacks each partition, by the time that it says so
    for module in (await_markers, command_executor):
        monkeypatch.setattr(module, "LOST_AFTER_S", 0.3)
    for reader in (broker_requests, control_write, log_outcome):
        monkeypatch.setattr(reader, "GONE_AFTER_S", 0.3)
    monkeypatch.setattr(describe, "MISSING_AFTER_S", 0.1)
    # a partition counts as gone only if the answers without it come closer together than that
    monkeypatch.setattr(broker_requests, "MAX_PAUSE_S", 0.05)
    skip_pauses(monkeypatch)
    lossy: Lossy = set()
    write = PendingMarkers._write

    def lose(
        self: PendingMarkers, transactional_id: str, transaction: Transaction, tp: TopicPartition, now_ms: int
    ) -> bool:
        return (transactional_id, tp) in lossy or write(self, transactional_id, transaction, tp, now_ms)

    monkeypatch.setattr(PendingMarkers, "_write", lose)
    with LocalBroker(
        settings=BrokerSettings(transaction_version=request.param, sync_on_close=False, transaction_scan_s=0.5)
    ) as broker:
        broker.create_topic("rows", 2)
        tasks = Tasks(broker.bootstrap_servers, SINK)
        yield World(broker, tasks, lossy)
        tasks.close()
        driver.close_all()
