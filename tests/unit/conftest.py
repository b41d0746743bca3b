"""Fixtures of unit tests: a scripted cluster instead of the network, producers that end with the test, certificates."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING

import pytest

from spark_producer import Producer
from spark_producer.network import metadata_wait
from spark_producer.producer import parts_of
from tests.fakes.hurry import skip_pauses
from tests.fakes.scripted_cluster import ScriptedCluster
from tests.support.sampling import Sample, all_cases, every_fifth

collect_ignore = [] if find_spec("pyspark") else ["datasource"]
"""Tests that import Spark are run where Spark is installed, as in `make test`."""

if TYPE_CHECKING:
    from tests.support.certificates import Certificates


@pytest.fixture
def cluster() -> ScriptedCluster:
    """The network of the test's producer."""
    return ScriptedCluster()


@pytest.fixture
def start(cluster: ScriptedCluster) -> Iterator[Callable[..., Producer]]:
    """Makes producers as `ScriptedCluster.producer` does; they end with the test."""
    yield cluster.producer
    for producer in cluster.producers:
        producer.close(timeout=0)
        parts_of(producer).io_thread.join(20)
        assert not parts_of(producer).io_thread.is_alive, "the I/O thread did not end"


@pytest.fixture
def short_partition_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a missing partition be an error after 0.1 s instead of 2: one embedded broker has no old metadata."""
    monkeypatch.setattr(metadata_wait, "PARTITION_GRACE", 0.1)


@pytest.fixture
def sample(pytestconfig: pytest.Config) -> Sample:
    """Which of its seeds, positions or repetitions a test tries in this run."""
    return all_cases if pytestconfig.option.slow else every_fifth


@pytest.fixture
def free_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let admin clients that the test makes skip their pauses, so that what never comes is given up at once."""
    skip_pauses(monkeypatch)


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """Files of a broker ("broker") and a client ("client") of one CA, and of a client of an untrusted CA ("stranger")."""
    from tests.support.certificates import Certificates

    made = Certificates(tmp_path_factory.mktemp("certificates"))
    made.issue("broker")
    made.issue("client", ["client@example.org"], common_name="alice")
    made.issue("stranger", ["client@example.org"], common_name="mallory", trusted=False)
    return made
