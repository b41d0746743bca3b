"""A broker slower than Spark: the task waits, and the worker's memory stays where `buffer.memory` put it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_producer.protocol import PRODUCE
from tests.conftest import KAFKA_4_FIRST, Broker, ProxiedBroker
from tests.spark.frames import session_settings, sink_options
from tests.spark.observed import FORMAT, Entry, ObservedDataSource, read_diary, taken
from tests.support.proxy import Direction, FaultProxy
from tests.support.read_confluent import count_and_check

ROWS, ROW_BYTES = 14_000, 1_000
MANY_PARTITIONS, MANY_ROWS = 1_000, 20_000
MIB = 1 << 20
SMALL_BUFFER, MEDIUM_BUFFER = 1 * MIB, 8 * MIB
DELAY = 0.05
"""seconds by which each response is held back"""
HELD_AT_MOST = 20.0
"""seconds without any response; it takes one or two until the task has taken all rows"""
SLOWLY = {"kafka.max.request.size": MIB, "kafka.max.in.flight.requests.per.connection": 1}
"""Limits the broker to twenty batches a second of each partition, and 20 MiB."""


@pytest.fixture
def small_arrow_batches(spark: SparkSession) -> Iterator[SparkSession]:
    """Half a megabyte each, for the Arrow batch in hand counts too."""
    spark.dataSource.register(ObservedDataSource)
    with session_settings(spark, {"spark.sql.execution.arrow.maxRecordsPerBatch": "500"}):
        yield spark


@contextmanager
def nothing_answered_until_all_is_taken(proxy: FaultProxy, diary: Path) -> Iterator[None]:
    """Once the write has begun: all rows that Spark brings must lie in memory, however busy the machine is.

    From then on the broker is as fast as it can be.
    """
    seen = proxy.requests[PRODUCE.key]
    taken(diary).unlink()

    def hold() -> None:
        proxy.wait_for_requests(PRODUCE.key, seen + 1, timeout=120)
        proxy.pause(Direction.TO_CLIENT)
        until = time.monotonic() + HELD_AT_MOST
        while not taken(diary).exists() and time.monotonic() < until and not ended.wait(0.01):
            continue
        proxy.heal()

    ended, holding = threading.Event(), threading.Thread(target=hold)
    holding.start()
    try:
        yield
    finally:
        ended.set()
        holding.join()


def growth(
    spark: SparkSession,
    broker: Broker,
    topic: str,
    diary: Path,
    buffer_memory: int,
    *columns: str,
    row_bytes: int = ROW_BYTES,
    rows: int = ROWS,
) -> int:
    """Bytes by which the worker grew at most while it wrote all rows in one task."""
    frame = spark.range(0, rows, 1, 1).selectExpr(f"rpad(string(id), {row_bytes}, 'x') as value", *columns)
    options = {"diary": diary, "kafka.batch.size": 32_768, "kafka.buffer.memory": buffer_memory, **SLOWLY}
    frame.write.format(FORMAT).options(**sink_options(broker, topic, options)).mode("append").save()
    entry: Entry = read_diary(diary)[-1]
    assert entry.rows == rows
    return entry.growth_kib * 1024


@pytest.mark.slow
@pytest.mark.parametrize("proxied", KAFKA_4_FIRST[:2], indirect=True)
def test_memory_stays_bounded(
    small_arrow_batches: SparkSession, proxied: ProxiedBroker, topic: str, tmp_path: Path
) -> None:
    proxied.create_topic(topic, 4)
    # The memory of a write does not include the imports and the setup of a worker's first write.
    growth(small_arrow_batches, proxied, topic, tmp_path / "diary", SMALL_BUFFER, rows=1)
    proxied.proxy.delay(DELAY, Direction.TO_CLIENT)
    bounded = growth(small_arrow_batches, proxied, topic, tmp_path / "diary", SMALL_BUFFER)
    # Without a limit the same measurement shows the growth.
    with nothing_answered_until_all_is_taken(proxied.proxy, tmp_path / "diary"):
        unbounded = growth(small_arrow_batches, proxied, topic, tmp_path / "diary", 128 * MIB)
    limit = SMALL_BUFFER + 8 * MIB  # the Arrow batches in hand
    assert bounded < limit < unbounded
    assert count_and_check(proxied.bootstrap_servers, topic).total == 2 * ROWS + 1


@pytest.mark.nightly
@pytest.mark.parametrize("proxied", ["embedded"], indirect=True)
def test_memory_stays_bounded_with_a_thousand_partitions(
    small_arrow_batches: SparkSession, proxied: ProxiedBroker, topic: str, tmp_path: Path
) -> None:
    proxied.create_topic(topic, MANY_PARTITIONS)
    partition = f"int(id % {MANY_PARTITIONS}) as partition"
    arguments = small_arrow_batches, proxied, topic, tmp_path / "diary"
    # The memory of a write does not include the imports and the setup of a worker's first write.
    growth(*arguments, MEDIUM_BUFFER, partition, rows=MANY_PARTITIONS)
    proxied.proxy.delay(DELAY, Direction.TO_CLIENT)
    limit = MEDIUM_BUFFER + 36 * MIB  # the batches of all partitions (8 MiB, twice while they are joined), their queues
    bounded = growth(*arguments, MEDIUM_BUFFER, partition, row_bytes=4 * ROW_BYTES, rows=MANY_ROWS)
    with nothing_answered_until_all_is_taken(proxied.proxy, tmp_path / "diary"):
        unbounded = growth(*arguments, 128 * MIB, partition, row_bytes=4 * ROW_BYTES, rows=MANY_ROWS)
    assert bounded < limit < unbounded
    written = count_and_check(proxied.bootstrap_servers, topic).records
    assert set(written.values()) == {2 * MANY_ROWS // MANY_PARTITIONS + 1}
    assert len(written) == MANY_PARTITIONS
