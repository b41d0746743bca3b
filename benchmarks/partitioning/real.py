"""KIP-794's slow broker for real: three Kafka nodes, one behind a proxy that holds each answer back, ours beside Java's.

Owns: the cluster, the proxy, the runs. Must not know: how a producer works; each runs in a process of its own.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from confluent_kafka.admin import AdminClient

from tests.support.kafka_cluster import KafkaCluster
from tests.support.kafka_node import KAFKA_4, KAFKA_39, run_tool
from tests.support.ports import free_ports
from tests.support.proxy import Direction, FaultProxy
from tests.support.read_back import end_offsets

ROOT = Path(__file__).resolve().parents[2]
RECORD_BYTES, HELD = 512, 0.020
PERCENTILES = ("p50", "p95", "p99", "p99.9")
_JAVA = "org.apache.kafka.clients.producer."


class Variant(NamedTuple):
    """A partitioner under Java's name and settings, which ours takes too. `java`: the version that still has it."""

    name: str
    settings: dict[str, str]
    java: str = KAFKA_4


VARIANTS = (
    Variant(
        "sticky (KIP-480)",
        {"partitioner.class": _JAVA + "internals.DefaultPartitioner", "linger.ms": "0"},
        KAFKA_39,
    ),
    Variant("round robin", {"partitioner.class": _JAVA + "RoundRobinPartitioner"}),
    Variant("uniform sticky", {"partitioner.adaptive.partitioning.enable": "false"}),
    Variant("uniform sticky, adaptive", {}),
    Variant("adaptive, availability timeout 5 ms", {"partitioner.availability.timeout.ms": "5"}),
)
COMMON = {"batch.size": "16384", "linger.ms": "5", "acks": "all"}
"""Kafka's defaults since 4.0, which ours must be told."""


class Measured(NamedTuple):
    """One run. Milliseconds, MiB per second, and the slow node's share of the records."""

    variant: str
    producer: str
    megabytes: float
    mean: float
    percentiles: dict[str, float]
    slow_share: float


def measure(seconds: float, megabytes_per_second: float = 1.0, only: list[str] | None = None) -> Iterator[Measured]:
    """Every variant with both producers, one after the other, on one cluster."""
    rate = megabytes_per_second * (1 << 20) / RECORD_BYTES
    ports = free_ports(2)
    with FaultProxy() as proxy:
        cluster = KafkaCluster(KAFKA_4, 3, advertised_ports=[proxy.port, *ports])
        inner = {node: cluster.ports[node] for node in cluster.nodes}
        # Nodes 2 and 3 are reached directly: what they advertise is where they listen.
        cluster._advertised = {1: proxy.port, 2: inner[2].client, 3: inner[3].client}
        proxy.target = ("127.0.0.1", inner[1].client)
        with cluster:
            proxy.delay(HELD, Direction.TO_CLIENT)
            for variant in VARIANTS:
                if only and variant.name not in only:
                    continue
                for run in (_java, _ours):
                    topic = f"t-{uuid.uuid4().hex[:8]}"
                    cluster.create_topic(topic, 3)
                    found = run(cluster, topic, variant, int(rate * seconds), rate)
                    yield found._replace(slow_share=_slow_share(cluster, topic))


def _ours(cluster: KafkaCluster, topic: str, variant: Variant, records: int, rate: float) -> Measured:
    settings = {"bootstrap.servers": cluster.bootstrap_servers, **COMMON, **variant.settings}
    given = {"topic": topic, "records": records, "rate": rate, "size": RECORD_BYTES, "settings": settings}
    command = [sys.executable, "-m", "benchmarks.partitioning.paced", json.dumps(given)]
    limit = records / rate * 3 + 120
    done = subprocess.run(command, capture_output=True, text=True, timeout=limit, cwd=ROOT, check=False)
    if done.returncode:
        raise RuntimeError(f"{variant.name}: {done.stderr}")
    told = json.loads(done.stdout)
    return Measured(variant.name, "pyproducer", told["megabytes"], told["mean"], {p: told[p] for p in PERCENTILES}, 0.0)


def _java(cluster: KafkaCluster, topic: str, variant: Variant, records: int, rate: float) -> Measured:
    settings = {"bootstrap.servers": cluster.bootstrap_servers, **COMMON, **variant.settings}
    arguments = ["--topic", topic, "--num-records", str(records), "--record-size", str(RECORD_BYTES)]
    arguments += ["--throughput", str(int(rate)), "--producer-props", *(f"{k}={v}" for k, v in settings.items())]
    with tempfile.TemporaryDirectory() as home:
        limit = records / rate * 3 + 120
        told = run_tool(variant.java, Path(home), "org.apache.kafka.tools.ProducerPerformance", arguments, limit)
    return parse_performance(told)._replace(variant=variant.name, producer=f"Kafka {variant.java}")


def parse_performance(told: str) -> Measured:
    """The last line of ProducerPerformance's output.

    Raises:
        ValueError: there is no such line.
    """
    pattern = (
        r"\(([\d.]+) MB/sec\), ([\d.]+) ms avg latency, [\d.]+ ms max latency, "
        r"(\d+) ms 50th, (\d+) ms 95th, (\d+) ms 99th, (\d+) ms 99\.9th"
    )
    lines = re.findall(pattern, told)
    if not lines:
        raise ValueError(f"ProducerPerformance printed no summary:\n{told[-2000:]}")
    megabytes, mean, *percentiles = (float(number) for number in lines[-1])
    return Measured("", "", megabytes, mean, dict(zip(PERCENTILES, percentiles, strict=True)), 0.0)


def _slow_share(cluster: KafkaCluster, topic: str) -> float:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    led = admin.list_topics(topic, timeout=30).topics[topic].partitions
    counts = end_offsets(cluster.bootstrap_servers, topic)
    slow = sum(count for partition, count in counts.items() if led[partition].leader == 1)
    return slow / max(1, sum(counts.values()))
