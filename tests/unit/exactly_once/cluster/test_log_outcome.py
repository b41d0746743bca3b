"""The fate of a transaction in one partition, from the answers of its leader."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import pytest

from spark_producer.common.cluster import Span, TransactionVersion
from spark_producer.errors import KafkaTimeout
from spark_producer.exactly_once.cluster.broker_requests import GONE_AFTER_S, RetryUntil, TransactionAdmin
from spark_producer.exactly_once.cluster.log_outcome import _await_marker_after, read_outcomes
from spark_producer.exactly_once.cluster.partition_state import TransactionSpan
from spark_producer.exactly_once.protocol.commands import TransactionOutcome
from spark_producer.exactly_once.protocol.control_record import TaskTransaction
from spark_producer.protocol import DESCRIBE_PRODUCERS, DESCRIBE_TRANSACTIONS, FETCH, LIST_OFFSETS
from spark_producer.protocol.messages import (
    DescribedTransaction,
    DescribeProducersPartition,
    DescribeProducersResponse,
    DescribeProducersTopicResult,
    DescribeTransactionsResponse,
    FetchPartitionResponse,
    FetchResponse,
    FetchTopicResponse,
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from spark_producer.record.control import EndMarker, end_marker_batch
from tests.fakes.scripted_client import ScriptedClient, brokers_of

PRODUCER, MARKER = 7, 10
SPAN = TransactionSpan(PRODUCER, "orders", 0, 0, MARKER - 1)


class Leader:
    """A leader's high watermark is below the marker in a number of responses, as long as the replicas have not fetched it."""

    def __init__(self, late: int, *, commits: bool = True) -> None:
        self.late = late
        self.commits = commits
        self.time = 0.0
        self.client = self

    on_wait = None

    def clock(self) -> float:
        return self.time

    def pause(self, seconds: float) -> None:
        self.time += seconds

    def attempts(self, deadline: float, waiting_for: str) -> Iterator[int]:
        return iter(RetryUntil(cast(Any, self), "sink", deadline, waiting_for))

    def request_leaders(self, partitions: Any, question: Any, rows_of: Any, deadline: float) -> dict[Any, Any]:
        self.late -= 1
        if self.late >= 0:
            return {("orders", 0): FetchPartitionResponse(high_watermark=MARKER, records=memoryview(b""))}
        marker = bytearray(
            end_marker_batch(EndMarker(self.commits, 0), producer_id=PRODUCER, producer_epoch=0, timestamp=0)
        )
        marker[:8] = MARKER.to_bytes(8, "big")  # the base offset is outside of the checksum
        return {("orders", 0): FetchPartitionResponse(high_watermark=MARKER + 1, records=memoryview(marker))}


@pytest.mark.parametrize("late", [0, 1, 5])
@pytest.mark.parametrize(
    ("commits", "outcome"), [(True, TransactionOutcome.COMMITTED), (False, TransactionOutcome.ABORTED)]
)
def test_a_marker_that_the_replicas_do_not_have_yet_is_waited_for(
    late: int, commits: bool, outcome: TransactionOutcome
) -> None:
    """The marker was taken for lost, and a correct write ended as HUNG, without a partition to name."""
    leader = Leader(late, commits=commits)
    assert _await_marker_after(cast(TransactionAdmin, leader), SPAN, 60.0) is outcome


def test_replicas_that_do_not_come_are_named() -> None:
    with pytest.raises(KafkaTimeout, match="the replicas of orders-0: a marker is on its way"):
        _await_marker_after(cast(TransactionAdmin, Leader(late=10_000)), SPAN, 5.0)


TASK = TaskTransaction(
    "pyproducer.orders.00.0", PRODUCER, 1, TransactionVersion.EXPLICIT, (Span("orders", 0, 5, 6, 2),)
)


def looking(start: int, end: int) -> tuple[ScriptedClient, TransactionOutcome]:
    """Return the outcome of a transaction with rows at 5 and 6, by a leader that knows neither it nor its producer."""
    client = ScriptedClient()
    client.leaders = {("orders", 0): 1}
    unknown = DescribeProducersTopicResult("orders", (DescribeProducersPartition(0),))
    client.answers(DESCRIBE_PRODUCERS, DescribeProducersResponse(0, (unknown,)))
    done = DescribedTransaction(0, TASK.transactional_id, "CompleteCommit", producer_id=PRODUCER)
    client.answers(DESCRIBE_TRANSACTIONS, DescribeTransactionsResponse(0, (done,)))

    def fetch(body: Any) -> FetchResponse:
        position = body.topics[0].partitions[0].fetch_offset
        code = 0 if start <= position <= end else 1
        return FetchResponse(
            responses=(FetchTopicResponse("orders", partitions=(FetchPartitionResponse(0, code, end, end),)),)
        )

    client.scripts[FETCH.name] = fetch
    row = ListOffsetsPartitionResponse(0, offset=start)
    client.answers(LIST_OFFSETS, ListOffsetsResponse(0, (ListOffsetsTopicResponse("orders", (row,)),)))
    [outcome] = read_outcomes(brokers_of(client), [TASK], (), client.deadline()).outcomes
    return client, outcome


def test_rows_before_the_start_of_the_log_were_taken_by_retention() -> None:
    client, outcome = looking(start=7, end=10)
    assert outcome is TransactionOutcome.UNKNOWN
    assert client.clock() < 1


def test_rows_after_the_end_of_the_log_are_gone() -> None:
    """The gap was taken for retention, and a batch without its rows became DONE."""
    client, outcome = looking(start=0, end=2)
    assert outcome is TransactionOutcome.MIXED
    assert client.clock() >= GONE_AFTER_S, "it may be that of a leader which was deposed"
