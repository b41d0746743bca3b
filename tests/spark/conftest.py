"""The broker that the tests of Spark write to."""

from __future__ import annotations

import pytest

from tests.conftest import KAFKA_4_FIRST, Broker, broker_named


@pytest.fixture(scope="session", params=KAFKA_4_FIRST)
def broker(request: pytest.FixtureRequest) -> Broker:
    """The newest Kafka; the others in a campaign. Wherever brokers differ, tests of the producer have them all."""
    return broker_named(request)
