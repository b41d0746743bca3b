"""The clusters of the matrix: Kafka 3.9 and 4 with three nodes, and the embedded broker, with one interface.

Owns: their settings, their nodes' ends and starts, what they say of transactions. Must not know: Spark, the sink.
"""

from __future__ import annotations

import logging
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

from confluent_kafka import IsolationLevel, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec
from confluent_kafka.cimpl import NewTopic
from kafka import KafkaAdminClient

from tests.support.kafka_cluster import KafkaCluster, create_topic
from tests.support.kafka_node import KAFKA_4, KAFKA_39
from tests.support.ports import free_ports
from tests.support.processes import ChildProcess
from tests.support.proxy import FaultProxy
from tests.support.waiting import poll, retry

TRANSACTION_LOGS = 3
"""partitions of __transaction_state"""
SETTINGS = {
    "transaction.state.log.num.partitions": str(TRANSACTION_LOGS),
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    "offsets.topic.num.partitions": "1",
}
SECONDS = 60.0
CLOSE_SECONDS = 20.0
OPEN_STATES = ("Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence")


class Cluster(Protocol):
    """The interface of a cluster for the matrix."""

    @property
    def bootstrap_servers(self) -> str:
        """Addresses, comma separated."""

    @property
    def nodes(self) -> list[int]:
        """Ids of all nodes."""

    proxies: Sequence[FaultProxy]
    """Addresses for clients, if these are not the nodes' own."""

    def create_topic(self, name: str, partitions: int, copies: int = 3) -> None:
        """Create a topic; it can be written to when this returns."""

    def delete_topic(self, name: str) -> None:
        """Delete a topic; the cases need no success."""

    def kill(self, node: int) -> None:
        """SIGKILL a node."""

    def start(self, node: int) -> None:
        """Start a node that was killed, and wait until it is back."""

    def pid(self, node: int) -> int:
        """The process of a node."""

    def log(self, node: int) -> Path:
        """Return the log of a node."""


class RealCluster:
    """Kafka with three nodes, topics with three replicas of which two must be in sync."""

    def __init__(self, cluster: KafkaCluster, proxies: Sequence[FaultProxy] = ()) -> None:
        self.cluster = cluster
        self.proxies = proxies

    @property
    def bootstrap_servers(self) -> str:
        """Addresses, comma separated."""
        return self.cluster.bootstrap_servers

    @property
    def nodes(self) -> list[int]:
        """Ids of all nodes."""
        return list(self.cluster.nodes)

    def create_topic(self, name: str, partitions: int, copies: int = 3) -> None:
        """Create a topic; it can be written to when this returns."""
        copies = min(copies, len(self.nodes))
        config = {"min.insync.replicas": str(min(2, copies))}
        self.cluster.create_topic(name, partitions, replication_factor=copies, config=config)

    def delete_topic(self, name: str) -> None:
        """Delete a topic; the cases need no success."""
        with suppress(KafkaException, TimeoutError):
            self.cluster.delete_topic(name)

    def kill(self, node: int) -> None:
        """SIGKILL a node."""
        self.cluster.kill(node)

    def start(self, node: int) -> None:
        """Start a node that was killed, and wait until it is back."""
        self.cluster.start(node)

    def pid(self, node: int) -> int:
        """The process of a node."""
        return self.cluster.pid(node)

    def log(self, node: int) -> Path:
        """Return the log of a node."""
        return self.cluster.log_dir(node).parent / "node.log"


class EmbeddedCluster:
    """The embedded broker as a process with a folder of its own, so that it can be killed and started again."""

    def __init__(self, home: Path, proxies: Sequence[FaultProxy] = ()) -> None:
        self.home = home
        self.proxies = proxies
        self.port = free_ports(1)[0]
        for proxy in proxies:
            proxy.target = (proxy.host, self.port)
        self._process: ChildProcess | None = None
        self.start(1)

    @property
    def bootstrap_servers(self) -> str:
        """Return its address."""
        return self.proxies[0].address if self.proxies else f"127.0.0.1:{self.port}"

    @property
    def nodes(self) -> list[int]:
        """Do nothing: there is one node."""
        return [1]

    def create_topic(self, name: str, partitions: int, copies: int = 3) -> None:
        """Create a topic."""
        client = AdminClient({"bootstrap.servers": self.bootstrap_servers, "log_level": 0})
        create_topic(client, NewTopic(name, partitions, 1))

    def delete_topic(self, name: str) -> None:
        """Delete a topic; the cases need no success."""
        client = AdminClient({"bootstrap.servers": self.bootstrap_servers, "log_level": 0})
        with suppress(KafkaException, TimeoutError):
            client.delete_topics([name])[name].result(SECONDS)

    def kill(self, node: int) -> None:
        """SIGKILL."""
        assert self._process is not None
        self._process.kill()

    def start(self, node: int) -> None:
        """Start it on its folder and port, and wait until it answers."""
        command = [sys.executable, "-m", "spark_producer", "broker", "--port", str(self.port)]
        command += ["--advertised", self.bootstrap_servers]
        self.home.mkdir(parents=True, exist_ok=True)
        self._process = ChildProcess([*command, "--data-dir", str(self.home / "data")], self.log(node))
        quick = {"reconnect.backoff.ms": 50, "reconnect.backoff.max.ms": 50}
        client = AdminClient({"bootstrap.servers": self.bootstrap_servers, "log_level": 0, **quick})
        retry(
            lambda: client.list_topics(timeout=1),
            KafkaException,
            "the embedded broker starts",
            seconds=SECONDS,
            more=self._process.tail,
            ended=self._process.has_ended,
        )

    def pid(self, node: int) -> int:
        """Return its process."""
        assert self._process is not None
        return self._process.pid

    def log(self, node: int) -> Path:
        """Return its log."""
        return self.home / "log"


VERSIONS = {"3.9": KAFKA_39, "4": KAFKA_4}
NAMES = (*VERSIONS, "embedded")


@contextmanager
def cluster_of(
    name: str, home: Path, settings: Mapping[str, str] | None = None, nodes: int = 3, *, proxied: bool = False
) -> Iterator[Cluster]:
    """A cluster for a `with` block; its clients connect to proxies if it is `proxied`."""
    logging.getLogger("kafka").setLevel(logging.CRITICAL)  # of kafka-python, which logs every lost connection
    count = (1 if name == "embedded" else nodes) if proxied else 0
    with ExitStack() as stack:
        proxies = [stack.enter_context(FaultProxy()) for _ in range(count)]
        if name == "embedded":
            broker = EmbeddedCluster(home / "embedded", proxies)
            stack.callback(shutil.rmtree, broker.home, ignore_errors=True)
            stack.callback(broker.kill, 1)
            yield broker
        else:
            ports = [proxy.port for proxy in proxies] or None
            together = {**SETTINGS, **(settings or {})}
            cluster = KafkaCluster(VERSIONS[name], nodes=nodes, settings=together, advertised_ports=ports)
            stack.enter_context(cluster)
            for proxy, at in zip(proxies, cluster.ports.values(), strict=False):
                proxy.target = (proxy.host, at.client)
            yield RealCluster(cluster, proxies)


def coordinator_of(cluster: Cluster, transactional_id: str) -> int:
    """The node that coordinates a transactional id."""
    if len(cluster.nodes) == 1:
        return cluster.nodes[0]
    code = 0
    for byte in transactional_id.encode("utf-16-be")[1::2]:  # Java's hash of ASCII
        code = (31 * code + byte) & 0xFFFFFFFF
    signed = code - (1 << 32) if code >= 1 << 31 else code
    return leader_of(cluster, "__transaction_state", (0 if signed == -(1 << 31) else abs(signed)) % TRANSACTION_LOGS)


def leader_of(cluster: Cluster, topic: str, partition: int) -> int:
    """Return the node that leads a partition; the first node if there is no leader or no such partition."""
    found = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0}).list_topics(timeout=10).topics
    if topic not in found or partition not in found[topic].partitions:
        return cluster.nodes[0]
    return (
        found[topic].partitions[partition].leader if found[topic].partitions[partition].leader > 0 else cluster.nodes[0]
    )


class Named(Protocol):
    """An object with bootstrap servers."""

    @property
    def bootstrap_servers(self) -> str:
        """Addresses, comma separated."""


def open_transactions(cluster: Named) -> dict[str, str]:
    """Transactional id → state, of all that are not at their end: asked by kafka-python."""
    admin: Any = KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers.split(","))
    try:
        listed = admin.list_transactions()
    finally:
        admin.close()
    return {
        row.transactional_id: str(getattr(row.state, "value", row.state))
        for rows in listed.values()
        for row in rows
        if str(getattr(row.state, "value", row.state)) in OPEN_STATES
    }


def held_back(cluster: Named, topic: str) -> dict[int, tuple[int, int]]:
    """Partition → (last stable offset, end) where a reader of committed rows does not come to the end."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    partitions = admin.list_topics(topic, timeout=SECONDS).topics[topic].partitions
    latest: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]  # without types in confluent-kafka
    wanted = {TopicPartition(topic, number): latest for number in partitions}
    ends: list[dict[int, int]] = []
    for isolation in (IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED):
        answers = admin.list_offsets(wanted, isolation_level=isolation, request_timeout=30)
        ends.append({place.partition: answer.result(SECONDS).offset for place, answer in answers.items()})
    return {number: (ends[0][number], ends[1][number]) for number in ends[0] if ends[0][number] < ends[1][number]}


def left_open(cluster: Named, topic: str) -> tuple[dict[int, tuple[int, int]], dict[str, str]]:
    """Return `held_back` and the sink's open transactions of this topic, once there are none or the time is over."""

    def of_the_sink() -> dict[str, str]:
        return {name: state for name, state in open_transactions(cluster).items() if topic in name}

    poll(lambda: not held_back(cluster, topic), seconds=CLOSE_SECONDS, pause=0.1)
    poll(lambda: not of_the_sink(), seconds=CLOSE_SECONDS, pause=0.1)
    return held_back(cluster, topic), of_the_sink()
