"""What the tests of the network share: a clock that a test moves, and clients that are closed at the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Any

import pytest

from spark_producer.network.client import Client, ClientSettings
from tests.stages.client_driver import Clock, Driver


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def drive(clock: Clock) -> Iterator[Callable[..., Driver]]:
    """Makes clients with the fake clock; all are closed at the end."""
    made: list[Client] = []

    def make(bootstrap: Sequence[tuple[str, int]], settings: ClientSettings | None = None, **more: Any) -> Driver:
        client = Client(bootstrap, settings or ClientSettings(client_id="test"), clock=clock, random=Random(1), **more)
        made.append(client)
        return Driver(client, clock)

    yield make
    for client in made:
        client.close()
