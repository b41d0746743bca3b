"""Brokers that are not there yet, die, come back, or hand over: every row arrives once, in order."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from pyspark.sql import SparkSession

from spark_producer import Producer
from tests.conftest import BROKERS, Broker, local_broker
from tests.faults.paced import PacedWrite, assert_exactly_once_in_order
from tests.spark.frames import write
from tests.support.kafka_cluster import KafkaCluster
from tests.support.kafka_node import KAFKA_4
from tests.support.ports import free_ports
from tests.support.processes import ChildProcess
from tests.support.proxy import FaultProxy
from tests.support.read_back import read_topic

pytestmark = pytest.mark.slow
SECONDS = 60.0


class EmbeddedProcess:
    """The embedded broker as `pyproducer broker` starts it, with its own port and data."""

    def __init__(self, home: Path) -> None:
        self._home, self._port = home, free_ports(1)[0]
        self.bootstrap_servers = f"127.0.0.1:{self._port}"
        self.start()

    def start(self) -> None:
        """Start it, on what an earlier one left."""
        command = [sys.executable, "-m", "spark_producer", "broker", "--port", str(self._port)]
        self._process = ChildProcess([*command, "--data-dir", str(self._home / "data")], self._home / "broker.log")
        admin = self._admin()
        deadline = time.monotonic() + SECONDS
        while not answers(admin):
            assert self._process.exit_code is None, self._process.tail()
            assert time.monotonic() < deadline, self._process.tail()

    def kill(self) -> None:
        """SIGKILL."""
        self._process.kill()

    def create_topic(self, name: str, partitions: int) -> None:
        """Create a topic."""
        admin = self._admin()
        admin.create_topics([NewTopic(name, partitions, 1)])[name].result(SECONDS)

    def _admin(self) -> AdminClient:
        return AdminClient(
            {"bootstrap.servers": self.bootstrap_servers, "log_level": 0, "reconnect.backoff.max.ms": 100}
        )


def answers(admin: AdminClient) -> bool:
    """Return whether a broker is there."""
    try:
        return bool(admin.list_topics(timeout=5).brokers)
    except KafkaException:
        return False


Mortal = tuple[Broker, Callable[[], None], Callable[[], None]]
"""A broker, what kills it, what starts it again."""


@pytest.fixture(params=[pytest.param("embedded", marks=pytest.mark.nightly), *BROKERS[1:]])
def mortal(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Mortal]:
    """A broker that may be killed; it runs again at the end, since other tests use the real ones too."""
    if request.param == "embedded":
        process = EmbeddedProcess(tmp_path)
        yield process, process.kill, process.start
        process.kill()
        return
    cluster: KafkaCluster = request.getfixturevalue({"kafka-3.9": "kafka_39", "kafka-4": "kafka_4"}[request.param])
    yield cluster, lambda: cluster.kill(1), lambda: cluster.start(1)
    if cluster_is_dead(cluster):
        cluster.start(1)


def cluster_is_dead(cluster: KafkaCluster) -> bool:
    """Return whether the node that a test killed was not started again."""
    return not Path(f"/proc/{cluster.pid(1)}").exists()


def test_a_broker_that_is_killed_and_comes_back(
    spark: SparkSession, mortal: Mortal, topic: str, tmp_path: Path
) -> None:
    broker, kill, start = mortal
    broker.create_topic(topic, 3)
    with PacedWrite(spark, broker, topic, tmp_path) as paced:
        paced.wait_until_half_done()
        kill()
        paced.open_gate()
        start()
        paced.finish()
    assert_exactly_once_in_order(broker, topic)


@pytest.mark.parametrize("kind", ["embedded", pytest.param("kafka-4", marks=(pytest.mark.kafka, pytest.mark.campaign))])
def test_a_broker_that_starts_while_the_write_waits(spark: SparkSession, topic: str, tmp_path: Path, kind: str) -> None:
    with ExitStack() as stack:
        proxy = stack.enter_context(FaultProxy())
        waiting: Broker = Address(proxy.address)
        options = {"kafka.max.block.ms": 150_000}  # longer than a Kafka may take to start
        paced = stack.enter_context(PacedWrite(spark, waiting, topic, tmp_path, options=options))
        paced.open_gate()
        paced.wait(lambda: proxy.accepted > 3, "several attempts to connect")
        if kind == "embedded":
            running = stack.enter_context(local_broker(advertised=(proxy.host, proxy.port), default_partitions=3))
            proxy.target = (proxy.host, running.port)
        else:
            settings = {"auto.create.topics.enable": "true", "num.partitions": "3"}
            cluster = KafkaCluster(KAFKA_4, settings=settings, advertised_ports=[proxy.port])
            stack.enter_context(cluster)
            proxy.target = (proxy.host, cluster.ports[1].client)
        paced.finish()
        assert_exactly_once_in_order(waiting, topic)


class Address:
    """A broker that may not be there yet."""

    def __init__(self, address: str) -> None:
        self.bootstrap_servers = address

    def create_topic(self, name: str, partitions: int) -> None:
        """Raise: no broker can create it."""
        raise NotImplementedError


METADATA = 3


def test_a_new_topic_is_waited_for_however_late_the_broker_is(topic: str) -> None:
    """Brokers create a topic after they have said that it is unknown; max.block.ms is for both waits."""
    with (
        FaultProxy() as proxy,
        Producer({"bootstrap.servers": proxy.address}) as producer,
        ThreadPoolExecutor(1) as pool,
    ):
        written = pool.submit(producer.send, topic, b"value")
        time.sleep(2.5)  # how late the broker is
        with local_broker(advertised=(proxy.host, proxy.port), auto_create_topics=False) as broker:
            proxy.target = (proxy.host, broker.port)
            proxy.wait_for_requests(METADATA, 2)
            broker.create_topic(topic, 1)
            assert written.result(SECONDS).result(SECONDS).offset == 0


def test_one_address_that_answers_is_enough(spark: SparkSession, kafka_three: KafkaCluster, topic: str) -> None:
    kafka_three.create_topic(topic, 3, replication_factor=3)
    closed = [f"127.0.0.1:{port}" for port in free_ports(2)]
    alive = kafka_three.bootstrap_servers.split(",")[1]
    servers = ",".join([closed[0], "no-such-host.invalid:9092", alive, closed[1]])
    frame = spark.range(100).selectExpr("string(id) as value", "int(id % 3) as partition")
    write(frame, kafka_three, topic, {"kafka.bootstrap.servers": servers})
    rows = read_topic(kafka_three.bootstrap_servers, topic, expected=100)
    assert sorted(int(row.value or b"") for row in rows) == list(range(100))


@pytest.mark.parametrize(
    "end",
    [
        pytest.param(KafkaCluster.kill, id="killed", marks=pytest.mark.nightly),
        pytest.param(KafkaCluster.stop, id="shut down"),
    ],
)
def test_a_leader_that_goes(
    spark: SparkSession, kafka_three: KafkaCluster, topic: str, tmp_path: Path, end: Callable[[KafkaCluster, int], None]
) -> None:
    """Its partitions get other leaders, which know the producer's sequences; so no row is written twice. One that is shut down
    hands its partitions over before it goes; the producer follows without losing a connection first."""
    kafka_three.create_topic(topic, 3, replication_factor=3, config={"min.insync.replicas": "2"})
    leader = kafka_three.partitions(topic)[0].leader
    with PacedWrite(spark, kafka_three, topic, tmp_path) as paced:
        paced.wait_until_half_done()
        end(kafka_three, leader)
        try:
            paced.finish()
            assert kafka_three.partitions(topic)[0].leader != leader
        finally:
            kafka_three.start(leader)
    assert_exactly_once_in_order(kafka_three, topic)
