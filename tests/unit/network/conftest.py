"""Fixtures of the tests of the network: a clock that a test moves, and clients that are closed at the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Any

import pytest

from spark_producer.network.client import Client
from spark_producer.network.settings import PLAIN, ConnectionSettings
from tests.fakes.client_driver import Clock, Driver


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def drive(clock: Clock) -> Iterator[Callable[..., Driver]]:
    """Makes clients with the fake clock, from addresses, any settings, and what else a client takes; all end with the test."""
    made: list[Client] = []

    def make(bootstrap: Sequence[tuple[str, int]], **more: Any) -> Driver:
        given = {name: more.pop(name) for name in (*PLAIN, "security") if name in more}
        settings = ConnectionSettings(tuple(bootstrap), **{"client_id": "test"} | given)
        client = Client(settings, clock=clock, random=Random(1), **more)
        made.append(client)
        return Driver(client, clock)

    yield make
    for client in made:
        client.close()
