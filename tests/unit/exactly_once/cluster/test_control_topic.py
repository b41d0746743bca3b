"""The control topic: with how many replicas it is made, and how long a record it takes in one part."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pytest

from spark_producer.common.cluster import Span, TransactionVersion
from spark_producer.errors import KafkaTimeout
from spark_producer.exactly_once.cluster import coordinator_state
from spark_producer.exactly_once.cluster.command_executor import CommandExecutor
from spark_producer.exactly_once.cluster.control_topic import ensure
from spark_producer.exactly_once.names import task_id
from spark_producer.exactly_once.protocol.commands import ControlWritten, WriteControl
from spark_producer.exactly_once.protocol.control_record import Status, TaskTransaction
from spark_producer.protocol import (
    ADD_PARTITIONS_TO_TXN,
    CREATE_TOPICS,
    DESCRIBE_CONFIGS,
    DESCRIBE_PRODUCERS,
    DESCRIBE_TRANSACTIONS,
    END_TXN,
    LIST_TRANSACTIONS,
    PRODUCE,
    messages,
)
from tests.fakes.scripted_client import ScriptedClient, brokers_of
from tests.unit.exactly_once.test_performers import CONTROL, OURS, RECORD, Log, described, ended, producing


class Starting(ScriptedClient):
    """A cluster of which one more broker starts every second; coordinators' own topic has `kept` replicas."""

    def __init__(self, kept: int, most: int) -> None:
        super().__init__()
        self.kept = kept
        self.most = most
        self.made: list[messages.CreatableTopic] = []
        self.scripts[CREATE_TOPICS.name] = self._create
        config = tuple(
            messages.DescribeConfigsResourceResult(name, value)
            for name, value in {"cleanup.policy": "compact", "max.message.bytes": "20000"}.items()
        )
        self.answers(
            DESCRIBE_CONFIGS, messages.DescribeConfigsResponse(0, (messages.DescribeConfigsResult(configs=config),))
        )

    def _create(self, body: messages.CreateTopicsRequest) -> messages.CreateTopicsResponse:
        self.made += body.topics
        self.leaders[CONTROL] = 1
        return messages.CreateTopicsResponse(topics=(messages.CreatableTopicResult(CONTROL[0]),))

    def metadata(self, topics: Sequence[str], deadline: float, node: int | None = None) -> messages.MetadataResponse:
        live = min(self.most, 1 + int(self.clock()))
        self.brokers = dict.fromkeys(range(1, live + 1), ("host", 9092))
        reported = tuple(messages.MetadataResponseBroker(each, *address) for each, address in self.brokers.items())
        rows = []
        for topic in topics:
            replicas = (
                self.kept if topic == "__transaction_state" else len(self.made) and self.made[0].replication_factor
            )
            partition = messages.MetadataResponsePartition(0, 0, 1, replica_nodes=tuple(range(1, replicas + 1)))
            rows.append(messages.MetadataResponseTopic(name=topic, partitions=(partition,) if replicas else ()))
        return messages.MetadataResponse(brokers=reported, topics=tuple(rows))


@pytest.mark.parametrize(
    ("kept", "most", "made", "in_sync"), [(3, 3, 3, "2"), (3, 5, 3, "2"), (1, 1, 1, "1"), (0, 2, 1, "1")]
)
def test_it_is_made_when_as_many_brokers_live_as_keep_what_coordinators_know(
    kept: int, most: int, made: int, in_sync: str
) -> None:
    """The topic had one replica for ever if it was made while a cluster started."""
    client = Starting(kept, most)
    assert ensure(brokers_of(client), CONTROL[0], client.deadline()).largest_batch == 20_000
    [wanted] = client.made
    assert wanted.replication_factor == made
    assert {row.name: row.value for row in wanted.configs}["min.insync.replicas"] == in_sync


def test_it_is_not_made_if_brokers_are_missing() -> None:
    client = Starting(3, 2)
    with pytest.raises(KafkaTimeout, match=r"3 brokers, as many as __transaction_state has replicas.*: 2 live"):
        ensure(brokers_of(client), CONTROL[0], client.deadline())
    assert client.made == []


@pytest.mark.parametrize(("tasks", "asked"), [(5, 0), (300, 1)])
def test_a_process_without_begin_requests_the_maximum_bytes_of_a_part(tasks: int, asked: int) -> None:
    """COMMIT is another process than BEGIN, and took the default; a topic with less refused the record."""
    client = Starting(1, 1)
    client.leaders[CONTROL] = 1
    client.made.append(messages.CreatableTopic(CONTROL[0], 1, 1))
    client.answers(ADD_PARTITIONS_TO_TXN, messages.AddPartitionsToTxnResponse())
    log = Log()
    client.scripts[PRODUCE.name] = log
    client.scripts[DESCRIBE_PRODUCERS.name] = lambda body: producing({} if client.bodies(END_TXN) else log.starts)(body)
    client.answers(END_TXN, ended())
    client.scripts[DESCRIBE_TRANSACTIONS.name] = described("CompleteCommit")
    many = tuple(
        TaskTransaction(
            task_id("orders", "a" * 32, each), each, 1, TransactionVersion.EXPLICIT, (Span("rows", each, 0, 1, 2),)
        )
        for each in range(tasks)
    )
    cluster = CommandExecutor(cast("Any", client), "orders", CONTROL[0])
    answer = cluster.perform(WriteControl(OURS, RECORD._replace(status=Status.COMMITTING, transactions=many)))
    assert answer == ControlWritten(OURS)
    sizes = [
        len(part.records or b"")
        for body in client.bodies(PRODUCE)
        for topic in body.topic_data
        for part in topic.partition_data
    ]
    assert max(sizes) <= 20_000
    assert len(client.bodies(DESCRIBE_CONFIGS)) == asked


def test_a_broker_that_has_joined_is_asked_what_is_open_there() -> None:
    client = Starting(1, 2)
    brokers = brokers_of(client)
    assert brokers.nodes(client.deadline()) == [1]
    client.pause(1)
    client.answers(LIST_TRANSACTIONS, messages.ListTransactionsResponse())
    assert coordinator_state.open_tasks(brokers, TransactionVersion.EXPLICIT, client.deadline()) == ()
    assert [node for name, node, _ in client.sent if name == LIST_TRANSACTIONS.name] == [1, 2]
