"""Transactions that count as ended with a lost marker, and how they were ended."""

from __future__ import annotations

from typing import Any

import pytest

from spark_producer.common.cluster import Span, TransactionVersion
from spark_producer.common.error_codes import Code
from spark_producer.exactly_once.cluster.control_log import ControlLog, ControlLogState
from spark_producer.exactly_once.protocol.control_record import ControlRecord, Status, TaskTransaction
from spark_producer.exactly_once.repair.lost_markers import LostMarker, LostMarkers, find_lost_markers
from spark_producer.protocol import DESCRIBE_PRODUCERS, DESCRIBE_TRANSACTIONS, messages
from tests.fakes.scripted_client import ScriptedClient, brokers_of
from tests.unit.exactly_once.test_performers import CONTROL, OURS, ROWS, described, producing

TASK = TaskTransaction(
    f"pyproducer.orders.{'0' * 32}.0", OURS.producer_id, 3, TransactionVersion.EXPLICIT, (Span(*ROWS, 5, 6, 2),)
)
DECIDED = ControlRecord("orders", "q", Status.COMMITTING, 0, -1, "t", (TASK,))
INLINE = ControlRecord("orders", "q", Status.DONE, 0, 0, "t", (), (ROWS,))


def found(client: ScriptedClient, seen: ControlLogState) -> LostMarkers:
    client.leaders = {ROWS: 2, CONTROL: 1}
    brokers = brokers_of(client)
    return find_lost_markers(brokers, ControlLog(brokers, CONTROL[0]), CONTROL, seen, client.deadline())


@pytest.mark.parametrize(
    ("state", "newer", "commit"),
    [
        ("CompleteAbort", 0, False),
        ("CompleteAbort", 1, False),  # by a fence, or by its timeout
        ("CompleteAbort", 2, True),  # that was the id's next transaction
        ("CompleteCommit", 0, True),
        ("Empty", 1, True),
        ("Dead", 0, True),
    ],
)
def test_a_decided_transaction_that_its_coordinator_has_aborted_is_not_committed_in_one_partition(
    state: str, newer: int, commit: bool
) -> None:
    client = ScriptedClient()
    client.scripts[DESCRIBE_PRODUCERS.name] = producing({ROWS: 5})
    client.scripts[DESCRIBE_TRANSACTIONS.name] = described(
        state, producer_id=OURS.producer_id, producer_epoch=TASK.epoch + newer
    )
    assert found(client, ControlLogState(DECIDED, 99, 0, ())).markers == (
        LostMarker(ROWS, OURS.producer_id, OURS.epoch, 0, 5, commit),
    )


def test_a_write_that_goes_on_has_not_lost_its_end() -> None:
    """The record that was undecided when the log was read is decided, and the sink writes the next one."""
    client = ScriptedClient()
    client.scripts[DESCRIBE_PRODUCERS.name] = producing({CONTROL: 2})
    client.scripts[DESCRIBE_TRANSACTIONS.name] = described("CompleteCommit", producer_id=OURS.producer_id)
    undecided = (OURS.producer_id, OURS.epoch, 0, 0)
    assert found(client, ControlLogState(None, -1, -1, (undecided,))).markers == ()


def test_a_write_that_begins_while_the_coordinator_is_asked_has_not_lost_its_end() -> None:
    client = ScriptedClient()
    starts = [producing({ROWS: 4}), producing({ROWS: 9})]

    def one_after_the_other(body: Any) -> messages.DescribeProducersResponse:
        answer: messages.DescribeProducersResponse = (starts.pop(0) if len(starts) > 1 else starts[0])(body)
        return answer

    client.scripts[DESCRIBE_PRODUCERS.name] = one_after_the_other
    client.scripts[DESCRIBE_TRANSACTIONS.name] = described("CompleteCommit", producer_id=OURS.producer_id)
    assert found(client, ControlLogState(INLINE, OURS.producer_id, OURS.epoch, ())).markers == ()


def test_rows_that_came_with_the_record_and_stay_open_have_lost_their_end() -> None:
    client = ScriptedClient()
    client.scripts[DESCRIBE_PRODUCERS.name] = producing({ROWS: 4})
    client.scripts[DESCRIBE_TRANSACTIONS.name] = described("Empty", producer_id=OURS.producer_id)
    lost = LostMarker(ROWS, OURS.producer_id, OURS.epoch, 0, 4, True)
    assert found(client, ControlLogState(INLINE, OURS.producer_id, OURS.epoch, ())).markers == (lost,)


def test_a_partition_whose_producers_may_not_be_seen_is_named() -> None:
    """`repair` said that nothing was lost there."""
    client = ScriptedClient()
    hidden = messages.DescribeProducersPartition(ROWS[1], Code.TOPIC_AUTHORIZATION_FAILED)
    answer = messages.DescribeProducersResponse(0, (messages.DescribeProducersTopicResult(ROWS[0], (hidden,)),))
    client.answers(DESCRIBE_PRODUCERS, answer)
    assert found(client, ControlLogState(DECIDED, 99, 0, ())) == LostMarkers((), (ROWS,))
