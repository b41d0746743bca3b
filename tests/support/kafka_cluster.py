"""A real Apache Kafka of one or more nodes, for as long as a `with` block.

Owns: the nodes' settings, their start as one cluster, the check that the brokers that answer are these, topics.
Must not know: Spark, the package under test.
"""

from __future__ import annotations

import base64
import shutil
import tempfile
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Self

from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec
from confluent_kafka.admin._metadata import PartitionMetadata
from confluent_kafka.cimpl import NewTopic

from tests.support.kafka_node import KafkaFailed, KafkaNode, NodePorts, jvm_options, kafka_jars, run_tool
from tests.support.ports import free_ports
from tests.support.waiting import wait_until

START_SECONDS = 120.0
TOPIC_SECONDS = 30.0
TOPIC_ATTEMPTS = 4
UNANSWERED = (
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError._TIMED_OUT,
    KafkaError._TRANSPORT,
    KafkaError.NOT_CONTROLLER,
    KafkaError.BROKER_NOT_AVAILABLE,
)
HOST = "127.0.0.1"


def create_topic(client: AdminClient, topic: NewTopic) -> None:
    """Create a topic, and ask again if there is no answer: on a busy machine brokers take long.

    Whether a request without an answer has made the topic shows when it is asked for again.
    """
    for attempt in range(1, TOPIC_ATTEMPTS + 1):
        try:
            client.create_topics([topic], request_timeout=TOPIC_SECONDS)[topic.topic].result(2 * TOPIC_SECONDS)
        except KafkaException as error:
            code = error.args[0].code()
            if attempt > 1 and code == KafkaError.TOPIC_ALREADY_EXISTS:
                return
            if attempt == TOPIC_ATTEMPTS or code not in UNANSWERED:
                raise
        else:
            return


def _release(version: str) -> str:
    """Return the release of a version, as Kafka's StorageTool takes it."""
    return ".".join(version.split(".")[:2])


class KafkaCluster:
    """Context manager: a KRaft cluster whose nodes (ids 1, 2, ...) are brokers and controllers at once.

    `settings` go to every node and win over the defaults. `advertised_ports` (one per node; None: where it listens) are what
    clients get, for a proxy in between; brokers among themselves and this class's admin client use a listener of
    their own.
    """

    def __init__(
        self,
        version: str,
        nodes: int = 1,
        settings: Mapping[str, str] | None = None,
        *,
        advertised_ports: Sequence[int | None] | None = None,
        jvm: Sequence[str] | None = None,
        versions: Mapping[int, str] | None = None,
    ) -> None:
        """`versions` has the version of each node, if they differ; `version` is the oldest, with whose features all start."""
        self.version = version
        self._versions = versions or {}
        self.cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=").replace("-", "_")
        ports = free_ports(3 * nodes)
        self.ports = {node: NodePorts(*ports[3 * node - 3 : 3 * node]) for node in range(1, nodes + 1)}
        reported = zip(self.ports.items(), advertised_ports or [None] * nodes, strict=True)
        self._advertised = {node: at.client if port is None else port for (node, at), port in reported}
        self._settings = dict(settings or {})
        self._jvm = jvm
        self.format_arguments: Sequence[str] = ("--release-version", _release(version)) if versions else ()
        """More arguments of Kafka's StorageTool, which prepares each node."""
        self.plugins: Sequence[Path] = ()
        """Folders of classes that `settings` name."""
        self._nodes: dict[int, KafkaNode] = {}
        self._home: Path | None = None
        self._admin: AdminClient | None = None

    @property
    def bootstrap_servers(self) -> str:
        """Advertised addresses of all nodes, comma separated."""
        return ",".join(f"{HOST}:{port}" for port in self._advertised.values())

    @property
    def nodes(self) -> Sequence[int]:
        """Node ids."""
        return list(self.ports)

    def __enter__(self) -> Self:
        kafka_jars(self.version)
        self._home = Path(tempfile.mkdtemp(prefix="pyproducer-kafka-"))
        try:
            for node in self.ports:
                version = self._versions.get(node, self.version)
                kafka_jars(version)
                jvm = jvm_options(version) if self._jvm is None else self._jvm
                self._nodes[node] = KafkaNode(version, self._home / f"node-{node}", self._node_settings(node), jvm)
                self._nodes[node].plugins = self.plugins
                self._nodes[node].begin_format(self.cluster_id, self.format_arguments)
            for running in self._nodes.values():
                running.finish_format()
                running.start()
            self.wait_until_ready()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Kill the nodes and remove their data. May be called twice."""
        self._admin = None
        for node in self._nodes.values():
            node.kill()
        if self._home is not None:
            shutil.rmtree(self._home, ignore_errors=True)

    def create_topic(
        self, name: str, partitions: int, replication_factor: int = 1, config: Mapping[str, str] | None = None
    ) -> None:
        """Create a topic and wait until every partition answers."""
        create_topic(self._client(), NewTopic(name, partitions, replication_factor, config=dict(config or {})))
        latest: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]  # without types in confluent-kafka
        wanted = {TopicPartition(name, number): latest for number in range(partitions)}

        def all_answer() -> bool:
            # Metadata name a leader before it has opened its log, which takes seconds for hundreds of partitions.
            # Writing meanwhile, kafka-clients 3.9.1 was seen to send sequence 0 again after 45 and to time out.
            # A new client each time: librdkafka remembers for long that there was no leader.
            client = self._admin_client(*self.ports)
            try:
                found = client.list_offsets(wanted, request_timeout=5)
                return all(answer.result(10).offset >= 0 for answer in found.values())
            except KafkaException:
                return False

        self._wait_for(all_answer, TOPIC_SECONDS, f"the partitions of {name}")

    def delete_topic(self, name: str) -> None:
        """Delete a topic; its files go within the broker's file.delete.delay.ms."""
        self._client().delete_topics([name])[name].result(TOPIC_SECONDS)

    def partitions(self, topic: str) -> Mapping[int, PartitionMetadata]:
        """Leader and replicas of each partition, as the controller sees them."""
        return self._client().list_topics(topic, timeout=TOPIC_SECONDS).topics[topic].partitions

    def wait_until_in_sync(self, topic: str) -> None:
        """Wait until every replica of a topic has what its leader has."""

        def in_sync() -> bool:
            return all(len(found.isrs) == len(found.replicas) for found in self.partitions(topic).values())

        self._wait_for(in_sync, TOPIC_SECONDS, f"the replicas of {topic}")

    def kill(self, node: int) -> None:
        """SIGKILL one node."""
        self._nodes[node].kill()

    def stop(self, node: int) -> None:
        """Orderly shutdown of one node."""
        self._nodes[node].stop()

    def start(self, node: int) -> None:
        """Start a stopped or killed node on the same data and ports, and wait until it is back in the cluster."""
        self._nodes[node].start()
        self.wait_until_ready()

    def pid(self, node: int) -> int:
        """Process id of a node's JVM."""
        return self._nodes[node].process.pid

    def exit_code(self, node: int) -> int | None:
        """The exit code of a node that has ended, the negative number of a signal that ended it; None while it runs."""
        return self._nodes[node].process.exit_code

    def output(self, node: int) -> Path:
        """The file of what a node has logged since its first start."""
        return self._nodes[node].process.output

    def log_dir(self, node: int) -> Path:
        """Folder of a node's partitions."""
        return self._nodes[node].data

    def run_tool(self, main_class: str, *arguments: str, timeout: float = 120.0, stdin: str = "") -> str:
        """Run one of Kafka's command line tools, such as kafka.tools.DumpLogSegments, and return what it printed."""
        assert self._home is not None
        return run_tool(self.version, self._home, main_class, arguments, timeout, stdin=stdin)

    def dump_log(self, node: int, topic: str, partition: int) -> str:
        """Return the output of Kafka's DumpLogSegments about the files of a partition, with every record."""
        files = sorted(str(path) for path in (self.log_dir(node) / f"{topic}-{partition}").glob("*.log"))
        package = "kafka.tools" if self.version.startswith("3.") else "org.apache.kafka.tools"
        arguments = ("--deep-iteration", "--print-data-log", "--files", ",".join(files))
        return self.run_tool(f"{package}.DumpLogSegments", *arguments)

    def wait_until_ready(self, timeout: float = START_SECONDS) -> None:
        """Wait until all nodes that run are brokers of *this* cluster; raises KafkaFailed with the end of a log."""
        running = {number: node for number, node in self._nodes.items() if node.process.exit_code is None}
        # Each node is asked itself: the others go on naming a killed one until its session is over.
        clients = {number: self._admin_client(number) for number in running}

        def all_answer() -> bool:
            for number, node in running.items():
                node.check_alive()
                if not set(running) <= self._brokers(clients[number]):
                    return False
            return True

        self._wait_for(all_answer, timeout, "the brokers")

    def _brokers(self, client: AdminClient) -> set[int]:
        try:
            metadata = client.list_topics(timeout=2)
        except KafkaException:
            return set()
        if metadata.cluster_id != self.cluster_id:
            raise KafkaFailed(f"another cluster answers at {self.bootstrap_servers}: {metadata.cluster_id}")
        return set(metadata.brokers)

    def _wait_for(self, condition: Callable[[], bool], timeout: float, what: str) -> None:
        def logs() -> str:
            return "\n".join(f"--- node {number}\n{node.process.tail(20)}" for number, node in self._nodes.items())

        try:
            wait_until(condition, what, seconds=timeout, pause=0.05, more=logs)
        except TimeoutError as late:
            raise KafkaFailed(str(late)) from late

    def _client(self) -> AdminClient:
        if self._admin is None:
            self._admin = self._admin_client(*self.ports)
        return self._admin

    def _admin_client(self, *nodes: int) -> AdminClient:
        servers = ",".join(f"{HOST}:{self.ports[node].internal}" for node in nodes)
        # Quiet: brokers that are not up yet, or killed on purpose, are no news here.
        return AdminClient({"bootstrap.servers": servers, "log_level": 0, "reconnect.backoff.max.ms": 250})

    def _node_settings(self, node: int) -> dict[str, str]:
        ports, nodes = self.ports[node], len(self.ports)
        copies = str(min(3, nodes))
        quorum = ",".join(f"{number}@{HOST}:{other.controller}" for number, other in self.ports.items())
        return {
            "process.roles": "broker,controller",
            "node.id": str(node),
            "controller.quorum.voters": quorum,
            "controller.listener.names": "CONTROLLER",
            "listeners": (
                f"CLIENT://{HOST}:{ports.client},INTERNAL://{HOST}:{ports.internal},"
                f"CONTROLLER://{HOST}:{ports.controller}"
            ),
            "advertised.listeners": f"CLIENT://{HOST}:{self._advertised[node]},INTERNAL://{HOST}:{ports.internal}",
            "inter.broker.listener.name": "INTERNAL",
            "listener.security.protocol.map": "CLIENT:PLAINTEXT,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "auto.create.topics.enable": "false",
            "offsets.topic.replication.factor": copies,
            "offsets.topic.num.partitions": "3",
            "transaction.state.log.replication.factor": copies,
            "transaction.state.log.num.partitions": "3",
            "transaction.state.log.min.isr": str(min(2, nodes)),
            "group.initial.rebalance.delay.ms": "0",
            # Transactions that have timed out are looked for each 10 s by default.
            "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
            # A killed broker may only come back when its session is over: 9 s by default.
            "broker.session.timeout.ms": "3000",
            "broker.heartbeat.interval.ms": "500",
            # Retention goes by the records' timestamps, and tests write those of 2013.
            "log.retention.ms": "-1",
            # Topics are many and short-lived here: their files should not wait for their removal, the first ones for half
            # a minute.
            "log.segment.delete.delay.ms": "100",
            "log.initial.task.delay.ms": "100",
            # Compacted topics are looked at each 15 s by default.
            "log.cleaner.backoff.ms": "500",
            **self._settings,
        }
