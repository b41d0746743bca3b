"""The embedded broker with Kafka's own Java clients and tools."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from spark_producer.broker import BrokerSettings, LocalBroker, TopicSettings
from tests.interop.broker_records import records_of_every_kind, write
from tests.support.kafka_node import KAFKA_4, KAFKA_39, run_tool

NIGHTLY = pytest.mark.nightly
pytestmark = [pytest.mark.kafka, pytest.mark.parametrize("version", [pytest.param(KAFKA_39, marks=NIGHTLY), KAFKA_4])]

SECONDS = 120.0
PARTITIONS = 2


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def local(data_dir: Path) -> Iterator[LocalBroker]:
    """A broker with small segments, so that several are read."""
    with LocalBroker(data_dir, settings=BrokerSettings(topic=TopicSettings(segment_bytes=50_000))) as broker:
        broker.create_topic("t", PARTITIONS)
        yield broker


def test_the_console_consumer_reads_assigned_partitions(local: LocalBroker, tmp_path: Path, version: str) -> None:
    records = [
        record._replace(key=b"key-%d" % number, value=b"value-%d" % number)
        for number, record in enumerate(records_of_every_kind(PARTITIONS, 1000))
    ]
    write("confluent", local.bootstrap_servers, "t", records)
    consumer = "org.apache.kafka.tools.consumer.ConsoleConsumer"
    for partition in range(PARTITIONS):
        mine = [record for record in records if record.partition == partition]
        place = (
            "--topic",
            "t",
            "--partition",
            str(partition),
            "--offset",
            "earliest",
            "--max-messages",
            str(len(mine)),
        )
        show = ("--property", "print.key=true", "--property", "print.offset=true")
        address = ("--bootstrap-server", local.bootstrap_servers)
        lines = run_tool(version, tmp_path, consumer, (*address, *place, *show), SECONDS).splitlines()
        found = [line.split("\t") for line in lines if line.startswith("Offset:")]
        assert found == [
            [f"Offset:{offset}", (record.key or b"").decode(), (record.value or b"").decode()]
            for offset, record in enumerate(mine)
        ]


def test_the_java_producer_writes_idempotently_and_the_offset_tool_agrees(
    local: LocalBroker, tmp_path: Path, version: str
) -> None:
    size = ("--num-records", "20000", "--record-size", "200", "--throughput", "-1")
    properties = (
        "--producer-props",
        f"bootstrap.servers={local.bootstrap_servers}",
        "acks=all",
        "compression.type=lz4",
    )
    tools = "org.apache.kafka.tools"
    printed = run_tool(version, tmp_path, f"{tools}.ProducerPerformance", ("--topic", "t", *size, *properties), SECONDS)
    assert "20000 records sent" in printed
    address = ("--bootstrap-server", local.bootstrap_servers)
    offsets = run_tool(version, tmp_path, f"{tools}.GetOffsetShell", (*address, "--topic", "t"), SECONDS)
    ends = [int(line.rpartition(":")[2]) for line in offsets.splitlines() if line.startswith("t:")]
    assert len(ends) == PARTITIONS
    assert sum(ends) == 20_000


def test_kafkas_own_tool_finds_the_segment_files_in_order(
    local: LocalBroker, data_dir: Path, tmp_path: Path, version: str
) -> None:
    records = records_of_every_kind(1, 100)
    write("confluent", local.bootstrap_servers, "t", records, **{"batch.num.messages": 7, "compression.type": "zstd"})
    files = sorted(str(path) for path in (data_dir / "t-0").glob("*.log"))
    package = "kafka.tools" if version.startswith("3.") else "org.apache.kafka.tools"
    printed = run_tool(
        version, tmp_path, f"{package}.DumpLogSegments", ("--deep-iteration", "--files", ",".join(files)), SECONDS
    )
    offsets = [int(line.split()[2]) for line in printed.splitlines() if line.startswith("| offset:")]
    assert offsets == list(range(len(records)))
    batches = [line for line in printed.splitlines() if line.startswith("baseOffset:")]
    assert batches
    assert all("isvalid: true" in line and "partitionLeaderEpoch: 0" in line for line in batches)
