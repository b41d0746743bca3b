"""One Kafka broker from before KRaft, with a ZooKeeper of its own, for as long as a `with` block.

Owns: ZooKeeper's settings, process and data. Must not know: Spark, the package under test.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from tests.support.kafka_cluster import HOST, KafkaCluster
from tests.support.kafka_node import TEST_JVM, KafkaNode, java_command
from tests.support.ports import free_ports
from tests.support.processes import ChildProcess

MAIN = "org.apache.zookeeper.server.ZooKeeperServerMain"
KRAFT_ONLY = ("process.roles", "node.id", "controller.quorum.voters", "controller.listener.names")


class ZooKeeperCluster(KafkaCluster):
    """Context manager: a broker, and the ZooKeeper that it needs."""

    def __init__(self, version: str) -> None:
        super().__init__(version)
        (self._zookeeper_port,) = free_ports(1)
        self._zookeeper: ChildProcess | None = None

    def __enter__(self) -> Self:
        self._home = Path(tempfile.mkdtemp(prefix="pyproducer-kafka-"))
        try:
            self._start_zookeeper(self._home)
            self._nodes[1] = KafkaNode(self.version, self._home / "node-1", self._node_settings(1), TEST_JVM)
            self._nodes[1].start()
            self.wait_until_ready()
        except BaseException:
            self.close()
            raise
        return self

    def close(self) -> None:
        """Kill the broker and ZooKeeper, and remove their data. May be called twice."""
        if self._zookeeper is not None:
            self._zookeeper.kill()
        super().close()

    def _start_zookeeper(self, home: Path) -> None:
        settings = home / "zookeeper.properties"
        settings.write_text(
            f"dataDir={home / 'zookeeper'}\nclientPort={self._zookeeper_port}\nclientPortAddress={HOST}\n"
            "admin.enableServer=false\n"
        )
        command = java_command(self.version, home, MAIN, (str(settings),), TEST_JVM)
        self._zookeeper = ChildProcess(command, home / "zookeeper.log")

    def _node_settings(self, node: int) -> dict[str, str]:
        settings = super()._node_settings(node)
        ports = self.ports[node]
        settings = {name: value for name, value in settings.items() if name not in KRAFT_ONLY}
        return settings | {
            "broker.id": str(node),
            "zookeeper.connect": f"{HOST}:{self._zookeeper_port}",
            "listeners": f"CLIENT://{HOST}:{ports.client},INTERNAL://{HOST}:{ports.internal}",
            "listener.security.protocol.map": "CLIENT:PLAINTEXT,INTERNAL:PLAINTEXT",
        }

    def _brokers(self, client: AdminClient) -> set[int]:
        """Return the brokers; the broker has chosen the id of the cluster itself."""
        try:
            return set(client.list_topics(timeout=2).brokers)
        except KafkaException:
            return set()
