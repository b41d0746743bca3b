"""Transactions of dead tasks whose end a partition has lost: readers wait there, so a write must not say that all is well."""

from __future__ import annotations

import pytest

from spark_producer.codes import Code
from spark_producer.exactly_once.abandoned import abandoned
from spark_producer.exactly_once.closure import LOST_AFTER_S, wait_for_ends
from spark_producer.exactly_once.control_log import ControlLog, Seen
from spark_producer.exactly_once.control_record import ControlRecord, Status
from spark_producer.exactly_once.lost import Lost, lost_ends
from spark_producer.exactly_once.partition_state import Stretch
from spark_producer.protocol import DESCRIBE_PRODUCERS, DESCRIBE_TRANSACTIONS, LIST_TRANSACTIONS, messages
from tests.unit.exactly_once.scripted_brokers import LOST, ScriptedClient, brokers_of

ROWS, CONTROL = ("rows", 0), ("__pyproducer_commits", 0)
OURS = Stretch(7, *ROWS, 100, 109)
DEAD = 8
TASK = f"pyproducer.orders.{'0' * 32}.0"


class Cluster:
    """Our transaction is closed in its partition. That of a dead task begins there at `start`, for so many looks of ours."""

    def __init__(self, state: str = "CompleteAbort", start: int = 50, name: str = TASK, looks: int = 1000) -> None:
        self.client = ScriptedClient()
        self.client.leaders = {ROWS: 1, CONTROL: 2}
        self.client.scripts[DESCRIBE_PRODUCERS.name] = self._producers
        self.client.scripts[DESCRIBE_TRANSACTIONS.name] = self._transactions
        self.client.scripts[LIST_TRANSACTIONS.name] = self._list
        self.state, self.start, self.name, self.looks = state, start, name, looks

    def wait(self) -> tuple[tuple[str, int], ...]:
        """Wait for the end of our transaction."""
        return wait_for_ends(brokers_of(self.client), {"id": [OURS]}, self.client.deadline())

    def _producers(self, body: messages.DescribeProducersRequest) -> messages.DescribeProducersResponse:
        self.looks -= 1
        start = self.start if self.looks >= 0 else -1
        producers = (
            messages.ActiveProducer(OURS.producer_id, 1),
            messages.ActiveProducer(DEAD, 3, coordinator_epoch=5, current_txn_start_offset=start),
        )
        topics = (
            messages.DescribeProducersTopicResult(
                topic.name,
                tuple(
                    messages.DescribeProducersPartition(
                        each, active_producers=producers if topic.name == "rows" else ()
                    )
                    for each in topic.partition_indexes
                ),
            )
            for topic in body.topics
        )
        return messages.DescribeProducersResponse(0, tuple(topics))

    def _transactions(self, body: messages.DescribeTransactionsRequest) -> messages.DescribeTransactionsResponse:
        rows = (
            messages.DescribedTransaction(0, each, self.state, producer_id=DEAD)
            if each == self.name
            else messages.DescribedTransaction(0, each, "CompleteCommit", producer_id=OURS.producer_id)
            for each in body.transactional_ids
        )
        return messages.DescribeTransactionsResponse(0, tuple(rows))

    def _list(self, body: messages.ListTransactionsRequest) -> messages.ListTransactionsResponse:
        row = messages.ListedTransaction(self.name, DEAD, self.state)
        return messages.ListTransactionsResponse(0, 0, (), (row,) if DEAD in body.producer_id_filters else ())


def test_readers_who_wait_behind_an_aborted_task_have_not_seen_the_end_of_ours() -> None:
    cluster = Cluster()
    began = cluster.client.clock()
    assert cluster.wait() == (ROWS,)
    assert cluster.client.clock() - began >= LOST_AFTER_S


@pytest.mark.parametrize("state", ["Ongoing", "PrepareAbort", "PrepareCommit", "PrepareEpochFence"])
def test_a_task_that_is_alive_is_not_abandoned(state: str) -> None:
    cluster = Cluster(state)
    assert cluster.wait() == ()
    assert cluster.client.clock() < LOST_AFTER_S


@pytest.mark.parametrize(
    "name", ["shop", "pyproducer.orders.ctl", f"pyproducer.orders.eu.{'0' * 32}.0", f"pyproducer.sales.{'0' * 32}.0"]
)
def test_strangers_are_left_alone(name: str) -> None:
    cluster = Cluster(name=name)
    assert cluster.wait() == ()
    described = [each for body in cluster.client.bodies(DESCRIBE_TRANSACTIONS) for each in body.transactional_ids]
    assert name not in described


def test_what_begins_behind_our_rows_does_not_hold_their_readers() -> None:
    cluster = Cluster(start=110)
    assert cluster.wait() == ()
    assert cluster.client.bodies(LIST_TRANSACTIONS) == []


def test_nobody_is_asked_for_ids_where_nothing_is_open() -> None:
    cluster = Cluster(start=-1)
    assert cluster.wait() == ()
    assert cluster.client.bodies(LIST_TRANSACTIONS) == []
    assert len(cluster.client.bodies(DESCRIBE_PRODUCERS)) == 1


def test_a_marker_that_comes_late_is_not_lost() -> None:
    assert Cluster(looks=4).wait() == ()


def test_a_coordinator_that_does_not_answer_proves_nothing() -> None:
    cluster = Cluster()
    cluster.client.answers(LIST_TRANSACTIONS, LOST)
    assert cluster.wait() == ()
    cluster.client.answers(
        LIST_TRANSACTIONS, messages.ListTransactionsResponse(0, Code.COORDINATOR_LOAD_IN_PROGRESS, (), ())
    )
    assert cluster.wait() == ()


def test_where_producers_may_not_be_seen_nothing_is_told() -> None:
    cluster = Cluster()
    assert abandoned(brokers_of(cluster.client), {ROWS: None}, (), cluster.client.deadline(), 0) == ()
    assert cluster.client.sent == []


@pytest.mark.parametrize(
    ("state", "commit"), [("CompleteAbort", False), ("CompleteCommit", True), ("Empty", None)], ids=str
)
def test_people_are_told_of_it_and_may_mend_it(state: str, commit: bool | None) -> None:
    cluster = Cluster(state)
    brokers = brokers_of(cluster.client)
    record = ControlRecord("orders", "q", Status.DONE, 0, 0, "t", (), (ROWS,))
    found = lost_ends(
        brokers,
        ControlLog(brokers, CONTROL[0]),
        CONTROL,
        Seen(record, OURS.producer_id, ()),
        cluster.client.deadline(),
    )
    assert found.lost == (Lost(ROWS, DEAD, 3, 5, 50, commit),)
