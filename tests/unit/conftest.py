"""What tests of the producer share: a scripted cluster in the place of the network, and producers that end with the test."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from spark_producer import Producer
from spark_producer.producer import parts_of
from tests.stages.scripted_cluster import ScriptedCluster


@pytest.fixture
def cluster() -> ScriptedCluster:
    """What a producer of the test sees as its network."""
    return ScriptedCluster()


@pytest.fixture
def start(cluster: ScriptedCluster) -> Iterator[Callable[..., Producer]]:
    """Makes producers as `ScriptedCluster.producer` does; they end with the test."""
    yield cluster.producer
    for producer in cluster.producers:
        producer.close(timeout=0)
        parts_of(producer).io_thread.join(20)
        assert not parts_of(producer).io_thread.is_alive, "the I/O thread did not end"
