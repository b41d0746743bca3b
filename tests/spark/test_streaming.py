"""Structured Streaming: triggers, output modes, and restarts from the checkpoint."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tests.conftest import Broker
from tests.spark.frames import FORMAT, assert_same_rows, read_back, write
from tests.spark.streams import FileStream, run
from tests.support.read_back import read_topic

ROWS = 40
SCHEMA = "key string, value string, timestamp long"


def numbered(first: int) -> list[dict[str, object]]:
    return [
        {"key": f"k{number % 7}", "value": f"{number}", "timestamp": number} for number in range(first, first + ROWS)
    ]


@pytest.fixture
def stream(spark: SparkSession, tmp_path: Path) -> FileStream:
    return FileStream(spark, tmp_path, SCHEMA)


def assert_written_once(spark: SparkSession, broker: Broker, topic: str, count: int) -> None:
    wanted = spark.range(count).selectExpr(
        "timestamp_millis(id) as timestamp", "binary('k' || id % 7) as key", "binary(string(id)) as value"
    )
    assert_same_rows(read_back(spark, broker, topic).select("timestamp", "key", "value"), wanted)


def test_available_now_and_restart(spark: SparkSession, broker: Broker, topic: str, stream: FileStream) -> None:
    """Every row once when nothing fails, over three runs on one checkpoint; one of them has nothing to do."""
    broker.create_topic(topic, 3)
    for number in range(3):
        stream.put(f"{number}.json", numbered(number * ROWS))
    run(stream.to(broker, topic))
    assert stream.committed() == [0, 1, 2]
    run(stream.to(broker, topic))
    stream.put("3.json", numbered(3 * ROWS))
    run(stream.to(broker, topic))
    assert stream.committed() == [0, 1, 2, 3]
    assert_written_once(spark, broker, topic, 4 * ROWS)


def test_processing_time(spark: SparkSession, broker: Broker, topic: str, stream: FileStream) -> None:
    broker.create_topic(topic, 3)
    query = stream.to(broker, topic).trigger(processingTime="50 milliseconds").start()
    try:
        for number in range(3):
            stream.put(f"{number}.json", numbered(number * ROWS))
            query.processAllAvailable()
            read_topic(broker.bootstrap_servers, topic, expected=(number + 1) * ROWS)
    finally:
        query.stop()
    assert_written_once(spark, broker, topic, 3 * ROWS)


def test_complete_mode_writes_the_whole_result_each_time(
    spark: SparkSession, broker: Broker, topic: str, stream: FileStream
) -> None:
    broker.create_topic(topic, 1)
    stream.put("0.json", [{"key": "a"}, {"key": "b"}, {"key": "a"}])
    stream.put("1.json", [{"key": "c"}, {"key": "a"}])
    counts = stream.frame.groupBy("key").count().select("key", F.col("count").cast("string").alias("value"))
    run(stream.to(broker, topic, counts).outputMode("complete"))
    written = Counter((row.key, row.value) for row in read_topic(broker.bootstrap_servers, topic))
    assert written == Counter(
        {(b"a", b"2"): 1, (b"b", b"1"): 2, (b"c", b"1"): 1, (b"a", b"3"): 1}  # b is in both results
    )


def test_update_mode_is_refused_by_spark(embedded_broker: Broker, topic: str, stream: FileStream) -> None:
    embedded_broker.create_topic(topic, 1)
    stream.put("0.json", numbered(0))
    counts = stream.frame.groupBy("key").count().select("key", F.col("count").cast("string").alias("value"))
    with pytest.raises(StreamingQueryException, match=f"{FORMAT} does not support Update mode"):
        run(stream.to(embedded_broker, topic, counts).outputMode("update"))
    assert read_topic(embedded_broker.bootstrap_servers, topic) == []


def test_update_mode_through_foreach_batch(broker: Broker, topic: str, stream: FileStream) -> None:
    broker.create_topic(topic, 1)
    stream.put("0.json", [{"key": "a"}, {"key": "b"}, {"key": "a"}])
    stream.put("1.json", [{"key": "c"}, {"key": "a"}])
    counts = stream.frame.groupBy("key").count().select("key", F.col("count").cast("string").alias("value"))

    def write_changes(changes: DataFrame, _: int) -> None:
        write(changes, broker, topic)

    writer = counts.writeStream.foreachBatch(write_changes).option("checkpointLocation", str(stream.checkpoint))
    run(writer.outputMode("update"))
    written = [(row.key, row.value) for row in read_topic(broker.bootstrap_servers, topic)]
    assert sorted(written[:2]) == [(b"a", b"2"), (b"b", b"1")]
    assert sorted(written[2:]) == [(b"a", b"3"), (b"c", b"1")]


def test_a_failed_micro_batch_is_written_again(
    spark: SparkSession, broker: Broker, topic: str, stream: FileStream
) -> None:
    """At least once: the batch that failed comes again, whole; the one before it does not."""
    broker.create_topic(topic, 3)
    stream.put("0.json", numbered(0))
    bad = {"key": "bad", "value": "bad", "timestamp": -1}
    stream.put("1.json", [*numbered(ROWS), bad])
    with pytest.raises(StreamingQueryException, match="the timestamp is -1 ms, before 1970"):
        run(stream.to(broker, topic))
    assert stream.committed() == [0]
    stream.put("1.json", numbered(ROWS))
    run(stream.to(broker, topic))
    assert stream.committed() == [0, 1]
    written = Counter(int(row.value or b"") for row in read_topic(broker.bootstrap_servers, topic))
    assert sorted(written) == list(range(2 * ROWS))
    assert {written[number] for number in range(ROWS)} == {1}


@pytest.mark.parametrize("fault", ["topic", "option", "column"])
def test_errors_of_the_driver_end_the_query(kafka_4: Broker, topic: str, stream: FileStream, fault: str) -> None:
    """No row is written and none is committed; after the repair the same checkpoint writes them all."""
    stream.put("0.json", numbered(0))
    kafka_4.create_topic(topic, 1)
    options: dict[str, object] = {"kafka.max.block.ms": 500}
    frame, message = stream.frame, "UNKNOWN_TOPIC_OR_PARTITION"
    if fault == "option":
        options["kafka.batchsize"], message = 1, r"unknown option 'kafka.batchsize'. Did you mean 'kafka.batch.size'\?"
    if fault == "column":
        frame, message = frame.withColumn("id", F.lit(1)), "unknown column 'id'"
    missing = f"{topic}-missing" if fault == "topic" else topic
    with pytest.raises(StreamingQueryException, match=message):
        run(stream.to(kafka_4, missing, frame, options))
    assert stream.committed() == []
    run(stream.to(kafka_4, topic))
    read_topic(kafka_4.bootstrap_servers, topic, expected=ROWS)
