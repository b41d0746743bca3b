"""When a failure is FENCED: a vote with objections asks whether another writer holds the sink now."""

from __future__ import annotations

from typing import cast

import pytest

from spark_producer.admin import BlockingClient
from spark_producer.common.cluster import ProducerIdAndEpoch, Span, TransactionVersion
from spark_producer.errors import UnsupportedVersion
from spark_producer.exactly_once.cluster.command_executor import CommandExecutor
from spark_producer.exactly_once.names import control_id
from spark_producer.exactly_once.protocol.commands import Vote, Voted
from spark_producer.exactly_once.protocol.control_record import TaskTransaction
from spark_producer.protocol import DESCRIBE_PRODUCERS, DESCRIBE_TRANSACTIONS, LIST_TRANSACTIONS, messages
from tests.fakes.scripted_client import NOW_MS, ScriptedClient

OURS = ProducerIdAndEpoch(7, 3)
TASK = TaskTransaction("pyproducer.orders.00.0", 8, 1, TransactionVersion.EXPLICIT, (Span("rows", 0, 5, 6, 2),))


@pytest.mark.parametrize("state", ["Ongoing", "CompleteAbort"])
@pytest.mark.parametrize("held", [OURS, OURS._replace(epoch=OURS.epoch + 1), ProducerIdAndEpoch(99, 0)])
def test_an_objection_names_the_driver_that_has_taken_over_as_its_cause(state: str, held: ProducerIdAndEpoch) -> None:
    """Only after an objection: otherwise no request is sent."""
    client = ScriptedClient()
    client.leaders = {("rows", 0): 2}
    asked: list[str] = []

    def answer(body: messages.DescribeTransactionsRequest) -> messages.DescribeTransactionsResponse:
        [name] = body.transactional_ids
        asked.append(name)
        ours = messages.DescribedTransaction(0, name, "Empty", 60_000, 0, *held)
        task = messages.DescribedTransaction(0, name, state, 30_000, NOW_MS, TASK.producer_id, TASK.epoch)

        return messages.DescribeTransactionsResponse(0, (ours if name == control_id("orders") else task,))

    client.scripts[DESCRIBE_TRANSACTIONS.name] = answer
    opened = messages.DescribeProducersPartition(
        0, active_producers=(messages.ActiveProducer(TASK.producer_id, TASK.epoch, current_txn_start_offset=5),)
    )
    result = messages.DescribeProducersTopicResult("rows", (opened,))
    client.answers(DESCRIBE_PRODUCERS, messages.DescribeProducersResponse(0, (result,)))
    client.answers(LIST_TRANSACTIONS, UnsupportedVersion("before Kafka 3.8"))
    cluster = CommandExecutor(cast(BlockingClient, client), "orders", "commits")
    voted = cluster.perform(Vote((TASK,), OURS))
    assert isinstance(voted, Voted)
    assert bool(voted.objections) == (state != "Ongoing")
    assert voted.overtaken == (state != "Ongoing" and held != OURS)
    assert asked.count(control_id("orders")) == len(voted.objections)
