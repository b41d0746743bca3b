"""The addresses of a cluster before it is started."""

from __future__ import annotations

from tests.support.kafka_cluster import KafkaCluster
from tests.support.kafka_node import KAFKA_4


def test_a_node_without_an_advertised_port_is_reached_where_it_listens() -> None:
    cluster = KafkaCluster(KAFKA_4, 3, advertised_ports=[4711, None, None])
    direct = [f"127.0.0.1:{cluster.ports[node].client}" for node in (2, 3)]
    assert cluster.bootstrap_servers.split(",") == ["127.0.0.1:4711", *direct]
    plain = KafkaCluster(KAFKA_4, 2)
    assert plain.bootstrap_servers == ",".join(f"127.0.0.1:{plain.ports[node].client}" for node in (1, 2))
