"""The address of a broker leads to another cluster for a while (KIP-1242)."""

from __future__ import annotations

import contextlib
import itertools
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import spark_producer
from spark_producer import Producer
from spark_producer.admin import BlockingClient
from spark_producer.admin.checks import FindingState, check_cluster
from spark_producer.admin.offsets import offsets
from spark_producer.cli.entry import main
from spark_producer.common.cluster import TopicPartition
from spark_producer.common.offsets import LATEST
from spark_producer.config import producer_config
from spark_producer.consumer.connections import ConnectionCache
from spark_producer.consumer.offset_range import OffsetRange
from spark_producer.consumer.read_ranges import read_ranges
from spark_producer.consumer.settings import FetchSettings
from spark_producer.exactly_once import driver
from spark_producer.network import ConnectionSettings
from tests.conftest import local_broker
from tests.support.proxy import FaultProxy
from tests.support.read_back import read_topic

SECONDS = 30
API_VERSIONS = 18
OPTIONS = {"linger.ms": 0, "request.timeout.ms": 2000}


def values(broker: Any, topic: str) -> list[bytes | None]:
    return [row.value for row in read_topic(broker.bootstrap_servers, topic, timeout=SECONDS)]


@pytest.mark.covers("NW9")
@pytest.mark.parametrize("checks", [True, False])
def test_rows_go_to_another_cluster_that_got_the_address_of_a_broker_only_without_the_check(checks: bool) -> None:
    """Both have a topic of the name, and a broker of the same number. With the check only ApiVersions reaches the other one."""
    topic = uuid.uuid4().hex
    with FaultProxy() as proxy, local_broker(advertised=(proxy.host, proxy.port)) as ours, local_broker() as theirs:
        proxy.target = (proxy.host, ours.port)
        for broker in (ours, theirs):
            broker.create_topic(topic, 1)
        options = OPTIONS | {"bootstrap.servers": f"{proxy.host}:{ours.port}", "metadata.cluster.check.enable": checks}
        with Producer(options) as producer:
            producer.send(topic, b"first").result(SECONDS)
            proxy.target = (proxy.host, theirs.port)
            before = proxy.requests.copy()
            proxy.cut()
            second = producer.send(topic, b"second")
            if not checks:
                second.result(SECONDS)
                assert values(theirs, topic) == [b"second"]
                return
            proxy.wait_for_requests(API_VERSIONS, before[API_VERSIONS] + 3)
            assert set(proxy.requests - before) == {API_VERSIONS}
            proxy.target = (proxy.host, ours.port)
            proxy.cut()
            second.result(SECONDS)
        assert values(theirs, topic) == []
        assert values(ours, topic) == [b"first", b"second"]


class Misrouted(NamedTuple):
    """A broker whose advertised address leads to another cluster with a topic of the same name."""

    proxy: FaultProxy
    ours: Any
    theirs: Any
    topic: str

    @property
    def servers(self) -> str:
        """The bootstrap server, which is reached directly."""
        return f"{self.proxy.host}:{self.ours.port}"

    @property
    def connection(self) -> ConnectionSettings:
        return ConnectionSettings.from_config(producer_config({"bootstrap.servers": self.servers}))

    def restore(self) -> None:
        self.proxy.target = (self.proxy.host, self.ours.port)
        self.proxy.cut()


@pytest.fixture
def misrouted() -> Iterator[Misrouted]:
    topic = uuid.uuid4().hex
    with FaultProxy() as proxy, local_broker(advertised=(proxy.host, proxy.port)) as ours, local_broker() as theirs:
        for broker, count in ((ours, 2), (theirs, 3)):
            broker.create_topic(topic, 1)
            proxy.target = (proxy.host, broker.port)
            with Producer({"bootstrap.servers": f"{proxy.host}:{broker.port}", "linger.ms": 0}) as producer:
                for _ in range(count):
                    producer.send(topic, b"ours" if broker is ours else b"theirs").result(SECONDS)
        proxy.requests.clear()
        yield Misrouted(proxy, ours, theirs, topic)


def of_table(to: Misrouted) -> object:
    return spark_producer.read_table(to.topic, {"bootstrap.servers": to.servers})["value"].to_pylist()


def of_task(to: Misrouted) -> object:
    settings, connections = FetchSettings(to.connection), ConnectionCache()
    whole = [OffsetRange(TopicPartition(to.topic, 0), 0, 2)]
    found = [batch["value"].to_pylist() for _, batch in read_ranges(settings, whole, connections=connections)]
    connections.clear()
    return list(itertools.chain.from_iterable(found))


def of_tail(to: Misrouted) -> object:
    return main(["tail", to.topic, "--from-beginning", "--until-end", "--bootstrap-servers", to.servers])


def of_write(to: Misrouted) -> object:
    rows = Path("rows.csv")
    rows.write_text("value\nwritten\n", encoding="utf-8")
    return main(["write", str(rows), to.topic, "--bootstrap-servers", to.servers])


def of_topics(to: Misrouted) -> object:
    return main(["topics", "delete", to.topic, "--yes", "--bootstrap-servers", to.servers])


def of_lookup(to: Misrouted) -> object:
    with BlockingClient(to.connection, timeout=SECONDS) as client:
        return offsets(client, to.topic, LATEST)


def of_exactly_once(to: Misrouted) -> object:
    with contextlib.ExitStack() as stack:
        stack.callback(driver.close_all)
        return driver.begin(driver.SinkSettings("rows", to.connection, topics=(to.topic,))).sink


OURS = [b"ours", b"ours"]


@pytest.mark.covers("NW9")
@pytest.mark.parametrize(
    ("act", "result"),
    [
        (of_table, OURS),
        (of_task, OURS),
        (of_tail, 0),
        (of_write, 0),
        (of_topics, 0),
        (of_lookup, {0: 2}),
        (of_exactly_once, "rows"),
    ],
)
def test_whatever_connects_waits_while_an_address_leads_to_another_cluster(
    misrouted: Misrouted,
    act: Callable[[Misrouted], object],
    result: object,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Only ApiVersions reaches the other cluster."""
    monkeypatch.chdir(tmp_path)
    with ThreadPoolExecutor(1) as pool:
        acting = pool.submit(act, misrouted)
        misrouted.proxy.wait_for_requests(API_VERSIONS, 3)
        assert set(misrouted.proxy.requests) == {API_VERSIONS}
        misrouted.restore()
        assert acting.result(SECONDS) == result
    assert "theirs" not in capsys.readouterr().out
    assert values(misrouted.theirs, misrouted.topic) == [b"theirs"] * 3


@pytest.mark.covers("NW9")
def test_without_the_check_a_reader_is_served_by_the_other_cluster(misrouted: Misrouted) -> None:
    options = {"bootstrap.servers": misrouted.servers, "metadata.cluster.check.enable": False}
    connection = ConnectionSettings.from_config(producer_config(options))
    with BlockingClient(connection, timeout=SECONDS) as client:
        assert offsets(client, misrouted.topic, LATEST) == {0: 3}


@pytest.mark.covers("NW9")
def test_the_check_of_a_connection_names_the_broker_that_is_elsewhere(misrouted: Misrouted) -> None:
    found = [each for each in check_cluster(misrouted.connection, None, timeout=2) if each.name == "brokers"]
    assert [each.state for each in found] == [FindingState.FAILED]
    assert "REBOOTSTRAP_REQUIRED (129) for broker 1 of cluster" in found[0].text
    assert "whose address leads to another broker" in found[0].text
