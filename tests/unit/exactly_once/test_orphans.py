"""What dead tasks have left open is aborted by COMMIT if that can be had."""

from __future__ import annotations

import logging
from typing import Any, cast

import pytest

from spark_producer.errors import KafkaTimeout
from spark_producer.exactly_once.asks import Answer, Ask, EndTasks, ListOpen, Opened, TasksEnded
from spark_producer.exactly_once.cluster import SinkCluster
from spark_producer.exactly_once.driver import LISTING_SECONDS, perform_commit
from spark_producer.protocol import LIST_TRANSACTIONS
from tests.unit.exactly_once.script import ONE
from tests.unit.exactly_once.scripted_brokers import LOST, PATIENCE, ScriptedClient


class DeafCluster:
    """Its coordinators do not answer."""

    sink = "orders"

    def __init__(self) -> None:
        self.seconds: list[float | None] = []

    def perform(self, ask: Ask, seconds: float | None = None) -> Answer:
        self.seconds.append(seconds)
        raise KafkaTimeout(f"no answer to {type(ask).__name__}")


def test_a_committed_batch_does_not_fail_because_orphans_stay_open(caplog: pytest.LogCaptureFixture) -> None:
    cluster = cast("SinkCluster", DeafCluster())
    with caplog.at_level(logging.WARNING):
        answer = perform_commit(cluster, EndTasks((ONE,), commit=False))
    assert isinstance(answer, TasksEnded)
    assert "pyproducer txn resolve" in caplog.text
    with pytest.raises(KafkaTimeout):
        perform_commit(cluster, EndTasks((ONE,), commit=True))


def test_a_commit_goes_on_if_nobody_tells_in_time_what_dead_tasks_have_left_open(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cluster = DeafCluster()
    with caplog.at_level(logging.WARNING):
        answer = perform_commit(cast("SinkCluster", cluster), ListOpen((ONE,)))
    assert answer == Opened(())
    assert "no answer to ListOpen" in caplog.text
    assert cluster.seconds == [LISTING_SECONDS]


def test_a_limit_of_time_ends_an_ask_before_the_patience_of_the_client_does() -> None:
    client = ScriptedClient()
    client.answers(LIST_TRANSACTIONS, LOST)
    with pytest.raises(KafkaTimeout, match="the list of open transactions"):
        SinkCluster(cast("Any", client), "orders", "commits").perform(ListOpen(), LISTING_SECONDS)
    assert client.clock() <= LISTING_SECONDS < PATIENCE
