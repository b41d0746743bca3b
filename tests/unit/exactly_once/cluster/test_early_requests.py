"""Requests that are sent early: when their responses are used."""

from __future__ import annotations

from typing import Any

import pytest

from spark_producer.admin.exchange import NodeRequest
from spark_producer.common.cluster import TopicPartition
from spark_producer.errors import PyProducerError
from spark_producer.exactly_once.cluster.broker_requests import TransactionAdmin
from spark_producer.exactly_once.cluster.coordinator_state import ask_states, describe
from spark_producer.exactly_once.cluster.early_requests import MAX_AGE_S
from spark_producer.exactly_once.cluster.partition_state import ask_producers, producers
from spark_producer.protocol import DESCRIBE_PRODUCERS, DESCRIBE_TRANSACTIONS, LIST_TRANSACTIONS, messages
from tests.fakes.scripted_client import LOST, ScriptedClient, brokers_of
from tests.unit.exactly_once.test_performers import described

ZERO, ONE = TopicPartition("rows", 0), TopicPartition("rows", 1)
ANSWER = messages.ListTransactionsResponse(7)
OLD, NEW = bytes(15) + b"1", bytes(15) + b"2"
"""Ids of a topic, before and after it is created again."""


def listing(node: int = 1, states: tuple[str, ...] = ()) -> NodeRequest:
    return NodeRequest(node, LIST_TRANSACTIONS, messages.ListTransactionsRequest(states))


def remembering(body: messages.DescribeProducersRequest) -> messages.DescribeProducersResponse:
    """Each partition has one producer, with its own number."""
    return messages.DescribeProducersResponse(
        0,
        tuple(
            messages.DescribeProducersTopicResult(
                topic.name,
                tuple(
                    messages.DescribeProducersPartition(each, active_producers=(messages.ActiveProducer(each, 0),))
                    for each in topic.partition_indexes
                ),
            )
            for topic in body.topics
        ),
    )


@pytest.fixture
def client() -> ScriptedClient:
    made = ScriptedClient()
    made.leaders = {ZERO: 2, ONE: 2}
    made.answers(LIST_TRANSACTIONS, ANSWER)
    made.scripts[DESCRIBE_PRODUCERS.name] = remembering
    return made


def sent(client: ScriptedClient) -> int:
    return len(client.bodies(LIST_TRANSACTIONS)) + len(client.bodies(DESCRIBE_PRODUCERS))


def request(brokers: TransactionAdmin, *calls: NodeRequest) -> list[Any]:
    return brokers.early.request_all(calls, brokers.client.deadline())


def test_a_question_is_sent_once_and_its_response_counts_once(client: ScriptedClient) -> None:
    brokers = brokers_of(client)
    brokers.early.send([listing()])
    assert request(brokers, listing()) == [ANSWER]
    assert sent(client) == 1
    assert request(brokers, listing()) == [ANSWER]
    assert sent(client) == 2


@pytest.mark.parametrize("other", [listing(node=2), listing(states=("Ongoing",))])
def test_another_question_is_sent_in_its_turn(client: ScriptedClient, other: NodeRequest) -> None:
    brokers = brokers_of(client)
    brokers.early.send([listing()])
    assert request(brokers, other, listing()) == [ANSWER, ANSWER]
    assert sent(client) == 2


def test_what_is_old_or_forgotten_is_asked_again(client: ScriptedClient) -> None:
    brokers = brokers_of(client)
    brokers.early.send([listing()])
    client.pause(MAX_AGE_S * 1.01)
    request(brokers, listing())
    assert sent(client) == 2
    brokers.early.send([listing()])
    brokers.early.drop()
    request(brokers, listing())
    assert sent(client) == 4


@pytest.mark.covers("NW9")
def test_what_was_sent_before_the_bootstrap_servers_were_asked_again_is_asked_again(client: ScriptedClient) -> None:
    """It may have gone to a broker of another cluster, which was adopted with its response."""
    brokers = brokers_of(client)
    brokers.early.send([listing()])
    client.rebootstraps += 1
    request(brokers, listing())
    assert sent(client) == 2


def test_an_error_is_the_callers(client: ScriptedClient) -> None:
    brokers = brokers_of(client)
    client.answers(LIST_TRANSACTIONS, LOST, ANSWER)
    brokers.early.send([listing()])
    [error] = request(brokers, listing())
    assert isinstance(error, PyProducerError)
    assert sent(client) == 1


def test_a_response_about_more_partitions_answers_for_some(client: ScriptedClient) -> None:
    brokers = brokers_of(client)
    deadline = client.deadline()
    brokers.leaders([ZERO, ONE], deadline)
    ask_producers(brokers, [ZERO, ONE])
    assert list(producers(brokers, [ONE], deadline)[ONE] or ()) == [1]
    assert sent(client) == 1
    ask_producers(brokers, [ONE])
    assert producers(brokers, [ZERO, ONE], deadline).keys() == {ZERO, ONE}
    assert sent(client) == 3


@pytest.mark.parametrize(("topic_id", "leader_epoch"), [(OLD, 5), (NEW, 0)], ids=["another epoch", "another topic"])
def test_the_leader_of_another_epoch_or_topic_has_not_answered(
    client: ScriptedClient, topic_id: bytes, leader_epoch: int
) -> None:
    """Even if the same broker leads: DescribeProducers names neither, and a topic that is created again begins with epoch 0."""
    brokers = brokers_of(client)
    client.topic_id = OLD
    brokers.leaders([ZERO], client.deadline())
    ask_producers(brokers, [ZERO])
    client.topic_id, client.leader_epoch = topic_id, leader_epoch
    assert brokers.leaderless([ZERO], client.deadline()) == []
    producers(brokers, [ZERO], client.deadline())
    assert sent(client) == 2


def test_a_response_about_more_transactions_answers_for_some(client: ScriptedClient) -> None:
    brokers = brokers_of(client)
    client.scripts[DESCRIBE_TRANSACTIONS.name] = described("Ongoing")
    brokers.coordinators(["one", "two"], client.deadline())
    ask_states(brokers, ["two", "one"])
    assert describe(brokers, ["one"], client.deadline()).keys() == {"one"}
    assert len(client.bodies(DESCRIBE_TRANSACTIONS)) == 1
    ask_states(brokers, ["one"])
    assert describe(brokers, ["one", "two"], client.deadline()).keys() == {"one", "two"}
    assert len(client.bodies(DESCRIBE_TRANSACTIONS)) == 3
