"""What people are shown of a cluster whose brokers know less than others, or tell the user less than all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest

from spark_producer.codes import Code
from spark_producer.errors import ExactlyOnceError
from spark_producer.exactly_once.coordinator_state import open_by_sink
from spark_producer.exactly_once.names import control_id, task_id
from spark_producer.exactly_once.survey import MISSING_AFTER, list_sinks, survey
from spark_producer.protocol import (
    DESCRIBE_TRANSACTIONS,
    LIST_OFFSETS,
    LIST_TRANSACTIONS,
    messages,
)
from spark_producer.tools.parallel import ParallelClient
from tests.unit.exactly_once.scripted_brokers import ScriptedClient, brokers_of
from tests.unit.exactly_once.test_performers import described

WORKER = "0" * 32


class Late(ScriptedClient):
    """Its brokers do not know the control topic until `known_at`, and nothing lies in it."""

    def __init__(self, known_at: float) -> None:
        super().__init__()
        self._known_at = known_at
        self.leaders = {("commits", 0): 1}
        self.scripts[DESCRIBE_TRANSACTIONS.name] = described()
        self.scripts[LIST_OFFSETS.name] = offsets_of(0, 0)
        self.answers(LIST_TRANSACTIONS, messages.ListTransactionsResponse())

    def metadata(self, topics: Sequence[str], deadline: float, node: int | None = None) -> messages.MetadataResponse:
        told = super().metadata(topics, deadline, node)
        if self.clock() >= self._known_at:
            return told
        unknown = int(Code.UNKNOWN_TOPIC_OR_PARTITION)
        return told._replace(topics=tuple(messages.MetadataResponseTopic(unknown, each) for each in topics))


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


def test_a_control_topic_that_is_not_there_is_said_so_after_a_second() -> None:
    """It took five, and said that a broker were to be started."""
    client = Late(known_at=1e9)
    with pytest.raises(ExactlyOnceError, match="there is no topic 'commits'"):
        survey(brokers_of(client), "commits")
    assert MISSING_AFTER <= client.clock() < MISSING_AFTER + 0.5
    told = list_sinks(cast("ParallelClient", client), "commits")
    assert told.lines == ()
    assert "there is no topic 'commits'" in str(told.missing)


def test_a_control_topic_that_was_just_made_is_waited_for() -> None:
    client = Late(known_at=0.4)
    assert survey(brokers_of(client), "commits").seen.record is None
    assert client.clock() < MISSING_AFTER


def test_open_transactions_are_told_by_sink_and_those_of_strangers_left_out() -> None:
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
