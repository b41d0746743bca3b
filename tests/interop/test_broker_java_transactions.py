"""The embedded broker with transactions of Kafka's own Java producer and consumer, and with the tool that looks after them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from spark_producer.broker import BrokerSettings, LocalBroker
from tests.interop.transacting import writer
from tests.support.kafka_node import KAFKA_4, KAFKA_39, run_tool
from tests.support.read_back import read_topic
from tests.support.read_confluent import end_offsets
from tests.unit.broker.partition_writer import write_transactions

pytestmark = pytest.mark.kafka
NIGHTLY = pytest.mark.nightly

SECONDS = 120.0
TOOLS = "org.apache.kafka.tools"
ROWS = 3000
OPEN_MS = 600_000
"""The timeout of a transaction that three tools look at, one after the other: each may take `SECONDS`, and the broker aborts a
transaction whose time is up."""


@pytest.fixture
def local(request: pytest.FixtureRequest) -> Iterator[LocalBroker]:
    with LocalBroker(settings=BrokerSettings(transaction_version=request.param)) as broker:
        broker.create_topic("t")
        yield broker


def java(broker: LocalBroker, home: Path, version: str, tool: str, *arguments: str) -> list[str]:
    """The lines that one of Kafka's tools prints."""
    address = ("--bootstrap-server", broker.bootstrap_servers)
    return run_tool(version, home, f"{TOOLS}.{tool}", (*address, *arguments), SECONDS).splitlines()


@pytest.mark.parametrize(
    ("version", "local"), [pytest.param(KAFKA_39, 2, marks=NIGHTLY), (KAFKA_4, 0)], indirect=["local"]
)
def test_javas_producer_and_consumer_agree_with_others_about_transactions(
    local: LocalBroker, tmp_path: Path, version: str
) -> None:
    """Java's producer commits many small transactions, while one of ours is open that is aborted in the end."""
    with closing(writer("ours", local.bootstrap_servers, "ours")) as ours:
        ours.init()
        ours.begin()
        ours.write("t", 0, b"before, aborted")
        transactions = ("--transactional-id", "java", "--transaction-duration-ms", "20")
        rows = ("--topic", "t", "--num-records", str(ROWS), "--record-size", "20", "--throughput", str(2 * ROWS))
        properties = ("--producer-props", f"bootstrap.servers={local.bootstrap_servers}", "linger.ms=0")
        arguments = (*rows, *transactions, *properties)
        printed = run_tool(version, tmp_path, f"{TOOLS}.ProducerPerformance", arguments, SECONDS)
        assert f"{ROWS} records sent" in printed
        ours.abort()
        ours.begin()
        ours.write("t", 0, b"after, committed")
        ours.commit()
    everything = [row.value for row in read_topic(local.bootstrap_servers, "t", client="confluent")]
    assert len(everything) == ROWS + 2
    markers = end_offsets(local.bootstrap_servers, "t")[0] - len(everything)
    assert markers > 4, "two are ours, and those of Java's transactions are several"
    place = ("--topic", "t", "--partition", "0", "--offset", "earliest", "--max-messages", str(ROWS + 1))
    isolation = ("--isolation-level", "read_committed")
    seen = java(local, tmp_path, version, "consumer.ConsoleConsumer", *place, *isolation)
    assert [line.encode() for line in seen] == everything[1:]
    assert everything[0] == b"before, aborted"
    assert everything[-1] == b"after, committed"


@pytest.mark.parametrize(("version", "level"), [pytest.param(KAFKA_39, 0, marks=NIGHTLY), (KAFKA_4, 2)])
def test_the_tool_lists_open_transactions(tmp_path: Path, version: str, level: int) -> None:
    """`kafka-transactions.sh list`, `describe` and `describe-producers`."""
    with LocalBroker(settings=BrokerSettings(transaction_version=level)) as local:
        local.create_topic("t", 2)
        with closing(writer("ours", local.bootstrap_servers, "mine", timeout_ms=OPEN_MS)) as ours:
            ours.init()
            ours.begin()
            ours.write("t", 1, b"open")
            (listed,) = reported(local, tmp_path, version, "list")
            (described,) = reported(local, tmp_path, version, "describe", "--transactional-id", "mine")
            place = ("--topic", "t", "--partition", "1")
            (producer,) = reported(local, tmp_path, version, "describe-producers", *place)
    assert (listed["TransactionalId"], listed["TransactionState"], listed["Coordinator"]) == ("mine", "Ongoing", "1")
    assert described["ProducerId"] == listed["ProducerId"] == producer["ProducerId"]
    assert (described["TransactionState"], described["TransactionTimeoutMs"]) == ("Ongoing", str(OPEN_MS))
    assert described["TopicPartitions"] == "t-1"
    assert 0 <= int(described["TransactionDurationMs"]) < 1000 * SECONDS
    assert (producer["LastSequence"], producer["CurrentTransactionStartOffset"]) == ("0", "0")


def reported(local: LocalBroker, home: Path, version: str, *arguments: str) -> list[dict[str, str]]:
    """The table that the tool prints, a row for each line, by the names of the columns."""
    head, *rows = [line.split() for line in java(local, home, version, "TransactionsCommand", *arguments) if line]
    return [dict(zip(head, row, strict=True)) for row in rows]


@pytest.mark.parametrize("version", [pytest.param(KAFKA_39, marks=NIGHTLY), KAFKA_4])
def test_the_tool_finds_a_hanging_transaction_and_ends_it(tmp_path: Path, version: str, engine_of_the_kit: str) -> None:
    """The coordinator does not know the transaction, whose records are in the log. Readers of committed rows stop before it."""
    committed = write_transactions(tmp_path / "data", "t", BrokerSettings(storage_engine=engine_of_the_kit))
    with LocalBroker(tmp_path / "data") as local:
        hanging = reported(local, tmp_path, version, "find-hanging", "--broker-id", "1")
        assert [(row["Topic"], row["ProducerId"], row["StartOffset"]) for row in hanging] == [("t", "1", "12")]
        place = ("--topic", "t", "--partition", "0", "--start-offset", "12")
        java(local, tmp_path, version, "TransactionsCommand", "abort", *place)
        rows = read_topic(local.bootstrap_servers, "t", client="confluent", isolation="read_committed")
    assert [row.value for row in rows] == [*committed, b"plain 3, after the open transaction"]
