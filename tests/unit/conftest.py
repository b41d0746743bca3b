"""What tests of the producer share: a scripted cluster in the place of the network, and producers that end with the test."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from spark_producer import Producer
from spark_producer.producer import parts as parts_module
from spark_producer.producer import parts_of
from tests.stages.scripted_cluster import SERVERS, ScriptedClient, ScriptedCluster


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> ScriptedCluster:
    """What a producer of the test sees as its network."""
    made = ScriptedCluster()
    monkeypatch.setattr(parts_module, "Client", lambda settings, **more: ScriptedClient(made, settings))
    return made


@pytest.fixture
def start(cluster: ScriptedCluster) -> Iterator[Callable[..., Producer]]:
    """Makes producers, with options by their names with underscores; they end with the test."""
    started: list[Producer] = []

    def begin(**options: object) -> Producer:
        usual = {"bootstrap.servers": SERVERS, "linger.ms": 0, "retry.backoff.ms": 1, "retry.backoff.max.ms": 1}
        started.append(Producer(usual | {name.replace("_", "."): value for name, value in options.items()}))
        return started[-1]

    yield begin
    for producer in started:
        producer.close(timeout=0)
        parts_of(producer).io_thread.join(20)
        assert not parts_of(producer).io_thread.is_alive, "the I/O thread did not end"
