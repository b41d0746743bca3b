"""The end of transactions: what leaders show is believed once the coordinator is done, and not before."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain, repeat
from typing import Any

import pytest

from spark_producer.common.cluster import TopicPartition
from spark_producer.common.error_codes import Code
from spark_producer.errors import KafkaTimeout
from spark_producer.exactly_once.cluster.await_markers import await_markers
from spark_producer.exactly_once.cluster.partition_state import TransactionSpan
from spark_producer.protocol import DESCRIBE_PRODUCERS, DESCRIBE_TRANSACTIONS, messages
from tests.fakes.scripted_client import TIMEOUT_S, ScriptedClient, brokers_of

OURS = TransactionSpan(7, "rows", 0, 100, 109)
COMPLETE, PREPARE = "CompleteCommit", "PrepareCommit"


class CoordinatorStates:
    """A coordinator that answers one state after the other, and a leader: where its open transaction begins, or -1."""

    def __init__(self, *states: str, producer_id: int = 7, start: Callable[[str], int] = lambda _: -1) -> None:
        self.client = ScriptedClient()
        self.client.leaders = {OURS.topic_partition: 1}
        self.client.scripts[DESCRIBE_TRANSACTIONS.name] = self._transactions
        self.client.scripts[DESCRIBE_PRODUCERS.name] = self._producers
        self._states: Iterator[str] = chain(states[:-1], repeat(states[-1]))
        self._producer_id = producer_id
        self._start = start
        self._state = ""

    def wait(self, **more: Any) -> tuple[TopicPartition, ...]:
        """Wait for the end of our transaction."""
        return await_markers(brokers_of(self.client), {"id": [OURS]}, self.client.deadline(), **more)

    @property
    def asked(self) -> list[str]:
        """Return the requests in order, without those for coordinators."""
        names = {DESCRIBE_TRANSACTIONS.name: "coordinator", DESCRIBE_PRODUCERS.name: "leader"}
        return [names[name] for name, _, _ in self.client.sent if name in names]

    def _transactions(self, body: messages.DescribeTransactionsRequest) -> messages.DescribeTransactionsResponse:
        self._state = next(self._states)
        code = 0 if self._state else Code.TRANSACTIONAL_ID_NOT_FOUND
        row = messages.DescribedTransaction(code, "id", self._state, producer_id=self._producer_id)
        return messages.DescribeTransactionsResponse(0, (row,))

    def _producers(self, body: messages.DescribeProducersRequest) -> messages.DescribeProducersResponse:
        producer = messages.ActiveProducer(7, 1, current_txn_start_offset=self._start(self._state))
        rows = (messages.DescribeProducersPartition(0, active_producers=(producer,)),)
        return messages.DescribeProducersResponse(0, (messages.DescribeProducersTopicResult("rows", rows),))


def test_a_marker_that_its_leader_shows_late_is_not_lost() -> None:
    """Neither is it at once if the coordinator has taken its time before."""
    looks = iter(range(100))
    cluster = CoordinatorStates(*[PREPARE] * 20, COMPLETE, start=lambda state: 100 if next(looks) < 3 else -1)
    assert cluster.wait() == ()
    assert cluster.asked.count("coordinator") > 20


def test_a_marker_that_a_leader_showed_before_the_coordinator_was_done_may_be_lost_yet() -> None:
    """The leader that had it died, and the next one never got it."""
    cluster = CoordinatorStates(PREPARE, PREPARE, COMPLETE, start=lambda state: 100 if state == COMPLETE else -1)
    assert cluster.wait() == (OURS.topic_partition,)


def test_the_leader_is_looked_at_once_when_the_coordinator_is_done() -> None:
    cluster = CoordinatorStates(PREPARE, PREPARE, COMPLETE)
    assert cluster.wait() == ()
    assert cluster.asked == ["coordinator", "coordinator", "coordinator", "leader"]


def test_a_coordinator_that_is_known_to_be_done_is_not_asked() -> None:
    cluster = CoordinatorStates(COMPLETE)
    assert cluster.wait(markers_written=True) == ()
    assert cluster.asked == ["leader"]
    cluster = CoordinatorStates(COMPLETE, start=lambda _: 100)
    assert cluster.wait(markers_written=True) == (OURS.topic_partition,)


@pytest.mark.parametrize(
    ("state", "producer_id"), [("", 7), (PREPARE, 8), ("Ongoing", 7)], ids=["forgotten", "another producer", "newer"]
)
def test_no_wait_for_a_coordinator_that_has_a_newer_transaction(state: str, producer_id: int) -> None:
    """The id's next transaction may be open for minutes, after our rows."""
    cluster = CoordinatorStates(state, producer_id=producer_id, start=lambda _: 110)
    assert cluster.wait() == ()
    assert cluster.asked == ["coordinator", "leader"]


def test_what_may_be_the_next_transaction_of_the_producer_is_not_taken_for_a_lost_marker() -> None:
    cluster = CoordinatorStates(*["Ongoing"] * 20, COMPLETE, start=lambda state: 90 if state == "Ongoing" else -1)
    assert cluster.wait() == ()


@pytest.mark.parametrize(
    ("leader", "reported"), [(1, "the markers of transactions in rows-0"), (-1, "a live leader of rows-0")]
)
def test_the_timeout_names_the_partitions_that_a_coordinator_waits_for(leader: int, reported: str) -> None:
    cluster = CoordinatorStates(PREPARE)
    cluster.client.leaders = {OURS.topic_partition: leader}
    began = cluster.client.clock()
    with pytest.raises(KafkaTimeout, match=reported):
        cluster.wait()
    assert cluster.client.clock() - began > TIMEOUT_S / 2
