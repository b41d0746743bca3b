"""A sample of the failure matrix, with fixed seeds: `make matrix` plays all of it, which takes hours.

One case of each kind of process that dies, and of each way on which the next driver finds what was left.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.matrix.__main__ import OPTIONS, play
from tests.matrix.cases import all_cases
from tests.matrix.checker import violations
from tests.matrix.clusters import RealCluster, cluster_of
from tests.matrix.drivers import Drivers
from tests.matrix.play import Play, Stand
from tests.matrix.readers import read_later
from tests.matrix.rows import expected
from tests.support.kafka_cluster import KafkaCluster

pytestmark = [pytest.mark.spark, pytest.mark.nightly]
CASES = {case.name: case for case in all_cases()}
ON_THE_EMBEDDED_BROKER = [
    "embedded/B/begin.taking:self/1",
    "embedded/A/control.produced:self/1",
    "embedded/B/commit.voting:raise/1",
    "embedded/B/task.ended:self/1",
    "embedded/A/commit.writing:all nodes/1",
    "embedded/B/commit.writing:driver+begin.redriving.ending:self/1",
    "embedded/B/task.prepared:driver+begin.intending:self/1",
]
ON_THREE_NODES = ["4/B/control.produced:coordinator/1", "4/B/commit.writing:leader/2"]


@pytest.fixture(scope="module")
def home() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="matrix-") as folder:  # short: it is in the environment of every process
        yield Path(folder)


@pytest.fixture(scope="module")
def drivers(home: Path) -> Iterator[Drivers]:
    with Drivers(home, ahead=False) as found:
        yield found


@pytest.fixture(scope="module")
def embedded(home: Path, drivers: Drivers) -> Iterator[Stand]:
    with cluster_of("embedded", home) as cluster:
        yield Stand(cluster, drivers, home, OPTIONS)


@pytest.mark.xdist_group("matrix")
@pytest.mark.parametrize("name", ON_THE_EMBEDDED_BROKER)
def test_every_row_is_seen_once_whatever_dies(embedded: Stand, name: str) -> None:
    result = play(embedded, CASES[name])
    assert (result.verdict, result.violations) == ("exact", [])


@pytest.mark.xdist_group("matrix")
def test_who_reads_uncommitted_rows_sees_those_of_the_dead_worker_too(embedded: Stand) -> None:
    """The judge would see them if they were committed."""
    case, topic = CASES["embedded/B/task.prepared:self/1"], "m-uncommitted"
    result = Play(embedded, case, topic).run()
    assert (result.verdict, result.violations) == ("exact", [])
    read = read_later(embedded.cluster.bootstrap_servers, topic, "read_uncommitted")
    assert [reported.partition(", e.g.")[0] for reported in violations(expected(case.amount), read)] == [
        "duplicate: 500",
        "out of order: 5",
    ]


@pytest.fixture(scope="module")
def three_nodes(kafka_three: KafkaCluster, home: Path, drivers: Drivers) -> Stand:
    return Stand(RealCluster(kafka_three), drivers, home, OPTIONS)


@pytest.mark.parametrize("name", ON_THREE_NODES)
def test_every_row_is_seen_once_whichever_node_dies(three_nodes: Stand, name: str) -> None:
    result = play(three_nodes, CASES[name])
    assert (result.verdict, result.violations) == ("exact", [])
