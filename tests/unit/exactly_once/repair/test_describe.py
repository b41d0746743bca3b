"""The description of a cluster whose brokers have less metadata than others, or hide a part from the user."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest

from spark_producer.admin import BlockingClient
from spark_producer.common.cluster import TopicPartition
from spark_producer.common.error_codes import Code
from spark_producer.errors import ExactlyOnceError
from spark_producer.exactly_once.cluster.coordinator_state import open_by_sink
from spark_producer.exactly_once.names import control_id, task_id
from spark_producer.exactly_once.repair.describe import (
    MISSING_AFTER_S,
    BlockingProducer,
    describe_sink,
    find_blocked_readers,
    list_sinks,
)
from spark_producer.protocol import (
    DESCRIBE_PRODUCERS,
    DESCRIBE_TRANSACTIONS,
    LIST_OFFSETS,
    LIST_TRANSACTIONS,
    messages,
)
from tests.fakes.scripted_client import NOW_MS, ScriptedClient, brokers_of
from tests.unit.exactly_once.test_performers import described

ROWS = TopicPartition("rows", 0)
WORKER = "0" * 32


class Late(ScriptedClient):
    """A cluster whose brokers do not know the control topic until `known_at`, and have no record in it."""

    def __init__(self, known_at: float) -> None:
        super().__init__()
        self._known_at = known_at
        self.leaders = {("commits", 0): 1}
        self.scripts[DESCRIBE_TRANSACTIONS.name] = described()
        self.scripts[LIST_OFFSETS.name] = offsets_of(0, 0)
        self.answers(LIST_TRANSACTIONS, messages.ListTransactionsResponse())

    def metadata(self, topics: Sequence[str], deadline: float, node: int | None = None) -> messages.MetadataResponse:
        reported = super().metadata(topics, deadline, node)
        if self.clock() >= self._known_at:
            return reported
        unknown = int(Code.UNKNOWN_TOPIC_OR_PARTITION)
        return reported._replace(topics=tuple(messages.MetadataResponseTopic(unknown, each) for each in topics))


def offsets_of(stable: int, end: int) -> Callable[[Any], Any]:
    """All partitions have these."""

    def answer(body: messages.ListOffsetsRequest) -> messages.ListOffsetsResponse:
        offset = stable if body.isolation_level else end
        rows = (
            messages.ListOffsetsTopicResponse(
                topic.name,
                tuple(
                    messages.ListOffsetsPartitionResponse(each.partition_index, offset=offset)
                    for each in topic.partitions
                ),
            )
            for topic in body.topics
        )
        return messages.ListOffsetsResponse(topics=tuple(rows))

    return answer


def held_by_a_stranger() -> ScriptedClient:
    """A cluster in which producer 82 holds the readers of a partition, with the id `billing-1`."""
    client = ScriptedClient()
    client.leaders = {ROWS: 1}
    client.scripts[LIST_OFFSETS.name] = offsets_of(3, 4)
    holder = messages.ActiveProducer(82, 0, current_txn_start_offset=3)
    partition = messages.DescribeProducersPartition(0, active_producers=(holder,))
    topic = messages.DescribeProducersTopicResult(ROWS[0], (partition,))
    client.answers(DESCRIBE_PRODUCERS, messages.DescribeProducersResponse(topics=(topic,)))
    listed = messages.ListedTransaction("billing-1", 82, "Ongoing"), messages.ListedTransaction("other", 83, "Ongoing")
    client.answers(LIST_TRANSACTIONS, messages.ListTransactionsResponse(transaction_states=listed))
    begun = {"transaction_timeout_ms": 60_000, "transaction_start_time_ms": NOW_MS - 9_000}
    client.scripts[DESCRIBE_TRANSACTIONS.name] = described("Ongoing", producer_id=82, **begun)
    return client


def test_a_missing_control_topic_is_reported_after_a_second() -> None:
    """The command took five seconds, and advised to start a broker."""
    client = Late(known_at=1e9)
    with pytest.raises(ExactlyOnceError, match="there is no topic 'commits'"):
        describe_sink(brokers_of(client), "commits")
    assert MISSING_AFTER_S <= client.clock() < MISSING_AFTER_S + 0.5
    reported = list_sinks(cast("BlockingClient", client), "commits")
    assert reported.lines == ()
    assert "there is no topic 'commits'" in str(reported.missing)


def test_a_control_topic_that_was_just_made_is_waited_for() -> None:
    client = Late(known_at=0.4)
    assert describe_sink(brokers_of(client), "commits").log_state.record is None
    assert client.clock() < MISSING_AFTER_S


def test_who_holds_readers_back_is_named_with_its_transaction() -> None:
    [held] = find_blocked_readers(brokers_of(held_by_a_stranger()), [ROWS], 10.0)
    assert held[:3] == (ROWS, 3, 4)
    [(producer_id, epoch, first, transaction)] = held.producers or ()
    assert (producer_id, epoch, first) == (82, 0, 3)
    assert transaction is not None
    assert transaction[:4] == ("billing-1", "Ongoing", 9_000, 60_000)


def test_without_the_right_to_see_the_transaction_its_producer_is_shown_all_the_same() -> None:
    client = held_by_a_stranger()
    refused = int(Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    client.scripts[DESCRIBE_TRANSACTIONS.name] = described(error_code=refused)
    [held] = find_blocked_readers(brokers_of(client), [ROWS], 10.0)
    assert held.producers == (BlockingProducer(82, 0, 3, None),)


def test_brokers_that_do_not_list_the_id_leave_it_with_the_producer() -> None:
    client = held_by_a_stranger()
    client.answers(LIST_TRANSACTIONS, messages.ListTransactionsResponse())
    [held] = find_blocked_readers(brokers_of(client), [ROWS], 10.0)
    assert held.producers == (BlockingProducer(82, 0, 3, None),)


def test_a_transaction_of_the_same_id_and_another_producer_is_not_taken_for_it() -> None:
    client = held_by_a_stranger()
    client.scripts[DESCRIBE_TRANSACTIONS.name] = described("Ongoing", producer_id=99)
    [held] = find_blocked_readers(brokers_of(client), [ROWS], 10.0)
    assert held.producers == (BlockingProducer(82, 0, 3, None),)


def test_open_transactions_are_listed_by_sink_without_foreign_ones() -> None:
    """Brokers before 4.1 know no patterns, and list all there are; a listed one may have ended since."""
    client = ScriptedClient()
    ids = [task_id("orders.eu", WORKER, 1), task_id("orders", WORKER, 0), control_id("orders"), "billing-1"]
    ids.append(task_id("days", WORKER, 0))
    listed = tuple(messages.ListedTransaction(each, 1, "Ongoing") for each in ids)
    client.answers(LIST_TRANSACTIONS, messages.ListTransactionsResponse(transaction_states=listed))

    def state(body: messages.DescribeTransactionsRequest) -> messages.DescribeTransactionsResponse:
        rows = (
            messages.DescribedTransaction(0, each, "CompleteAbort" if each == ids[-1] else "Ongoing")
            for each in body.transactional_ids
        )
        return messages.DescribeTransactionsResponse(0, tuple(rows))

    client.scripts[DESCRIBE_TRANSACTIONS.name] = state
    assert open_by_sink(brokers_of(client), 10.0) == {"orders": (ids[1], ids[2]), "orders.eu": (ids[0],)}
    assert "billing-1" not in client.bodies(DESCRIBE_TRANSACTIONS)[0].transactional_ids
