"""The test bench itself: real Kafka starts, keeps its data over kill -9, and foreign clients read what they wrote."""

from __future__ import annotations

import re

import pytest

from tests.kafka.foreign import CLIENTS, assert_written, write_with_kafka_python
from tests.support.kafka_cluster import KafkaCluster
from tests.support.kafka_node import KAFKA_4, KAFKA_39, KafkaFailed
from tests.support.read_back import Client, read_topic
from tests.support.read_confluent import count_and_check, end_offsets


@pytest.mark.parametrize(
    "fixture", ["kafka_39", "kafka_4", pytest.param("kafka_three", marks=pytest.mark.xdist_group("dear"))]
)
@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.kafka
def test_foreign_round_trip(request: pytest.FixtureRequest, fixture: str, client: Client, topic: str) -> None:
    cluster: KafkaCluster = request.getfixturevalue(fixture)
    cluster.create_topic(topic, 3, replication_factor=len(cluster.nodes))
    write_with_kafka_python(cluster.bootstrap_servers, topic, 60, 3)
    assert end_offsets(cluster.bootstrap_servers, topic) == {0: 20, 1: 20, 2: 20}
    assert_written(cluster.bootstrap_servers, topic, client, 60, 3)
    summary = count_and_check(cluster.bootstrap_servers, topic)
    assert (summary.total, dict(summary.records)) == (60, {0: 20, 1: 20, 2: 20})


def test_read_back_says_how_many_are_missing(kafka_4: KafkaCluster, topic: str) -> None:
    kafka_4.create_topic(topic, 2)
    write_with_kafka_python(kafka_4.bootstrap_servers, topic, 3, 2)
    with pytest.raises(AssertionError, match=re.escape("3 records") + ".*instead of 4"):
        read_topic(kafka_4.bootstrap_servers, topic, expected=4)
    for client in CLIENTS:
        with pytest.raises(AssertionError, match="no topic"):
            read_topic(kafka_4.bootstrap_servers, topic + "-other", client=client)


@pytest.mark.kafka
@pytest.mark.parametrize("version", [pytest.param(KAFKA_39, marks=pytest.mark.nightly), KAFKA_4])
def test_kill_and_restart_keep_the_data(version: str, topic: str) -> None:
    with KafkaCluster(version) as cluster:
        cluster.create_topic(topic, 1)
        write_with_kafka_python(cluster.bootstrap_servers, topic, 20, 1)
        first = cluster.pid(1)
        cluster.kill(1)
        cluster.start(1)
        assert cluster.pid(1) != first
        assert_written(cluster.bootstrap_servers, topic, "confluent", 20, 1)
        dump = cluster.dump_log(1, topic, 0)
        assert dump.count("payload: value-") == 18
        assert "isvalid: true" in dump
    assert not cluster.log_dir(1).exists()


def test_three_nodes_outlive_the_loss_of_one(kafka_three: KafkaCluster, topic: str) -> None:
    kafka_three.create_topic(topic, 3, replication_factor=3, config={"min.insync.replicas": "2"})
    kafka_three.stop(2)
    try:
        write_with_kafka_python(kafka_three.bootstrap_servers, topic, 30, 3)
    finally:
        kafka_three.start(2)
    assert_written(kafka_three.bootstrap_servers, topic, "kafka-python", 30, 3)


@pytest.mark.kafka
def test_bad_settings_show_what_kafka_said() -> None:
    with pytest.raises(KafkaFailed, match="Invalid value no-such-number"):
        KafkaCluster(KAFKA_4, settings={"num.io.threads": "no-such-number"}).__enter__()


def test_tools_of_the_distribution_run(kafka_39: KafkaCluster, topic: str) -> None:
    kafka_39.create_topic(topic, 1)
    write_with_kafka_python(kafka_39.bootstrap_servers, topic, 10, 1)
    arguments = ["--bootstrap-server", kafka_39.bootstrap_servers, "--topic", topic, "--from-beginning"]
    printed = kafka_39.run_tool(
        "org.apache.kafka.tools.consumer.ConsoleConsumer", *arguments, "--max-messages", "10", "--timeout-ms", "100000"
    )
    assert printed.split() == ["null" if number == 0 else f"value-{number}" for number in range(10)]
    with pytest.raises(KafkaFailed, match="exit code"):
        kafka_39.run_tool("org.apache.kafka.tools.consumer.ConsoleConsumer", "--no-such-option")
