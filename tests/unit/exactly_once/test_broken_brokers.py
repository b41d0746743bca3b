"""Answers that no broker should give, and messages that no task should send: never a wrong verdict, always an error of ours."""

from __future__ import annotations

from typing import Any, cast

import pytest

from spark_producer.common.cluster import ProducerIdAndEpoch, TransactionVersion
from spark_producer.errors import BrokerError, ExactlyOnceError
from spark_producer.exactly_once import driver
from spark_producer.exactly_once.cluster import coordinator_state, fencing
from spark_producer.exactly_once.cluster.command_executor import CommandExecutor
from spark_producer.exactly_once.cluster.control_write import ControlWrite
from spark_producer.exactly_once.driver import SinkSettings
from spark_producer.exactly_once.names import control_id, task_id
from spark_producer.exactly_once.protocol.commands import Indeterminate, WriteControl
from spark_producer.exactly_once.protocol.control_record import ControlRecord, Status
from spark_producer.exactly_once.protocol.task_messages import InlineRows, Skipped, WriteHandle
from spark_producer.network import ConnectionSettings
from spark_producer.protocol import (
    DESCRIBE_PRODUCERS,
    DESCRIBE_TRANSACTIONS,
    END_TXN,
    INIT_PRODUCER_ID,
    LIST_TRANSACTIONS,
    PRODUCE,
    messages,
)
from tests.fakes.scripted_client import ScriptedClient, brokers_of

OWN = task_id("orders", "a" * 32, 0)
NEIGHBOUR = task_id("orders.eu", "a" * 32, 0)


@pytest.fixture
def client() -> ScriptedClient:
    made = ScriptedClient()
    made.leaders = {("commits", 0): 1}
    return made


def all_open(*names: str) -> messages.DescribeTransactionsResponse:
    """Return these transactions as open, whatever was requested."""
    rows = (messages.DescribedTransaction(0, each, "Ongoing", 60_000, 0, 5, 1) for each in names)
    return messages.DescribeTransactionsResponse(0, tuple(rows))


def test_transactions_that_were_not_requested_are_not_orphans(client: ScriptedClient) -> None:
    """These transactions would be aborted."""
    listed = tuple(messages.ListedTransaction(each, 5, "Ongoing") for each in (OWN, NEIGHBOUR, "payments"))
    client.answers(LIST_TRANSACTIONS, messages.ListTransactionsResponse(transaction_states=listed))
    client.answers(DESCRIBE_TRANSACTIONS, all_open(NEIGHBOUR, OWN, "payments", control_id("orders")))
    found = coordinator_state.open_tasks(brokers_of(client), TransactionVersion.EXPLICIT, client.deadline())
    assert [each.transactional_id for each in found] == [OWN]


@pytest.mark.parametrize("given", [(-1, -1), (-1, 3), (7, -1)])
def test_an_answer_without_a_producer_is_no_fence(client: ScriptedClient, given: tuple[int, int]) -> None:
    client.answers(DESCRIBE_TRANSACTIONS, all_open(control_id("orders")))
    client.answers(INIT_PRODUCER_ID, messages.InitProducerIdResponse(0, 0, *given))
    with pytest.raises(BrokerError, match="gave no producer id or epoch"):
        fencing.fence(brokers_of(client), "commits", client.deadline())


def test_a_commit_that_gives_no_next_epoch_is_looked_for(client: ScriptedClient) -> None:
    def produced(_: Any) -> messages.ProduceResponse:
        row = messages.ProducePartitionResponse(0, base_offset=100)
        return messages.ProduceResponse((messages.ProduceTopicResponse("commits", partition_responses=(row,)),))

    client.scripts[PRODUCE.name] = produced
    ours = messages.ActiveProducer(7, 3, current_txn_start_offset=100)
    partition = messages.DescribeProducersPartition(0, active_producers=(ours,))
    topic = messages.DescribeProducersTopicResult("commits", (partition,))
    client.answers(DESCRIBE_PRODUCERS, messages.DescribeProducersResponse(0, (topic,)))
    client.answers(END_TXN, messages.EndTxnResponse(0, 0, -1, -1))
    client.answers(DESCRIBE_TRANSACTIONS, all_open(control_id("orders")))
    record = ControlRecord("orders", "q", Status.DONE, 0, 0, "t")
    command = WriteControl(ProducerIdAndEpoch(7, 3), record)
    answer = ControlWrite(brokers_of(client), "commits", TransactionVersion.IMPLICIT, command, client.deadline()).run(
        {}, 4096
    )
    assert isinstance(answer, Indeterminate)


def test_messages_of_another_sink_are_not_committed(client: ScriptedClient, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = SinkSettings("orders", ConnectionSettings((("nowhere", 1),)))
    client.close = lambda: None  # type: ignore[attr-defined]
    cluster = CommandExecutor(cast("Any", client), "orders", "commits")
    monkeypatch.setattr(driver, "_open", [(sink, cluster)])
    handle = WriteHandle("orders.eu", "t", ProducerIdAndEpoch(7, 3), TransactionVersion.EXPLICIT, None)
    for outcome in (InlineRows(handle, "q", 0, (), 0), Skipped(handle, "q", 0, 0)):
        monkeypatch.setattr(driver, "_open", [(sink, cluster)])
        with pytest.raises(ExactlyOnceError, match=r"are of sink 'orders\.eu'"):
            driver.commit(sink, [outcome], 0)
        monkeypatch.setattr(driver, "_open", [(sink, cluster)])
        with pytest.raises(ExactlyOnceError, match=r"are of sink 'orders\.eu'"):
            driver.abort(sink, [None, outcome], 0)
    assert client.sent == []
