"""Kafka's own tools for topics, settings and groups on the embedded broker."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from spark_producer.broker import LocalBroker
from tests.interop.broker_records import records_of_every_kind, write
from tests.interop.conftest import NEWEST_FIRST
from tests.support.kafka_node import KafkaFailed, run_tool

pytestmark = [pytest.mark.kafka, pytest.mark.parametrize("version", NEWEST_FIRST)]

SECONDS = 120.0
TOOLS = "org.apache.kafka.tools"
TOPICS = f"{TOOLS}.TopicCommand"
GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
CONFIGS = "kafka.admin.ConfigCommand"


@pytest.fixture
def local() -> Iterator[LocalBroker]:
    with LocalBroker() as broker:
        broker.create_topic("people", 2, {"max.message.bytes": "5000"})
        yield broker


def run(local: LocalBroker, home: Path, version: str, tool: str, *arguments: str) -> str:
    return run_tool(version, home, tool, ("--bootstrap-server", local.bootstrap_servers, *arguments), SECONDS)


def test_kafka_topics(local: LocalBroker, tmp_path: Path, version: str) -> None:
    run(
        local,
        tmp_path,
        version,
        TOPICS,
        "--create",
        "--topic",
        "made",
        "--partitions",
        "3",
        "--config",
        "segment.bytes=2000000",
    )
    assert run(local, tmp_path, version, TOPICS, "--list").split() == ["made", "people"]
    described = run(local, tmp_path, version, TOPICS, "--describe", "--topic", "made").splitlines()
    assert [line.split("\t")[0] for line in described] == ["Topic: made"] + [""] * 3
    assert "PartitionCount: 3" in described[0]
    assert "Configs: segment.bytes=2000000" in described[0]
    assert all("Leader: 1" in line and "Isr: 1" in line for line in described[1:])
    every = run(local, tmp_path, version, TOPICS, "--describe")
    assert "Topic: people" in every
    assert "Configs: max.message.bytes=5000" in every
    run(local, tmp_path, version, TOPICS, "--delete", "--topic", "made")
    assert local.topics() == {"people": 2}


def test_kafka_configs(local: LocalBroker, tmp_path: Path, version: str) -> None:
    topic = ("--entity-type", "topics", "--entity-name", "people")
    described = run(local, tmp_path, version, CONFIGS, "--describe", *topic)
    assert "max.message.bytes=5000" in described
    assert (
        "synonyms={DYNAMIC_TOPIC_CONFIG:max.message.bytes=5000, DEFAULT_CONFIG:max.message.bytes=1048588}" in described
    )
    assert "segment.bytes" not in described, "that one was not set"
    assert "segment.bytes=" in run(local, tmp_path, version, CONFIGS, "--describe", "--all", *topic)
    changes = ("--add-config", "segment.bytes=3000000", "--delete-config", "max.message.bytes")
    run(local, tmp_path, version, CONFIGS, "--alter", *topic, *changes)
    described = run(local, tmp_path, version, CONFIGS, "--describe", *topic)
    assert "segment.bytes=3000000" in described
    assert "max.message.bytes" not in described
    with pytest.raises(KafkaFailed, match="nonsense"):
        run(local, tmp_path, version, CONFIGS, "--alter", *topic, "--add-config", "nonsense=1")


def test_partitions_are_added_records_deleted_and_directories_listed(
    local: LocalBroker, tmp_path: Path, version: str
) -> None:
    alter = ("--alter", "--topic", "people", "--partitions")
    run(local, tmp_path, version, TOPICS, *alter, "5")
    assert local.topics() == {"people": 5}
    with pytest.raises(KafkaFailed, match="would not be an increase"):
        run(local, tmp_path, version, TOPICS, *alter, "3")
    write("kafka-python", local.bootstrap_servers, "people", records_of_every_kind(5, writer="kafka-python"))
    wanted = tmp_path / "wanted.json"
    wanted.write_text('{"partitions": [{"topic": "people", "partition": 0, "offset": 1}], "version": 1}')
    reported = run(local, tmp_path, version, f"{TOOLS}.DeleteRecordsCommand", "--offset-json-file", str(wanted))
    assert "partition: people-0\tlow_watermark: 1" in reported
    wanted.write_text('{"partitions": [{"topic": "people", "partition": 0, "offset": 999999}], "version": 1}')
    reported = run(local, tmp_path, version, f"{TOOLS}.DeleteRecordsCommand", "--offset-json-file", str(wanted))
    assert "OffsetOutOfRange" in reported
    reported = run(local, tmp_path, version, f"{TOOLS}.LogDirsCommand", "--describe", "--topic-list", "people")
    (directory,) = json.loads(next(line for line in reported.splitlines() if line.startswith("{")))["brokers"][0][
        "logDirs"
    ]
    assert directory["error"] is None
    assert {each["partition"] for each in directory["partitions"]} == {f"people-{index}" for index in range(5)}
    assert all(each["size"] > 0 and each["offsetLag"] == 0 for each in directory["partitions"])


def test_kafka_consumer_groups(local: LocalBroker, tmp_path: Path, version: str) -> None:
    assert run(local, tmp_path, version, GROUPS, "--list").split() == []
