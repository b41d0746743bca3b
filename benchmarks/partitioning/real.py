"""The comparisons of KIP-794 and KIP-480 on clusters of real Kafka nodes, ours beside Java's.

Each producer runs in a process of its own.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Collection, Iterator

from confluent_kafka.admin import AdminClient

from benchmarks.partitioning.performance import (
    JAVA,
    OLD_STICKY,
    Load,
    Variant,
    run_java,
    run_ours,
)
from benchmarks.partitioning.simulation.recorded import RECORD_BYTES, Measured, Spread
from tests.support.kafka_cluster import KafkaCluster
from tests.support.kafka_node import KAFKA_4, KAFKA_39
from tests.support.proxy import Direction, FaultProxy
from tests.support.read_confluent import end_offsets

HELD = 0.020
VARIANTS = (
    Variant("sticky (KIP-480)", {**OLD_STICKY, "linger.ms": "0"}, KAFKA_39),
    Variant("round robin", {"partitioner.class": JAVA + "RoundRobinPartitioner"}),
    Variant("uniform sticky", {"partitioner.adaptive.partitioning.enable": "false"}),
    Variant("uniform sticky, adaptive", {}),
    Variant("adaptive, availability timeout 5 ms", {"partitioner.availability.timeout.ms": "5"}),
)
SPREADS = (
    Variant("round robin", {"partitioner.class": JAVA + "RoundRobinPartitioner"}),
    Variant("sticky", OLD_STICKY, KAFKA_39),
)
PARTITIONS, LINGERS_MS = (16, 64, 128), (0, 1000)


def slow_broker(seconds: float, megabytes_per_second: float = 1.0, only: Collection[str] = ()) -> Iterator[Measured]:
    """Measure KIP-794: three nodes with a partition each, one behind a proxy that holds each answer back, one by one.

    Every variant runs with both producers, one after the other, on one cluster.
    """
    load = Load(megabytes_per_second * (1 << 20) / RECORD_BYTES, seconds)
    with FaultProxy() as proxy:
        cluster = KafkaCluster(KAFKA_4, 3, advertised_ports=[proxy.port, None, None])
        proxy.target = (proxy.host, cluster.ports[1].client)
        with cluster:
            proxy.delay(HELD, Direction.TO_CLIENT)
            for variant in VARIANTS:
                for run in (run_java, run_ours) if not only or variant.name in only else ():
                    topic = _new_topic(cluster, 3)
                    found = run(cluster.bootstrap_servers, topic, variant, load)
                    yield found._replace(shares=_shares(cluster, topic))


def spreads(seconds: float, rate: float) -> Iterator[Spread]:
    """Measure KIP-480: both rules with 16, 64 and 128 partitions on three nodes, linger 0 and 1000 ms, both producers."""
    load = Load(rate, seconds)
    with KafkaCluster(KAFKA_4, 3) as cluster:
        for linger in LINGERS_MS:
            for partitions in PARTITIONS:
                for variant in SPREADS:
                    lingering = variant._replace(settings={**variant.settings, "linger.ms": str(linger)})
                    for run in (run_java, run_ours):
                        topic = _new_topic(cluster, partitions)
                        found = run(cluster.bootstrap_servers, topic, lingering, load)
                        cluster.delete_topic(topic)
                        yield Spread(partitions, linger, found, load.records / rate)


def _new_topic(cluster: KafkaCluster, partitions: int) -> str:
    topic = f"t-{uuid.uuid4().hex[:8]}"
    cluster.create_topic(topic, partitions)
    return topic


def _shares(cluster: KafkaCluster, topic: str) -> tuple[float, ...]:
    """Return the shares of the records by node."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    led = admin.list_topics(topic, timeout=30).topics[topic].partitions
    counts = Counter[int]()
    for partition, count in end_offsets(cluster.bootstrap_servers, topic).items():
        counts[led[partition].leader] += count
    return tuple(counts[node] / counts.total() for node in cluster.nodes)
