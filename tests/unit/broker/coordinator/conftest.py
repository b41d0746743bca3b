"""Fixtures of the tests of the coordinator."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from spark_producer.broker import BrokerSettings
from spark_producer.broker.context import Context
from spark_producer.broker.coordinator.coordinator import BrokerCoordinator
from spark_producer.broker.settings import STORAGE_ENGINES
from spark_producer.broker.topic_store import TopicStore
from tests.unit.broker.handler_calls import BROKER


class Broker:
    """A broker without sockets, whose clock the test moves, and which can be reopened."""

    def __init__(self, data_dir: Path, engine: str | None = None) -> None:
        self.data_dir = data_dir
        self.settings = BrokerSettings(storage_engine=engine)
        self.now = 1000.0

    @classmethod
    def new(cls, data_dir: Path, engine: str | None = None) -> Broker:
        """Return a broker with an empty topic `t` of three partitions."""
        broker = cls(data_dir, engine)
        broker.open()
        broker.context.topics.create("t", 3)
        return broker

    @classmethod
    def again(cls, data_dir: Path) -> Broker:
        """Return a broker on the files of an earlier one."""
        broker = cls(data_dir)
        broker.open()
        return broker

    def open(self) -> Context:
        store = TopicStore(self.data_dir, self.settings)
        try:
            coordinator = BrokerCoordinator(store, self.settings, lambda: self.now, lambda: self.now)
        except BaseException:
            store.close()
            raise
        self.context = Context(store, self.settings, BROKER, coordinator)
        return self.context

    def close(self) -> None:
        self.context.coordinator.close()
        self.context.topics.close()

    def restart(self) -> Context:
        """All acknowledged state is in the files at any moment, so a clean end is as good as a kill."""
        self.close()
        return self.open()


@pytest.fixture(params=STORAGE_ENGINES)
def broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Broker]:
    broker = Broker.new(tmp_path / "data", request.param)
    yield broker
    broker.close()


@pytest.fixture
def context(broker: Broker) -> Context:
    return broker.context
