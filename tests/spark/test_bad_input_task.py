"""Rows that cannot be written: the task says which one and why, the job fails, what was acknowledged stays."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from pyspark.errors import PythonException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tests.conftest import STRICT_BROKERS, Broker
from tests.spark.frames import session_settings, short_message, write
from tests.support.kafka_cluster import KafkaCluster
from tests.support.read_back import read_topic
from tests.support.read_confluent import end_offsets
from tests.support.waiting import wait_until

ROWS, BAD_ROW = 60, 42
"""The bad row is in the fifth of six Arrow batches."""

ARROW_BATCHES = {"spark.sql.execution.arrow.maxRecordsPerBatch": "10"}


def rows_with(spark: SparkSession, topic: str, column: str, good: str, bad: str) -> DataFrame:
    """Good rows, but for one; all in one task."""
    frame = spark.range(0, ROWS, 1, 1).selectExpr("string(id) as value", f"'{topic}' as topic", "id")
    return frame.withColumn(column, F.expr(f"if(id = {BAD_ROW}, {bad}, {good})")).drop("id")


def failure(frame: DataFrame, broker: Broker, topic: str | None, options: dict[str, object] | None = None) -> str:
    with pytest.raises(PythonException) as caught:
        write(frame, broker, topic, options)
    return short_message(str(caught.value))


PLACE = f"row {BAD_ROW} of the task"
TIME = "timestamp'2013-01-01 05:17:00'"
BAD_ROWS: dict[str, tuple[str, str, str, str]] = {
    "null topic": ("topic", "topic", "null", f"{PLACE} has a null topic. Fill it, or set the option 'topic'"),
    "partition that is not there": (
        "partition",
        "1",
        "3",
        "partition 3 does not exist (topic '{topic}', " + PLACE + "): the topic has the 3 partitions 0 to 2",
    ),
    "negative partition": ("partition", "null", "-1", "partition -1 is negative (topic '{topic}', " + PLACE + ")"),
    "null header key": (
        "headers",
        "array(struct('a' as key, X'01' as value))",
        "array(struct('a' as key, X'01' as value), struct(cast(null as string) as key, X'02' as value))",
        "a header key is null (topic '{topic}', "
        + PLACE
        + "), which Kafka does not allow. Drop the header, or name it",
    ),
    "null timestamp": ("timestamp", TIME, "null", "the timestamp is null (topic '{topic}', " + PLACE + ")"),
    "timestamp before 1970": (
        "timestamp",
        TIME,
        "timestamp'1969-12-31 23:59:59.999'",
        "the timestamp is -1 ms, before 1970 (topic '{topic}', " + PLACE + ")",
    ),
    "negative long": ("timestamp", "1L", "-5L", "the timestamp is -5 ms, before 1970 (topic '{topic}', " + PLACE + ")"),
    "large row": (
        "value",
        "repeat('x', 100)",
        "repeat('x', 3000)",
        "bytes (topic '{topic}', " + PLACE + ") exceeds kafka.max.request.size (2048)",
    ),
}


OF_UNIT_TESTS = {"null header key", "timestamp before 1970", "negative long"}
"""The error of the row is that of `unit/record/test_columns.py`, and its way to the driver that of the other rows."""


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=[pytest.mark.nightly] * (case in OF_UNIT_TESTS)) for case in BAD_ROWS]
)
def test_the_task_names_topic_and_row(spark: SparkSession, broker: Broker, topic: str, case: str) -> None:
    broker.create_topic(topic, 3)
    column, good, bad, message = BAD_ROWS[case]
    options = {"kafka.max.request.size": 2048, "kafka.batch.size": 1024, "kafka.client.id": "hunter2"}
    with session_settings(spark, ARROW_BATCHES):
        text = failure(rows_with(spark, topic, column, good, bad), broker, None, options)
    assert message.format(topic=topic) in text
    assert "hunter2" not in text


def test_what_was_acknowledged_stays(spark: SparkSession, broker: Broker, topic: str) -> None:
    broker.create_topic(topic, 1)
    bootstrap, good = broker.bootstrap_servers, 3_000

    def rows(_: Iterable[int]) -> Iterator[tuple[str, int]]:
        yield from ((f"{number}-{'x' * 1000}", 1) for number in range(good))
        wait_until(lambda: end_offsets(bootstrap, topic)[0], "the first rows are acknowledged")
        yield from (("bad", -1) for _ in range(good))

    source = spark.sparkContext.parallelize([0], 1).mapPartitions(rows)
    with session_settings(spark, ARROW_BATCHES):
        text = failure(spark.createDataFrame(source, "value string, timestamp long"), broker, topic)
    assert f"row {good} of the task" in text
    values = [row.value or b"" for row in read_topic(bootstrap, topic)]
    assert values
    assert [int(value.partition(b"-")[0]) for value in values] == list(range(len(values)))


@pytest.mark.parametrize("broker_fixture", STRICT_BROKERS)
def test_a_topic_of_the_column_that_is_not_there(
    spark: SparkSession, request: pytest.FixtureRequest, broker_fixture: str, topic: str
) -> None:
    broker: Broker = request.getfixturevalue(broker_fixture)
    broker.create_topic(topic, 1)
    frame = rows_with(spark, topic, "topic", f"'{topic}'", f"'{topic}-missing'")
    text = failure(frame, broker, None, {"kafka.max.block.ms": 1000})
    assert f"UNKNOWN_TOPIC_OR_PARTITION (3) for topic '{topic}-missing'" in text


def test_a_batch_that_the_topic_refuses(spark: SparkSession, broker: Any, topic: str) -> None:
    setting = {"config" if isinstance(broker, KafkaCluster) else "configs": {"max.message.bytes": "2000"}}
    broker.create_topic(topic, 1, **setting)
    frame = rows_with(spark, topic, "value", "'x'", "repeat('x', 3000)")
    text = failure(frame, broker, None)
    assert "MESSAGE_TOO_LARGE (10)" in text
    assert f"topic '{topic}', partition 0" in text
    assert "raise the topic's max.message.bytes" in text


def test_a_time_that_the_topic_refuses(spark: SparkSession, kafka_4: Broker, topic: str) -> None:
    """Kafka 4, alone of all brokers, takes no records from more than an hour ahead, and says which one it was."""
    kafka_4.create_topic(topic, 1)
    frame = rows_with(spark, topic, "timestamp", TIME, "timestamp'2999-01-01 00:00:00'")
    text = failure(frame, kafka_4, None)
    assert "INVALID_TIMESTAMP (32)" in text
    assert f"record {BAD_ROW} of the batch: Timestamp 32472144000000 of message with offset {BAD_ROW}" in text


def test_the_next_write_of_the_same_workers_succeeds(spark: SparkSession, broker: Broker, topic: str) -> None:
    broker.create_topic(topic, 3)
    failure(rows_with(spark, topic, "partition", "1", "-1"), broker, topic)
    write(rows_with(spark, topic, "partition", "1", "2"), broker, topic)
    rows: list[Any] = read_topic(broker.bootstrap_servers, topic, expected=ROWS)
    assert sorted(row.partition for row in rows) == [1] * (ROWS - 1) + [2]
