"""Reading from the follower in the reader's rack (KIP-392), on real Kafka, and from the leader once the follower is gone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from spark_producer import Producer
from spark_producer.consumer.read_ranges import CONNECTIONS
from spark_producer.consumer.settings import FetchSettings
from spark_producer.network.client import Client
from spark_producer.protocol import FETCH
from tests.support.kafka_cluster import KafkaCluster
from tests.support.kafka_node import KAFKA_4
from tests.support.read_ranges import FAST, batches, connection

pytestmark = [pytest.mark.kafka, pytest.mark.slow]
ROWS = 20_000
SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


class RackedCluster(KafkaCluster):
    """Each node has a rack of its own, and readers are sent to theirs."""

    def _node_settings(self, node: int) -> dict[str, str]:
        return {**super()._node_settings(node), "broker.rack": f"rack-{node}", "replica.selector.class": SELECTOR}


@pytest.fixture
def racked() -> Iterator[KafkaCluster]:
    with RackedCluster(KAFKA_4, nodes=3) as cluster:
        yield cluster


@pytest.mark.covers("RD9")
def test_a_follower_is_read_and_then_its_leader(
    racked: KafkaCluster, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    racked.create_topic(topic, 1, replication_factor=3)
    with Producer({"bootstrap.servers": racked.bootstrap_servers, "batch.size": "4000"}) as producer:
        for number in range(ROWS):
            producer.send(topic, b"%d" % number)
    leader = racked.partitions(topic)[0].leader
    follower = next(node for node in racked.nodes if node != leader)
    asked: Counter[int] = Counter()
    send = Client.send

    def counted(self: Client, node: int, api: Any, body: Any, **more: Any) -> None:
        asked[node] += api.key == FETCH.key
        send(self, node, api, body, **more)

    monkeypatch.setattr(Client, "send", counted)
    CONNECTIONS.clear()
    network = connection(racked.bootstrap_servers, **FAST)
    settings = FetchSettings(network, partition_bytes=4000, max_bytes=40_000, client_rack=f"rack-{follower}")
    found: list[Any] = []
    for number, (_, batch) in enumerate(batches(settings, topic, {0: (0, ROWS)})):
        found += batch.column("value").to_pylist()
        if number == 20:
            assert asked[leader] == 1, "the leader only names the follower"
            assert asked[follower] > 20
            racked.kill(follower)
    assert found == [b"%d" % number for number in range(ROWS)]
    assert asked[leader] > 2
