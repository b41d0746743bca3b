"""A sink of exactly-once writes, its tasks, and a topic for its rows."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from spark_producer.exactly_once import driver
from spark_producer.exactly_once.driver import SinkSettings
from tests.conftest import ProxiedBroker
from tests.support.filled_tasks import SECONDS, Tasks, settings


@pytest.fixture
def sink(proxied: ProxiedBroker) -> Iterator[SinkSettings]:
    """A sink that is new."""
    yield SinkSettings(f"orders.{uuid.uuid4().hex[:8]}", settings(proxied.bootstrap_servers), timeout=SECONDS)
    driver.close_all()


@pytest.fixture
def tasks(proxied: ProxiedBroker, sink: SinkSettings) -> Iterator[Tasks]:
    """The tasks of the sink."""
    made = Tasks(proxied.bootstrap_servers, sink.name)
    yield made
    made.close()


@pytest.fixture
def rows(proxied: ProxiedBroker, topic: str) -> str:
    """A topic of two partitions."""
    proxied.create_topic(topic, 2)
    return topic
