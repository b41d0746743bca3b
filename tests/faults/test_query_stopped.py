"""`query.stop()` in the middle of a write: it returns, nothing is committed, and a restart writes what is missing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.conftest import KAFKA_4_FIRST, ProxiedBroker
from tests.fakes.accumulator_fakes import Runner
from tests.faults.paced import FAULT_OPTIONS
from tests.spark.streams import FileStream, run
from tests.support.proxy import Direction, FaultProxy
from tests.support.read_back import read_topic
from tests.support.read_confluent import end_offsets
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.parametrize("proxied", KAFKA_4_FIRST[:2], indirect=True)]
SECONDS = 60.0
PRODUCE = 0
EACH = 2
"""connections of a producer: to the address to begin with, and to the one broker"""

FEW, MANY, PARTITIONS = 30, 3_000, 3
PADDING = "x" * 1_000
DELAY = 0.1
"""seconds by which each answer is held back: the second micro-batch takes some"""


def numbered(first: int, count: int) -> list[dict[str, object]]:
    return [
        {"value": f"{number} {PADDING}", "partition": number % PARTITIONS} for number in range(first, first + count)
    ]


def slow(proxy: FaultProxy) -> None:
    """Answers come, but late: the task waits for memory and for acknowledgements."""


def silent(proxy: FaultProxy) -> None:
    """No response arrives any more: the task waits for one that never comes."""
    proxy.swallow(Direction.TO_CLIENT)


@pytest.mark.parametrize("fault", [slow, silent], ids=lambda fault: fault.__name__)
def test_stop_in_mid_write_and_restart(
    spark: SparkSession, proxied: ProxiedBroker, topic: str, tmp_path: Path, fault: Callable[[FaultProxy], None]
) -> None:
    proxied.create_topic(topic, PARTITIONS)
    stream = FileStream(spark, tmp_path, "value string, partition int")
    stream.put("0.json", numbered(0, FEW))
    options = {**FAULT_OPTIONS, "kafka.buffer.memory": 262_144, "kafka.request.timeout.ms": 60_000}
    query = stream.to(proxied, topic, options=options).trigger(processingTime="50 milliseconds").start()
    try:
        wait_until(lambda: stream.committed() == [0], "the first micro-batch")
        proxied.proxy.delay(DELAY, Direction.TO_CLIENT)
        stream.put("1.json", numbered(FEW, MANY))
        requests = proxied.proxy.requests[PRODUCE]
        wait_until(lambda: proxied.proxy.requests[PRODUCE] > requests + 5, "requests of the second micro-batch")
        connections = proxied.proxy.open_connections
        fault(proxied.proxy)
    finally:
        stopping = Runner(query.stop)
        assert stopping.done.wait(SECONDS), f"stop() has not returned within {SECONDS:g} s"
    stopping.result()
    # Spark gives the worker two seconds (spark.python.task.killTimeout) to exit, in which it goes on writing.
    wait_until(lambda: proxied.proxy.open_connections <= connections - EACH, "the end of the worker")
    proxied.proxy.heal()
    assert FEW < written(proxied, topic) < FEW + MANY, "it was in the middle"
    assert stream.committed() == [0]
    stream.put("2.json", numbered(FEW + MANY, FEW))
    run(stream.to(proxied, topic, options=options))
    assert stream.committed() == [0, 1, 2]
    assert_at_least_once(proxied, topic)


def assert_at_least_once(broker: ProxiedBroker, topic: str) -> None:
    """Micro-batches that were not stopped are there once, the stopped one once and in part a second time."""
    rows = read_topic(broker.bootstrap_servers, topic, client="confluent")
    counts = Counter(int((row.value or b"").split(b" ")[0]) for row in rows)
    assert sorted(counts) == list(range(2 * FEW + MANY))
    stopped = range(FEW, FEW + MANY)
    assert {number for number, count in counts.items() if count > 1} < set(stopped)
    assert max(counts.values()) == 2


def written(broker: ProxiedBroker, topic: str) -> int:
    """Rows in the log."""
    return sum(end_offsets(broker.bootstrap_servers, topic).values())
