"""A compacted control topic is enough for a new driver, and for one that has read it before."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from spark_producer.exactly_once import driver
from spark_producer.exactly_once.driver import SinkSettings
from spark_producer.exactly_once.protocol.control_record import Status
from spark_producer.exactly_once.protocol.outcomes import WriteCommitted
from tests.support.filled_tasks import SECONDS, Tasks, batch, committed, inline, prepared, settings
from tests.support.kafka_cluster import KafkaCluster
from tests.support.kafka_node import KAFKA_4
from tests.support.read_back import read_topic
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.slow]
EAGER = {
    "cleanup.policy": "compact",
    "segment.ms": "100",
    "min.cleanable.dirty.ratio": "0.001",
    "delete.retention.ms": "0",
}
BATCHES = 12


@pytest.fixture
def eager() -> Iterator[KafkaCluster]:
    """A broker that compacts as soon as it can."""
    with KafkaCluster(KAFKA_4, settings={"log.cleaner.backoff.ms": "100"}) as cluster:
        yield cluster


def records(cluster: KafkaCluster, topic: str) -> int:
    return len(read_topic(cluster.bootstrap_servers, topic, client="confluent"))


def test_a_compacted_control_topic_still_says_what_is_done(eager: KafkaCluster) -> None:
    topic, rows = "commits", "rows"
    admin = AdminClient({"bootstrap.servers": eager.bootstrap_servers})
    for name, config in ((topic, EAGER), (rows, {})):
        admin.create_topics([NewTopic(name, 1, config=config)])[name].result(SECONDS)
    sink = SinkSettings(f"orders.{uuid.uuid4().hex[:8]}", settings(eager.bootstrap_servers), topic, SECONDS)
    tasks = Tasks(eager.bootstrap_servers, sink.name)
    try:
        for number in range(BATCHES):
            handle = driver.begin(sink)
            value = str(number)
            large = number % 3 == 2
            message = (
                prepared(handle, number, tasks.fill(0, handle.transaction_version, {(rows, 0): [value]}))
                if large
                else inline(handle, number, batch(rows, 0, value))
            )
            assert driver.commit(sink, [message], number) == WriteCommitted(number)
            time.sleep(0.11)  # so that the next record begins a segment
        wait_until(lambda: records(eager, topic) <= 3, "compaction", seconds=SECONDS, pause=0.2)
        for number in (BATCHES, BATCHES + 1):  # with the driver's cached position, and without
            handle = driver.begin(sink)
            assert handle.last is not None
            assert (handle.last.status, handle.last.last_done) == (Status.DONE, number - 1)
            assert driver.commit(sink, [inline(handle, number, batch(rows, 0, str(number)))], number) == WriteCommitted(
                number
            )
            driver.close_all()
    finally:
        tasks.close()
        driver.close_all()
    assert committed(eager, rows) == [str(number) for number in range(BATCHES + 2)]
