"""The producer's metrics against what others counted: Kafka's own log, the proxy on the way, and Java's producer by name."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from spark_producer import Producer
from spark_producer.metrics import Values
from spark_producer.metrics.metric_table import CLIENT, NODE, OWN, TOPIC
from spark_producer.producer import parts_of
from tests.conftest import ProxiedBroker
from tests.support.kafka_cluster import KafkaCluster
from tests.support.kafka_node import KAFKA_4, KAFKA_39
from tests.support.proxy import Direction, FaultProxy

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.xdist_group("metrics")]
PRODUCE = 0

JAVA_ONLY = re.compile(r"txn-prepare-time-ns-total|iotime-total|io-waittime-total|bufferpool-wait-time-total")
"""Metrics that are missing here: the first phase of a two-phase commit (KIP-939), and names removed after Kafka 3.9 (KIP-773)."""


@pytest.fixture(scope="module", params=[pytest.param(KAFKA_39, marks=pytest.mark.nightly), KAFKA_4])
def cluster(request: pytest.FixtureRequest) -> Iterator[ProxiedBroker]:
    """A Kafka and a proxy without other clients, so that all counted requests are the test's."""
    with FaultProxy() as proxy, KafkaCluster(request.param, advertised_ports=[proxy.port]) as cluster:
        proxy.target = (proxy.host, cluster.ports[1].client)
        yield ProxiedBroker(proxy, cluster)


@pytest.fixture
def proxied(cluster: ProxiedBroker) -> ProxiedBroker:
    """The same with nothing counted, and no connection from before."""
    cluster.proxy.heal()
    cluster.proxy.wait_for_connections(0)
    cluster.proxy.requests.clear()
    cluster.proxy.received.clear()
    cluster.proxy.accepted = 0
    return cluster


class Read:
    """The metrics of a producer by group and name."""

    def __init__(self, values: Values) -> None:
        self._values = values

    def __call__(self, name: str, group: str = CLIENT) -> float:
        (found,) = (value for (its, name_, _), value in self._values.items() if (its, name_) == (group, name))
        return found

    def by_tag(self, group: str, name: str) -> dict[str, float]:
        """Node or topic → value."""
        rows = self._values.items()
        return {tags[-1][1]: value for (its, name_, tags), value in rows if (its, name_) == (group, name)}


def rows(count: int, partitions: int) -> Any:
    values = [f"{number} " + "x" * (number % 100) for number in range(count)]
    return pa.record_batch({"value": values, "partition": pa.array([n % partitions for n in range(count)], pa.int32())})


def batch_sizes(proxied: ProxiedBroker, topic: str, partitions: int) -> list[int]:
    """Bytes of every batch of a topic, as Kafka's DumpLogSegments finds them in its files."""
    cluster = proxied.broker
    assert isinstance(cluster, KafkaCluster)
    dumps = [cluster.dump_log(1, topic, partition) for partition in range(partitions)]
    return [
        int(size) for dump in dumps for size in re.findall(r"^baseOffset: .* size: (\d+) .*isvalid: true", dump, re.M)
    ]


@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_the_log_and_the_wire_agree(proxied: ProxiedBroker, topic: str, codec: str) -> None:
    """Without failures each record, byte, batch, request and connection is counted once, under its node and topic."""
    proxy, other = proxied.proxy, f"{topic}-other"
    written = {topic: (3_000, 3), other: (500, 1)}
    for name, (_, partitions) in written.items():
        proxied.create_topic(name, partitions)
    options = {"bootstrap.servers": proxied.bootstrap_servers, "batch.size": 8_192, "compression.type": codec}
    with Producer(options) as producer:
        for name, (count, partitions) in written.items():
            producer.send_batch(rows(count, partitions), topic=name)
            producer.flush()
        read = Read(producer.metrics())
        assert read("connection-count") == proxy.open_connections
    sizes = {name: batch_sizes(proxied, name, partitions) for name, (_, partitions) in written.items()}
    every_size = sizes[topic] + sizes[other]
    assert len(every_size) > 8
    assert read.by_tag(TOPIC, "record-send-total") == {topic: 3_000, other: 500}
    assert read.by_tag(TOPIC, "byte-total") == {name: sum(found) for name, found in sizes.items()}
    assert read("record-send-total") == read("record-delivered-total", OWN) == 3_500
    assert read("byte-delivered-total", OWN) == sum(every_size)
    assert read("batch-delivered-total", OWN) == len(every_size)
    assert (read("batch-size-avg"), read("batch-size-max")) == (sum(every_size) / len(every_size), max(every_size))
    assert read("record-retry-total") == read("record-error-total") == read("requests-in-flight") == 0
    assert read("buffer-available-bytes") == read("buffer-total-bytes")
    assert read("connection-creation-total") == proxy.accepted
    assert_traffic(read, proxied)


def assert_traffic(read: Read, proxied: ProxiedBroker) -> None:
    """Requests and bytes as the proxy saw them, by node and together."""
    seen = {
        "request-total": sum(proxied.proxy.requests.values()),
        "response-total": sum(proxied.proxy.requests.values()),
        "outgoing-byte-total": proxied.proxy.received[Direction.TO_BROKER],
        "incoming-byte-total": proxied.proxy.received[Direction.TO_CLIENT],
    }
    for name, count in seen.items():
        by_node = read.by_tag(NODE, name)
        assert set(by_node) == {"node-1", "node--1"}, "the broker, and the address to begin with"
        assert sum(by_node.values()) == read(name) == count, name


def test_what_is_sent_again_counts_as_sent_again(proxied: ProxiedBroker, topic: str) -> None:
    """With connections cut instead of responses; the log, and the twins of the metrics, have each record once."""
    proxied.create_topic(topic, 1)
    pieces, size = 5, 400
    options = {"bootstrap.servers": proxied.bootstrap_servers, "batch.size": 4_096, "reconnect.backoff.max.ms": 50}
    with Producer(options) as producer:
        for _ in range(pieces):
            proxied.proxy.lose_response(PRODUCE, times=2)
            producer.send_batch(rows(size, 1), topic=topic)
            producer.flush()
        read = Read(producer.metrics())
        assert read("connection-close-total") == read("connection-creation-total") - proxied.proxy.open_connections
        report = parts_of(producer).take_report()
    sizes = batch_sizes(proxied, topic, 1)
    again = read("record-retry-total")
    assert again >= 2 * pieces
    assert read.by_tag(TOPIC, "record-retry-total") == {topic: again}
    assert read("record-send-total") == pieces * size + again
    assert read("record-delivered-total", OWN) == report.records == pieces * size
    assert (read("batch-delivered-total", OWN), read("byte-delivered-total", OWN)) == (len(sizes), sum(sizes))
    assert read("batch-retry-total", OWN) == report.retries
    assert read.by_tag(TOPIC, "byte-total")[topic] > sum(sizes)
    assert read("connection-creation-total") == proxied.proxy.accepted > pieces
    assert read("record-error-total") == 0


def test_names_are_those_of_javas_producer(proxied: ProxiedBroker, topic: str) -> None:
    proxied.create_topic(topic, 1)
    servers, kafka = proxied.bootstrap_servers, proxied.broker
    assert isinstance(kafka, KafkaCluster)
    printed = kafka.run_tool(
        "org.apache.kafka.tools.ProducerPerformance", "--topic", topic, "--num-records", "10", "--record-size", "10",
        "--throughput", "-1", "--print-metrics", "--producer-props", f"bootstrap.servers={servers}", "client.id=same",
    )  # fmt: skip
    with Producer({"bootstrap.servers": servers, "client.id": "same"}) as producer:
        producer.send(topic, "x").result(30)
        values = producer.metrics()
    tags = {key: "{" + ", ".join(f"{name}={value}" for name, value in key[2]) + "}" for key in values}
    ours = {(group, name, tags[group, name, more]) for group, name, more in values}
    for group in (CLIENT, NODE, TOPIC):
        found = re.findall(rf"^{group}:(\S+?):({{.*?}})\s* : ", printed, re.M)
        java = {(group, name, tag) for name, tag in found if not JAVA_ONLY.fullmatch(name)}
        assert {row for row in ours if row[0] == group} == java
