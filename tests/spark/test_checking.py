"""The check of a cluster from the executors, COM23."""

from __future__ import annotations

import platform

import pytest
from pyspark.sql import SparkSession

import spark_producer
from spark_producer.errors import ConfigError
from tests.conftest import Broker
from tests.support.ports import free_ports


@pytest.mark.covers("COM23")
def test_executors_look_for_themselves(spark: SparkSession, embedded_broker: Broker, topic: str) -> None:
    embedded_broker.create_topic(topic, 2)
    options = {"kafka.bootstrap.servers": embedded_broker.bootstrap_servers, "topic": topic}
    found = spark_producer.check(spark, options, tasks=3)
    assert {host for host, _ in found} == {platform.node()}
    names = [finding.name for _, finding in found]
    assert names == [
        "connection", "tls", "login", "brokers", "versions", "topic", "leaders", "min.insync.replicas", "rights",
    ]  # fmt: skip
    assert {finding.state for _, finding in found} <= {"ok", "unknown"}
    (port,) = free_ports(1)
    ((_, finding),) = spark_producer.check(
        spark, {"kafka.bootstrap.servers": f"127.0.0.1:{port}", "kafka.max.block.ms": "1000"}, tasks=1
    )
    assert (finding.name, finding.state) == ("connection", "failed")
    assert "firewalls" in finding.advice


def test_options_are_those_of_the_data_source(spark: SparkSession) -> None:
    with pytest.raises(ConfigError, match="Did you mean"):
        spark_producer.check(spark, {"kafka.bootstrap.server": "localhost:1"})
