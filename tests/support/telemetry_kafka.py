"""A Kafka that asks all clients for their metrics (KIP-714), with a plugin that keeps each push in a file.

Owns: the plugin (`TelemetryFiles.java`), the subscription, the names of the files. Must not know: the package under test.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.support.ivy import class_path
from tests.support.kafka_cluster import KafkaCluster
from tests.support.kafka_node import KAFKA_4, kafka_jars

PLUGIN = Path(__file__).with_name("TelemetryFiles.java")
SECONDS = 60


class PushFile(NamedTuple):
    """A push as the plugin got it: the broker has decompressed it."""

    instance: str
    terminating: bool
    client_id: str
    data: bytes


class TelemetryKafka(NamedTuple):
    """The cluster, and the folder of the files."""

    cluster: KafkaCluster
    folder: Path

    def files(self) -> list[Path]:
        """Return all pushes in their order."""
        return sorted(self.folder.glob("*.otlp"))


def read_push(path: Path) -> PushFile:
    """Return the push in a file."""
    _, instance, terminating, client_id = path.stem.split("-", 3)
    return PushFile(instance.replace("~", "-"), terminating == "true", client_id, path.read_bytes())


@contextmanager
def telemetry_kafka() -> Iterator[TelemetryKafka]:
    """Start a node of the newest Kafka, which wants all metrics each second."""
    compiler = shutil.which("javac")
    assert compiler is not None, "javac is missing, a JRE is not enough: apt-get install openjdk-17-jdk-headless"
    with tempfile.TemporaryDirectory(prefix="pyproducer-telemetry-") as home:
        folder, classes = Path(home, "pushes"), Path(home, "classes")
        folder.mkdir()
        command = [compiler, "-nowarn", "-cp", class_path(kafka_jars(KAFKA_4)), "-d", str(classes), str(PLUGIN)]
        subprocess.run(command, check=True, timeout=SECONDS, capture_output=True)
        settings = {"metric.reporters": "TelemetryFiles", "telemetry.files": str(folder)}
        cluster = KafkaCluster(KAFKA_4, settings=settings)
        cluster.plugins = [classes]
        with cluster:
            wishes = ["--entity-type", "client-metrics", "--entity-name", "all"]
            wishes += ["--add-config", "interval.ms=1000,metrics=[*]"]
            servers = ["--bootstrap-server", cluster.bootstrap_servers]
            cluster.run_tool("kafka.admin.ConfigCommand", *servers, "--alter", *wishes)
            yield TelemetryKafka(cluster, folder)
