"""The note of a commit at real coordinators: it survives fences, aborts and a timeout, and each start is refused by it."""

from __future__ import annotations

import pytest

from spark_producer.errors import ExactlyOnceError
from spark_producer.exactly_once import driver
from spark_producer.exactly_once.cluster.coordinator_state import describe
from spark_producer.exactly_once.cluster.last_commit import noted_commit
from spark_producer.exactly_once.driver import SinkSettings
from spark_producer.exactly_once.names import control_id
from spark_producer.exactly_once.protocol.task_messages import EncodedBatch
from tests.conftest import Broker
from tests.support.filled_tasks import Tasks, batch, committed, inline, prepared, settings


def test_a_control_topic_without_the_last_record_is_refused_at_every_start(broker: Broker, topic: str) -> None:
    """Path A, path B, an attempt that fails, epochs that rise by each transaction or not; then another control topic."""
    broker.create_topic(topic, 2)
    sink = SinkSettings(topic, settings(broker.bootstrap_servers), f"{topic}-commits")
    tasks = Tasks(broker.bootstrap_servers, topic)
    for number in range(5):
        handle = driver.begin(sink)
        assert (handle.last is None) == (number == 0)
        if number % 2:
            one = tasks.fill(0, handle.transaction_version, {(topic, 1): [str(number)]})
            driver.commit(sink, [prepared(handle, number, one)], number)
        else:
            driver.commit(sink, [inline(handle, number, batch(topic, 0, str(number)))], number)
        driver.begin(sink)  # an attempt that fails: the coordinator shows no commit then
        driver.close_all()
    bad: EncodedBatch = batch("__pyproducer_commits", 0, "x")
    handle = driver.begin(sink)
    with pytest.raises(ExactlyOnceError, match="is for control records"):
        driver.commit(sink, [inline(handle, 5, bad)], 5)
    row = describe(tasks.brokers, [control_id(topic)], tasks.client.deadline())[control_id(topic)]
    assert row is not None
    assert noted_commit(row) is not None
    for control in (f"{topic}-others", f"{topic}-others", "__pyproducer_commits"):
        driver.close_all()
        with pytest.raises(ExactlyOnceError, match="has no record of the last one"):
            driver.begin(sink._replace(control_topic=control))
    driver.close_all()
    again = driver.begin(sink)
    assert again.last is not None
    assert again.last.last_done == 4
    driver.close_all()
    tasks.close()
    assert sorted(committed(broker, topic)) == list("01234")
