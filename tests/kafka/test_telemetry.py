"""KIP-714 at a real Kafka with a plugin that takes metrics (`support/TelemetryFiles.java`), which opentelemetry-proto reads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pytest

from spark_producer import Producer
from spark_producer.common.cluster import TopicPartition
from spark_producer.consumer.offset_range import OffsetRange
from spark_producer.consumer.read_ranges import CONNECTIONS, read_ranges
from spark_producer.consumer.settings import FetchSettings
from spark_producer.network.addresses import parse_bootstrap_servers
from spark_producer.network.settings import ConnectionSettings
from spark_producer.protocol.messages import GetTelemetrySubscriptionsResponse
from spark_producer.record.codecs import Codec
from spark_producer.telemetry import pusher, reporter
from spark_producer.telemetry.subscription import Subscription, subscription_of
from tests.support.kafka_cluster import KafkaCluster
from tests.support.telemetry_kafka import TelemetryKafka, read_push, telemetry_kafka
from tests.support.waiting import wait_until
from tests.unit.telemetry.pushed import DELTA, Pushed, read
from tests.unit.telemetry.test_reporter import SENT

pytestmark = [pytest.mark.kafka, pytest.mark.xdist_group("telemetry")]

SECONDS = 60
CONSUMED = "org.apache.kafka.consumer.fetch.manager.records.consumed.total"


class Push(NamedTuple):
    """A push, as the plugin got it: the broker has decompressed it."""

    instance: str
    terminating: bool
    content: Pushed


class Watched(NamedTuple):
    """A cluster that asks all clients for their metrics each second."""

    kafka: TelemetryKafka

    @property
    def cluster(self) -> KafkaCluster:
        return self.kafka.cluster

    def pushes(self, client_id: str) -> list[Push]:
        """Return the pushes of a client in their order."""
        found = [each for each in map(read_push, self.kafka.files()) if each.client_id == client_id]
        return [Push(each.instance, each.terminating, read(each.data)) for each in found]

    def total(self, client_id: str, name: str, owner: str = "") -> float:
        """Return the sum of the deltas of a client."""
        return sum(push.content.value(name, owner) for push in self.pushes(client_id))


@pytest.fixture(scope="module")
def watched() -> Iterator[Watched]:
    with telemetry_kafka() as kafka:
        kafka.cluster.create_topic("t", 1)
        yield Watched(kafka)


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pusher, "FIRST_REQUEST_S", 0.0)
    monkeypatch.setattr(pusher, "RECHECK_S", 0.1)


def test_a_producer_pushes_at_the_brokers_interval_and_at_its_end(watched: Watched) -> None:
    options = {"bootstrap.servers": watched.cluster.bootstrap_servers, "client.id": "writer", "linger.ms": 0}
    with Producer(options) as producer:
        instance = producer.client_instance_id(SECONDS)
        for _ in range(100):
            producer.send("t", b"value")
        producer.flush()
        wait_until(lambda: len(watched.pushes("writer")) >= 2, "two pushes", seconds=SECONDS)
        assert instance == watched.pushes("writer")[0].instance
    wait_until(lambda: watched.pushes("writer")[-1].terminating, "the terminating push", seconds=SECONDS)
    *_, last = watched.pushes("writer")
    assert last.content.points[SENT, ""].temporality == DELTA, "as Kafka asks"
    assert watched.total("writer", SENT) == 100
    assert watched.total("writer", "org.apache.kafka.producer.topic.record.send.total", "t") == 100
    assert last.content.value("org.apache.kafka.producer.record.queue.time.max") > 0
    assert [push.terminating for push in watched.pushes("writer")].count(True) == 1


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_kafka_reads_every_codec(watched: Watched, monkeypatch: pytest.MonkeyPatch, codec: Codec) -> None:
    def with_one(response: GetTelemetrySubscriptionsResponse, own_id: bytes) -> Subscription | None:
        found = subscription_of(response, own_id)
        return found._replace(codecs=(codec,)) if found is not None else None

    monkeypatch.setattr(reporter, "subscription_of", with_one)
    name = f"writer.{codec.name}"
    with Producer({"bootstrap.servers": watched.cluster.bootstrap_servers, "client.id": name}) as producer:
        producer.client_instance_id(SECONDS)
        producer.send("t", b"value").result(SECONDS)
    wait_until(
        lambda: watched.pushes(name) and watched.pushes(name)[-1].terminating, "the terminating push", seconds=SECONDS
    )
    assert watched.total(name, SENT) == 1


def test_a_reader_pushes(watched: Watched) -> None:
    servers = tuple(parse_bootstrap_servers(watched.cluster.bootstrap_servers))
    with Producer({"bootstrap.servers": watched.cluster.bootstrap_servers, "enable.metrics.push": False}) as producer:
        last = producer.send("t", b"value").result(SECONDS).offset
    assert last is not None
    settings = FetchSettings(ConnectionSettings(servers, client_id="reader"), group_id="g")
    CONNECTIONS.clear()

    read = [0]

    def read_again() -> bool:
        wanted = [OffsetRange(TopicPartition("t", 0), last, last + 1)]
        read[0] += sum(batch.num_rows for _, batch in read_ranges(settings, wanted))
        return bool(watched.pushes("reader"))

    wait_until(read_again, "a push between reads", seconds=SECONDS)
    CONNECTIONS.clear()
    wait_until(lambda: watched.pushes("reader")[-1].terminating, "the terminating push", seconds=SECONDS)
    assert watched.pushes("reader")[-1].content.resource == {"group_id": "g"}
    assert watched.total("reader", CONSUMED) == read[0]
