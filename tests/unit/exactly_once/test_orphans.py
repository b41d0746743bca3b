"""What dead tasks have left open is aborted by COMMIT if that can be had."""

from __future__ import annotations

import logging
from typing import cast

import pytest

from spark_producer.errors import KafkaTimeout
from spark_producer.exactly_once.asks import Answer, Ask, EndTasks, TasksEnded
from spark_producer.exactly_once.cluster import SinkCluster
from spark_producer.exactly_once.driver import perform_commit
from tests.unit.exactly_once.script import ONE


class DeafCluster:
    """Its coordinators do not answer."""

    sink = "orders"

    def perform(self, ask: Ask) -> Answer:
        raise KafkaTimeout(f"no answer to {type(ask).__name__}")


def test_a_committed_batch_does_not_fail_because_orphans_stay_open(caplog: pytest.LogCaptureFixture) -> None:
    cluster = cast("SinkCluster", DeafCluster())
    with caplog.at_level(logging.WARNING):
        answer = perform_commit(cluster, EndTasks((ONE,), commit=False))
    assert isinstance(answer, TasksEnded)
    assert "pyproducer txn resolve" in caplog.text
    with pytest.raises(KafkaTimeout):
        perform_commit(cluster, EndTasks((ONE,), commit=True))
