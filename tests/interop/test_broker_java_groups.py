"""Consumer groups of Kafka's own clients and tools on the embedded broker."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_producer.broker import LocalBroker
from tests.interop.conftest import NEWEST_FIRST
from tests.interop.group_members import GROUP, ConfluentMember, Polled
from tests.interop.test_broker_groups import PARTITIONS, written
from tests.support.kafka_node import run_tool

pytestmark = [pytest.mark.kafka, pytest.mark.parametrize("version", NEWEST_FIRST)]

SECONDS = 120.0
CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"


def run(local: LocalBroker, home: Path, version: str, tool: str, *arguments: str) -> str:
    return run_tool(version, home, tool, ("--bootstrap-server", local.bootstrap_servers, *arguments), SECONDS)


def consumed(local: LocalBroker, home: Path, version: str, count: int) -> list[bytes]:
    """Return the records that Kafka's console consumer reads as a member of the group."""
    few = ("--max-messages", str(count), "--timeout-ms", "60000")
    place = ("--topic", "t", "--group", GROUP, "--from-beginning")
    return [line.encode() for line in run(local, home, version, CONSUMER, *place, *few).splitlines() if line]


def table(text: str) -> list[dict[str, str]]:
    """The rows of a table that the tool has printed."""
    head, *rows = (line.split() for line in text.splitlines() if line.strip() and not line.startswith("Consumer group"))
    return [dict(zip(head, row, strict=False)) for row in rows]


def test_the_console_consumer_and_the_group_tool(local: LocalBroker, tmp_path: Path, version: str) -> None:
    local.create_topic("t", PARTITIONS)
    first = written(local.bootstrap_servers, 40)
    assert sorted(consumed(local, tmp_path, version, 40)) == sorted(first)
    second = written(local.bootstrap_servers, 20)

    def tool(*arguments: str) -> str:
        return run(local, tmp_path, version, GROUPS, "--group", GROUP, *arguments)

    rows = {row["PARTITION"]: row for row in table(tool("--describe"))}
    assert sorted(rows) == [str(partition) for partition in range(PARTITIONS)]
    assert {(row["CURRENT-OFFSET"], row["LOG-END-OFFSET"], row["LAG"]) for row in rows.values()} == {("10", "15", "5")}

    assert sorted(consumed(local, tmp_path, version, 20)) == sorted(second)
    tool("--reset-offsets", "--to-earliest", "--all-topics", "--execute")
    assert sorted(consumed(local, tmp_path, version, 60)) == sorted([*first, *second])
    assert "Successful" in tool("--delete-offsets", "--topic", "t:0")
    assert sorted(row["PARTITION"] for row in table(tool("--describe"))) == ["1", "2", "3"]
    assert "was successful" in tool("--delete")
    assert run(local, tmp_path, version, GROUPS, "--list").split() == []


def test_the_group_tool_shows_members_and_lets_no_group_go_that_has_some(
    local: LocalBroker, tmp_path: Path, version: str
) -> None:
    local.create_topic("t", PARTITIONS)
    address = local.bootstrap_servers
    with Polled(ConfluentMember(address), ConfluentMember(address)) as group:
        group.until_shared_out([2, 2], PARTITIONS)
        group.until_read(written(address))
        for member in group.members:
            member.commit()
        rows = table(run(local, tmp_path, version, GROUPS, "--describe", "--group", GROUP))
        assert {row["LAG"] for row in rows} == {"0"}
        assert len({row["CONSUMER-ID"] for row in rows}) == 2
        assert {(row["HOST"], row["CLIENT-ID"]) for row in rows} == {("/127.0.0.1", "rdkafka")}
        members = table(run(local, tmp_path, version, GROUPS, "--describe", "--members", "--group", GROUP))
        assert [row["#PARTITIONS"] for row in members] == ["2", "2"]
        (state,) = table(run(local, tmp_path, version, GROUPS, "--describe", "--state", "--group", GROUP))
        assert "Stable" in state.values()
        assert "2" in state.values()
        assert "group is not empty" in run(local, tmp_path, version, GROUPS, "--delete", "--group", GROUP)
