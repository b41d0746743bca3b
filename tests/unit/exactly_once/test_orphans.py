"""COMMIT aborts the open transactions of dead tasks if their coordinator can be reached."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, cast

import pytest

from spark_producer.errors import KafkaTimeout
from spark_producer.exactly_once.cluster.command_executor import CommandExecutor
from spark_producer.exactly_once.driver import LISTING_TIMEOUT_S, perform_commit
from spark_producer.exactly_once.protocol.commands import (
    Command,
    EndTasks,
    Fence,
    Found,
    ListOpen,
    Opened,
    ReadControl,
    Result,
    TasksEnded,
)
from spark_producer.protocol import DESCRIBE_TRANSACTIONS, INIT_PRODUCER_ID, LIST_OFFSETS, LIST_TRANSACTIONS, messages
from tests.fakes.scripted_client import LOST, TIMEOUT_S, ScriptedClient
from tests.unit.exactly_once.script import ONE
from tests.unit.exactly_once.test_performers import CONTROL, described


class UnansweredCommands:
    """Stands in for `CommandExecutor`: no command gets a response."""

    sink = "orders"

    def __init__(self) -> None:
        self.seconds: list[float | None] = []

    def perform(self, command: Command, seconds: float | None = None) -> Result:
        self.seconds.append(seconds)
        raise KafkaTimeout(f"no answer to {type(command).__name__}")


def test_a_committed_batch_does_not_fail_because_orphans_stay_open(caplog: pytest.LogCaptureFixture) -> None:
    cluster = cast("CommandExecutor", UnansweredCommands())
    with caplog.at_level(logging.WARNING):
        answer = perform_commit(cluster, EndTasks((ONE,), commit=False))
    assert isinstance(answer, TasksEnded)
    assert "pyproducer txn resolve" in caplog.text
    with pytest.raises(KafkaTimeout):
        perform_commit(cluster, EndTasks((ONE,), commit=True))


def test_a_commit_continues_if_brokers_do_not_list_open_transactions_in_time(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cluster = UnansweredCommands()
    with caplog.at_level(logging.WARNING):
        answer = perform_commit(cast("CommandExecutor", cluster), ListOpen((ONE,)))
    assert answer == Opened(())
    assert "no answer to ListOpen" in caplog.text
    assert cluster.seconds == [LISTING_TIMEOUT_S]


def test_a_timeout_of_a_command_is_shorter_than_that_of_the_client() -> None:
    client = ScriptedClient()
    client.answers(LIST_TRANSACTIONS, LOST)
    with pytest.raises(KafkaTimeout, match="the list of open transactions"):
        CommandExecutor(cast("Any", client), "orders", "commits").perform(ListOpen(), LISTING_TIMEOUT_S)
    assert client.clock() <= LISTING_TIMEOUT_S < TIMEOUT_S


class Growing(ScriptedClient):
    """A cluster of one broker, and two as soon as one has joined."""

    def __init__(self) -> None:
        super().__init__()
        self.joined = False
        self.questions = 0
        self.leaders = {CONTROL: 1}
        self.scripts[DESCRIBE_TRANSACTIONS.name] = described()
        self.answers(INIT_PRODUCER_ID, messages.InitProducerIdResponse(producer_id=7, producer_epoch=1))
        empty = messages.ListOffsetsPartitionResponse(partition_index=CONTROL[1], offset=0)
        topic = messages.ListOffsetsTopicResponse(CONTROL[0], (empty,))
        self.answers(LIST_OFFSETS, messages.ListOffsetsResponse(topics=(topic,)))
        self.answers(LIST_TRANSACTIONS, messages.ListTransactionsResponse())

    def metadata(self, topics: Sequence[str], deadline: float, node: int | None = None) -> messages.MetadataResponse:
        self.questions += 1
        reported = super().metadata(topics, deadline, node)
        if not self.joined:
            del self.brokers[2]
        return reported._replace(brokers=reported.brokers[: len(self.brokers)])

    def listed(self) -> list[int | None]:
        """Return the nodes that were asked for open transactions."""
        return [node for name, node, _ in self.sent if name == LIST_TRANSACTIONS.name]


def test_a_begin_uses_the_brokers_that_the_coordinator_named_and_a_commit_requests_them_again() -> None:
    client = Growing()
    cluster = CommandExecutor(cast("Any", client), "orders", CONTROL[0])
    cluster.perform(Fence())
    assert cluster.perform(ReadControl()) == Found(None)
    asked = client.questions
    assert cluster.perform(ListOpen()) == Opened(())
    assert (client.listed(), client.questions) == ([1], asked)
    client.joined = True
    assert cluster.perform(ListOpen((ONE,))) == Opened(())
    assert client.listed() == [1, 1, 2]


def test_who_does_not_answer_a_begin_is_asked_again_only_if_it_is_still_there() -> None:
    client = Growing()
    cluster = CommandExecutor(cast("Any", client), "orders", CONTROL[0])
    client.answers(LIST_TRANSACTIONS, LOST, messages.ListTransactionsResponse())
    cluster.perform(Fence())
    client.joined = True
    assert cluster.perform(ListOpen()) == Opened(())
    assert client.listed() == [1, 1, 2]
