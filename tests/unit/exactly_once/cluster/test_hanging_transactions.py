"""Transactions of dead tasks whose end a partition has lost: readers wait there, so a write must not say that all is well."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from spark_producer.admin.exchange import NodeRequest, ResponseOrError
from spark_producer.common.cluster import TopicPartition
from spark_producer.common.error_codes import Code
from spark_producer.errors import KafkaTimeout
from spark_producer.exactly_once.cluster.await_markers import DEAD_TASKS_TIMEOUT_S, LOST_AFTER_S, await_markers
from spark_producer.exactly_once.cluster.control_log import ControlLog, ControlLogState
from spark_producer.exactly_once.cluster.hanging_transactions import find_hanging
from spark_producer.exactly_once.cluster.partition_state import TransactionSpan
from spark_producer.exactly_once.protocol.control_record import ControlRecord, Status
from spark_producer.exactly_once.repair.lost_markers import LostMarker, LostMarkers, find_lost_markers
from spark_producer.protocol import API_VERSIONS, DESCRIBE_PRODUCERS, DESCRIBE_TRANSACTIONS, LIST_TRANSACTIONS, messages
from tests.fakes.scripted_client import LOST, ScriptedClient, brokers_of

ROWS, ELSEWHERE, CONTROL = (
    TopicPartition("rows", 0),
    TopicPartition("rows", 1),
    TopicPartition("__pyproducer_commits", 0),
)
OURS = TransactionSpan(7, *ROWS, 100, 109)
DEAD = 8
TASK = f"pyproducer.orders.{'0' * 32}.0"


EPOCH = 3
"""The epoch of the dead task's transaction."""

LOADING = messages.ListTransactionsResponse(0, Code.COORDINATOR_LOAD_IN_PROGRESS, (), ())


class DeadTasksTransaction:
    """Our transaction is closed in its partition. That of a dead task begins there at `start`, for a number of our reads, and its
    coordinator has its id in some state, with some epoch."""

    def __init__(
        self, state: str = "CompleteAbort", start: int = 50, name: str = TASK, looks: int = 1000, epoch: int = EPOCH
    ) -> None:
        self.client = ScriptedClient()
        self.client.leaders = {ROWS: 1, ELSEWHERE: 1, CONTROL: 2}
        self.client.scripts[DESCRIBE_PRODUCERS.name] = self._producers
        self.client.scripts[DESCRIBE_TRANSACTIONS.name] = self._transactions
        self.client.scripts[LIST_TRANSACTIONS.name] = self._list
        self.client.scripts[API_VERSIONS.name] = self._versions
        self.version = 1
        self.state, self.start, self.name, self.looks, self.epoch = state, start, name, looks, epoch

    def wait(self) -> tuple[TopicPartition, ...]:
        """Wait for the end of our transaction."""
        return await_markers(brokers_of(self.client), {"id": [OURS]}, self.client.deadline())

    def _producers(self, body: messages.DescribeProducersRequest) -> messages.DescribeProducersResponse:
        self.looks -= 1
        start = self.start if self.looks >= 0 else -1
        producers = (
            messages.ActiveProducer(OURS.producer_id, 1),
            messages.ActiveProducer(DEAD, EPOCH, coordinator_epoch=5, current_txn_start_offset=start),
        )
        topics = (
            messages.DescribeProducersTopicResult(
                topic.name,
                tuple(
                    messages.DescribeProducersPartition(
                        each, active_producers=producers if (topic.name, each) == ROWS else ()
                    )
                    for each in topic.partition_indexes
                ),
            )
            for topic in body.topics
        )
        return messages.DescribeProducersResponse(0, tuple(topics))

    def _transactions(self, body: messages.DescribeTransactionsRequest) -> messages.DescribeTransactionsResponse:
        rows = (
            messages.DescribedTransaction(0, each, self.state, producer_id=DEAD, producer_epoch=self.epoch)
            if each == self.name
            else messages.DescribedTransaction(
                0, each, "CompleteCommit", producer_id=OURS.producer_id, producer_epoch=1
            )
            for each in body.transactional_ids
        )
        return messages.DescribeTransactionsResponse(0, tuple(rows))

    def _versions(self, _: messages.ApiVersionsRequest) -> messages.ApiVersionsResponse:
        keys = tuple(messages.ApiVersion(key, 0, 9) for key in (22, 61, 65, 66))
        feature = messages.FinalizedFeatureKey("transaction.version", self.version, 0)
        return messages.ApiVersionsResponse(0, keys, 0, finalized_features=(feature,))

    def _list(self, body: messages.ListTransactionsRequest) -> messages.ListTransactionsResponse:
        row = messages.ListedTransaction(self.name, DEAD, self.state)
        return messages.ListTransactionsResponse(0, 0, (), (row,) if DEAD in body.producer_id_filters else ())


def test_an_aborted_task_before_our_rows_counts_as_a_lost_marker() -> None:
    cluster = DeadTasksTransaction()
    began = cluster.client.clock()
    assert cluster.wait() == (ROWS,)
    assert cluster.client.clock() - began >= LOST_AFTER_S


@pytest.mark.parametrize("state", ["Ongoing", "PrepareAbort", "PrepareCommit", "PrepareEpochFence"])
def test_an_open_transaction_of_a_live_task_does_not_hang(state: str) -> None:
    cluster = DeadTasksTransaction(state)
    assert cluster.wait() == ()
    assert cluster.client.clock() < LOST_AFTER_S


@pytest.mark.parametrize(
    "name",
    ["shop", *(f"pyproducer.{sink}.{what}" for sink in ("orders.eu", "sales") for what in ("ctl", f"{'0' * 32}.0"))],
)
def test_strangers_are_left_alone(name: str) -> None:
    cluster = DeadTasksTransaction(name=name)
    assert cluster.wait() == ()
    described = [each for body in cluster.client.bodies(DESCRIBE_TRANSACTIONS) for each in body.transactional_ids]
    assert name not in described


def test_a_dead_driver_is_no_stranger() -> None:
    assert DeadTasksTransaction(name="pyproducer.orders.ctl").wait() == (ROWS,)


def test_a_transaction_after_our_rows_does_not_block_their_readers() -> None:
    cluster = DeadTasksTransaction(start=110)
    assert cluster.wait() == ()
    assert cluster.client.bodies(LIST_TRANSACTIONS) == []


def test_no_request_for_ids_without_open_transactions() -> None:
    cluster = DeadTasksTransaction(start=-1)
    assert cluster.wait() == ()
    assert cluster.client.bodies(LIST_TRANSACTIONS) == []
    assert len(cluster.client.bodies(DESCRIBE_PRODUCERS)) == 1


def test_a_marker_that_comes_late_is_not_lost() -> None:
    assert DeadTasksTransaction(looks=4).wait() == ()


@pytest.mark.parametrize("answer", [LOST, LOADING], ids=["no answer", "loading"])
def test_a_coordinator_that_does_not_answer_proves_nothing_and_delays_no_write_for_long(
    answer: Any, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = DeadTasksTransaction()
    requested_at: list[float] = []

    def list_transactions(_: messages.ListTransactionsRequest) -> Any:
        requested_at.append(cluster.client.clock())
        return answer

    cluster.client.scripts[LIST_TRANSACTIONS.name] = list_transactions
    assert cluster.wait() == ()
    assert cluster.client.clock() - requested_at[0] <= DEAD_TASKS_TIMEOUT_S
    assert "it could not be checked whether a dead task left it" in caplog.text


def test_a_coordinator_that_loads_for_a_moment_is_asked_again() -> None:
    cluster = DeadTasksTransaction()
    row = messages.ListedTransaction(TASK, DEAD, "CompleteAbort")
    cluster.client.answers(LIST_TRANSACTIONS, LOADING, LOADING, messages.ListTransactionsResponse(0, 0, (), (row,)))
    assert cluster.wait() == (ROWS,)


def test_a_broker_that_has_joined_since_is_asked() -> None:
    cluster = DeadTasksTransaction()
    brokers = brokers_of(cluster.client)
    brokers.leaders([ROWS], cluster.client.deadline())
    cluster.client.brokers = {1: ("one", 9092)}
    assert await_markers(brokers, {"id": [OURS]}, cluster.client.deadline()) == (ROWS,)
    assert {node for name, node, _ in cluster.client.sent if name == LIST_TRANSACTIONS.name} == {1, 2}


def test_a_deposed_leader_is_not_believed() -> None:
    """The leader was deposed after its first response, and does not know it. The new one shows the end."""
    cluster = DeadTasksTransaction()
    client = cluster.client
    request_all = client.request_all

    def deposed(calls: Sequence[NodeRequest], deadline: float) -> list[ResponseOrError]:
        answers = request_all(calls, deadline)
        for at, call in enumerate(calls):
            if call.api is DESCRIBE_PRODUCERS:
                client.leaders[ROWS] = 2
                cluster.start = 50 if call.node == 1 else -1
                answers[at] = client.scripts[call.api.name](call.body)
        return answers

    client.request_all = deposed  # type: ignore[method-assign]
    assert cluster.wait() == ()


def test_with_little_time_left_a_write_that_is_carried_out_does_not_fail(caplog: pytest.LogCaptureFixture) -> None:
    cluster = DeadTasksTransaction()
    assert await_markers(brokers_of(cluster.client), {"id": [OURS]}, cluster.client.clock() + 2) == ()
    assert "timed out waiting for the end of the transactions of dead tasks" in caplog.text


@pytest.mark.parametrize("state", ["CompleteCommit", "CompleteAbort", "Ongoing", "Empty"])
def test_the_id_was_taken_over_since(state: str) -> None:
    """The next transaction of the id, with a newer epoch, says nothing of the dead one's but that it is over."""
    assert DeadTasksTransaction(state, epoch=EPOCH + 1).wait() == (ROWS,)


@pytest.mark.parametrize("state", ["CompleteAbort", "Empty", "Ongoing"])
def test_a_coordinator_that_was_deposed_knows_an_older_epoch(state: str) -> None:
    assert DeadTasksTransaction(state, epoch=EPOCH - 1).wait() == ()


def test_a_producer_of_ours_may_have_left_another_partition_open_before() -> None:
    cluster = DeadTasksTransaction()
    own = {"id": [OURS], TASK: [TransactionSpan(DEAD, *ELSEWHERE, 0, 9)]}
    assert await_markers(brokers_of(cluster.client), own, cluster.client.deadline()) == (ROWS,)


def test_no_search_for_dead_tasks_where_no_task_writes() -> None:
    cluster = DeadTasksTransaction()
    deadline = cluster.client.deadline()
    assert await_markers(brokers_of(cluster.client), {"id": [OURS]}, deadline, without_tasks={ROWS}) == ()
    assert cluster.client.bodies(LIST_TRANSACTIONS) == []


def test_nothing_is_reported_without_the_right_to_see_producers() -> None:
    cluster = DeadTasksTransaction()
    assert find_hanging(brokers_of(cluster.client), {ROWS: None}, (), cluster.client.deadline()) == ()
    assert cluster.client.sent == []


def people_see(
    cluster: DeadTasksTransaction, inline: tuple[TopicPartition, ...], more: tuple[TopicPartition, ...]
) -> LostMarkers:
    brokers = brokers_of(cluster.client)
    record = ControlRecord("orders", "q", Status.DONE, 0, 0, "t", (), inline)
    log = ControlLog(brokers, CONTROL[0])
    return find_lost_markers(
        brokers, log, CONTROL, ControlLogState(record, OURS.producer_id, 1, (), 1), cluster.client.deadline(), more
    )


@pytest.mark.parametrize("state", ["CompleteAbort", "CompleteCommit", "Ongoing", "Empty"])
@pytest.mark.parametrize(("inline", "more"), [((ROWS,), ()), ((), (ROWS,))], ids=["last batch", "another partition"])
def test_describe_shows_it_and_repair_may_abort_it(
    state: str, inline: tuple[TopicPartition, ...], more: tuple[TopicPartition, ...]
) -> None:
    """A coordinator's state with a newer epoch belongs to the id's next transaction."""
    found = people_see(DeadTasksTransaction(state, epoch=EPOCH + 1), inline, more)
    assert found.markers == (LostMarker(ROWS, DEAD, EPOCH, 5, 50, False),)


@pytest.mark.parametrize(("version", "newer", "commit"), [(1, 0, None), (1, 1, False), (2, 1, None), (2, 2, False)])
def test_what_the_coordinator_has_committed_itself_is_no_dead_tasks(
    version: int, newer: int, commit: bool | None
) -> None:
    """With transaction.version 2 the end of a transaction has the next epoch."""
    cluster = DeadTasksTransaction("CompleteCommit", epoch=EPOCH + newer)
    cluster.version = version
    assert [each.commit for each in people_see(cluster, (ROWS,), ()).markers] == [commit]


def test_describe_fails_while_a_coordinator_loads() -> None:
    cluster = DeadTasksTransaction()
    cluster.client.answers(LIST_TRANSACTIONS, LOADING)
    with pytest.raises(KafkaTimeout, match="the list of open transactions"):
        people_see(cluster, (ROWS,), ())
