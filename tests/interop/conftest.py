"""What tests beside other implementations share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from spark_producer.broker import LocalBroker


@pytest.fixture
def local() -> Iterator[LocalBroker]:
    """An embedded broker of the test's own; a module that wants another one has a `local` of its own."""
    with LocalBroker() as broker:
        yield broker
