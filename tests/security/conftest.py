"""Kafka with secured listeners: one node for each of two versions in the whole run, started by the first test that asks."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.kafka_node import KAFKA_4, KAFKA_39
from tests.support.secured_kafka import SecuredKafka


@pytest.fixture(scope="session")
def _secured_39() -> Iterator[SecuredKafka]:
    with SecuredKafka(KAFKA_39) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def secured_4() -> Iterator[SecuredKafka]:
    """The newest Kafka, secured."""
    with SecuredKafka(KAFKA_4) as cluster:
        yield cluster


@pytest.fixture(scope="session", params=["kafka-3.9", "kafka-4"])
def secured(request: pytest.FixtureRequest) -> SecuredKafka:
    """Both versions, one after the other."""
    found: SecuredKafka = request.getfixturevalue({"kafka-3.9": "_secured_39", "kafka-4": "secured_4"}[request.param])
    return found


@pytest.fixture(autouse=True)
def _healed(request: pytest.FixtureRequest) -> Iterator[None]:
    """Proxies are sound again after each test."""
    yield
    for name in ("secured", "secured_4"):
        if name in request.fixturenames:
            for proxy in request.getfixturevalue(name).proxies.values():
                proxy.heal()
