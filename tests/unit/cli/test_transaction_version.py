"""`pyproducer broker --transaction-version`, and a broker that is killed in the middle of transactions."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from spark_producer.cli.entry import main
from spark_producer.common.error_codes import Code
from spark_producer.protocol import (
    API_VERSIONS,
    CREATE_TOPICS,
    DESCRIBE_TRANSACTIONS,
    END_TXN,
    INIT_PRODUCER_ID,
    LIST_OFFSETS,
    PRODUCE,
    messages,
)
from spark_producer.record.batch_v2 import TRANSACTIONAL_BIT
from tests.fakes.raw_client import RawClient
from tests.support.ports import free_ports
from tests.support.processes import ChildProcess
from tests.support.waiting import retry
from tests.unit.broker.batches import make_batch

SECONDS = 60.0
PARTITIONS = 3


class Process:
    """`pyproducer broker` on a port and a directory of its own."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._port = free_ports(1)[0]

    def start(self, *arguments: str) -> RawClient:
        """Start it, and connect."""
        command = [sys.executable, "-m", "spark_producer", "broker", "--port", str(self._port)]
        command += ["--data-dir", str(self._home / "data"), *arguments]
        process = self._process = ChildProcess(command, self._home / "broker.log")
        return retry(
            lambda: RawClient(self._port),
            ConnectionRefusedError,
            "the broker listens",
            pause=0.05,
            more=process.tail,
            ended=process.has_ended,
        )

    def kill(self) -> None:
        """SIGKILL."""
        self._process.kill()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Process]:
    with ExitStack() as stack:
        process = Process(tmp_path)
        stack.callback(lambda: process.kill())
        yield process


def init(client: RawClient, transactional_id: str) -> tuple[int, int]:
    answer = client.ask(INIT_PRODUCER_ID, messages.InitProducerIdRequest(transactional_id, 60_000))
    assert answer.error_code == Code.NONE
    return answer.producer_id, answer.producer_epoch


def write(client: RawClient, transactional_id: str, holder: tuple[int, int]) -> None:
    """A row in each partition."""
    batch = make_batch(producer_id=holder[0], epoch=holder[1], sequence=0, attributes=TRANSACTIONAL_BIT)
    rows = tuple(messages.ProducePartition(index, batch) for index in range(PARTITIONS))
    topics = (messages.ProduceTopic("t", partition_data=rows),)
    answer = client.ask(PRODUCE, messages.ProduceRequest(transactional_id, -1, 1000, topics))
    assert {row.error_code for row in answer.responses[0].partition_responses} == {Code.NONE}


def end(client: RawClient, transactional_id: str, holder: tuple[int, int], *, commit: bool) -> int:
    return client.ask(END_TXN, messages.EndTxnRequest(transactional_id, *holder, commit)).error_code


def ends(client: RawClient, isolation: int) -> list[int]:
    """Return the end of reading in each partition."""
    wanted = tuple(messages.ListOffsetsPartition(index, timestamp=-1) for index in range(PARTITIONS))
    topics = (messages.ListOffsetsTopic("t", wanted),)
    answer = client.ask(LIST_OFFSETS, messages.ListOffsetsRequest(-1, isolation, topics))
    return [row.offset for row in answer.topics[0].partitions]


@pytest.mark.slow
def test_transactions_outlive_a_kill(broker: Process) -> None:
    client = broker.start()
    client.ask(CREATE_TOPICS, messages.CreateTopicsRequest((messages.CreatableTopic("t", PARTITIONS, 1),)))
    done, open_, silent = (init(client, name) for name in ("done", "open", "silent"))
    write(client, "done", done)
    assert end(client, "done", done, commit=True) == Code.NONE
    write(client, "open", open_)
    write(client, "silent", silent)
    client.send(END_TXN, messages.EndTxnRequest("silent", *silent, False))  # answered or not: it does not matter
    broker.kill()
    client.socket.close()

    client = broker.start()
    assert end(client, "done", done, commit=True) == Code.NONE
    assert ends(client, 1) == [2, 2, 2], "the open transaction holds its readers back"
    names = messages.DescribeTransactionsRequest(("done", "open", "silent"))
    states = [row.transaction_state for row in client.ask(DESCRIBE_TRANSACTIONS, names).transaction_states]
    assert states[:2] == ["CompleteCommit", "Ongoing"]
    assert states[2] in ("Ongoing", "CompleteAbort")
    assert end(client, "silent", silent, commit=False) == Code.NONE
    assert end(client, "open", open_, commit=True) == Code.NONE
    assert ends(client, 1) == ends(client, 0)
    new = init(client, "new")
    assert new[0] > max(done[0], open_[0], silent[0])
    client.socket.close()


def test_the_level_is_a_setting(broker: Process) -> None:
    client = broker.start("--transaction-version", "0")
    body = client.ask(API_VERSIONS, messages.ApiVersionsRequest())
    assert body.finalized_features == ()
    assert {row.api_key: row.max_version for row in body.api_keys}[PRODUCE.key] == 11
    client.send(END_TXN, messages.EndTxnRequest("id", 0, 0), 5)
    assert client.is_closed_by_peer()
    client.socket.close()


def test_other_levels_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["broker", "--transaction-version", "1"])
    assert "invalid choice: 1" in capsys.readouterr().err
