"""The faults of a soak: requests do not wait long, and what is said of a fault has happened."""

from __future__ import annotations

import random
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from tests.matrix.drivers import Driver
from tests.matrix.faults import Brokers
from tests.soak.faults import SECONDS, OfClusters, OfQueries
from tests.soak.streams import PLANS
from tests.support.certificates import Certificates

FAILURES = [KafkaException(KafkaError(KafkaError._TIMED_OUT)), TimeoutError()]


def answer(error: Exception | None) -> Future[None]:
    """What a request comes to."""
    found: Future[None] = Future()
    if error is None:
        found.set_result(None)
    else:
        found.set_exception(error)
    return found


def of_clusters(home: Path, reply: Callable[[str], Exception | None]) -> tuple[OfClusters, list[float], list[str]]:
    """Faults whose requests about a topic or a node are answered so; the timeouts of the requests; what was noted."""
    timeouts: list[float] = []
    noted: list[str] = []

    def ask(things: list[Any], request_timeout: float) -> dict[Any, Future[None]]:
        timeouts.append(request_timeout)
        return {getattr(each, "topic", each): answer(reply(getattr(each, "topic", "") or each.name)) for each in things}

    topics = SimpleNamespace(topics={"a": SimpleNamespace(partitions={0: None, 1: None})})
    brokers: Any = SimpleNamespace(inner_servers="nowhere:1", cluster=SimpleNamespace(nodes=[1, 2, 3]))
    faults = OfClusters(brokers, ["a"], Certificates(home), random.Random(1), lambda _, said: noted.append(said))
    faults._admin = SimpleNamespace(  # type: ignore[assignment]
        list_topics=lambda *_, **__: topics, create_partitions=ask, incremental_alter_configs=ask
    )
    return faults, timeouts, noted


@pytest.mark.parametrize("error", FAILURES)
def test_a_topic_that_could_not_grow_is_no_fault(tmp_path: Path, error: Exception) -> None:
    faults, timeouts, noted = of_clusters(tmp_path, lambda _: error)
    assert faults._grow() is None
    assert (timeouts, noted) == ([SECONDS], [])


def test_a_topic_that_has_grown(tmp_path: Path) -> None:
    faults, _, noted = of_clusters(tmp_path, lambda _: None)
    assert faults._grow() == "a"
    assert noted == ["a has 3 partitions"]


@pytest.mark.parametrize("error", FAILURES)
def test_only_nodes_that_answered_have_a_new_certificate(tmp_path: Path, error: Exception) -> None:
    faults, timeouts, _ = of_clusters(tmp_path, lambda node: error if node == "2" else None)
    assert faults._rotate() == "node 1, node 3"
    assert timeouts == [SECONDS] * 3
    unanswered, _, _ = of_clusters(tmp_path, lambda _: error)
    assert unanswered._rotate() is None


def test_the_driver_of_one_stream_is_never_killed() -> None:
    killed = set()
    streams: list[Any] = [
        SimpleNamespace(
            plan=plan, driver=SimpleNamespace(kill=lambda plan=plan: killed.add(plan.name)), has_settled=lambda: True
        )
        for plan in PLANS
    ]
    faults = OfQueries(streams, random.Random(1))
    for _ in range(50):
        faults._kill_driver()
    assert killed == {plan.name for plan in PLANS if not plan.spared}
    assert len(killed) == 2


class MadeUpNode:
    """A node that has ended, or not."""

    def __init__(self, code: int | None) -> None:
        self.code = code

    def start(self) -> None:
        assert self.code is not None
        self.code = None


def test_a_node_that_has_ended_by_itself_is_seen_and_started_again() -> None:
    nodes = {1: MadeUpNode(None), 2: MadeUpNode(134), 3: MadeUpNode(1)}
    ready = []
    cluster: Any = SimpleNamespace(
        nodes=list(nodes),
        _nodes=nodes,
        exit_code=lambda node: nodes[node].code,
        kill=lambda node: None,
        wait_until_ready=lambda: ready.append([node.code for node in nodes.values()]),
    )
    brokers = Brokers(cluster, {}, seed=1)
    brokers.down = {3}
    assert brokers.ended() == {2: 134}
    brokers.heal()
    assert ready == [[None, None, None]]
    assert (brokers.ended(), brokers.down) == ({}, set())


def test_what_a_driver_leaves_lies_in_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[Any] = []
    monkeypatch.setattr("tests.matrix.drivers.ChildProcess", lambda *arguments: given.append(arguments))
    driver = Driver(tmp_path / "driver-77-12")
    _, _, environment = given[0]
    temporary = str(tmp_path / "driver-77-12" / "tmp")
    assert environment["SPARK_LOCAL_DIRS"] == environment["TMPDIR"] == temporary
    assert f"-Djava.io.tmpdir={temporary}" in environment["SPARK_SUBMIT_OPTS"]
    assert driver.number == 12
