"""Keys go where Kafka's own clients would put them, and keep their order on the way."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import numpy as np
import pytest
from confluent_kafka import Producer as ConfluentProducer
from kafka.partitioner.default import DefaultPartitioner
from pyspark.sql import SparkSession, Window
from pyspark.sql import functions as F

from tests.conftest import Broker
from tests.spark.frames import read_back, session_settings, write
from tests.support.read_back import Row, read_topic

KEYS = 100_000
PARTITIONS = 7


@pytest.fixture(scope="module")
def keys() -> list[bytes]:
    """Keys of 0 to 40 bytes: every remainder modulo 4, bytes of either sign, digits and text."""
    chance = random.Random(25)
    made = {b"", "größe".encode(), *(b"%d" % number for number in range(20_000))}
    while len(made) < KEYS:
        made.add(chance.randbytes(chance.randrange(41)))
    return sorted(made)


class OneTopic:
    """The part of cluster metadata that kafka-python's partitioner reads."""

    def topics(self) -> set[str]:
        return {"topic"}

    def partitions_for_topic(self, topic: str) -> set[int]:
        return set(range(PARTITIONS))

    available_partitions_for_topic = partitions_for_topic


@pytest.fixture(scope="module")
def kafka_python_choices(keys: list[bytes]) -> dict[bytes | None, int]:
    choose, cluster = DefaultPartitioner().partition, OneTopic()
    return {key: choose("topic", None, key, None, None, cluster) for key in keys}


def produce_with_librdkafka(bootstrap: str, topic: str, keys: list[bytes]) -> None:
    producer = ConfluentProducer(
        {"bootstrap.servers": bootstrap, "partitioner": "murmur2_random", "queue.buffering.max.messages": KEYS + 1}
    )
    for key in keys:
        producer.produce(topic, value=None, key=key)
    assert producer.flush(60) == 0


def partition_by_key(rows: list[Row]) -> dict[bytes | None, int]:
    return {row.key: row.partition for row in rows}


def test_every_key_goes_where_other_clients_put_it(
    spark: SparkSession, broker: Broker, topic: str, keys: list[bytes], kafka_python_choices: dict[bytes | None, int]
) -> None:
    broker.create_topic(topic, PARTITIONS)
    broker.create_topic(f"{topic}-librdkafka", PARTITIONS)
    frame = spark.createDataFrame([(key,) for key in keys], "key binary").withColumn(
        "value", F.lit(None).cast("binary")
    )
    write(frame, broker, topic)
    ours = partition_by_key(read_topic(broker.bootstrap_servers, topic, client="confluent", expected=KEYS))
    produce_with_librdkafka(broker.bootstrap_servers, f"{topic}-librdkafka", keys)
    theirs = read_topic(broker.bootstrap_servers, f"{topic}-librdkafka", client="confluent", expected=KEYS)
    assert ours == partition_by_key(theirs)
    assert ours == kafka_python_choices


def test_each_key_keeps_its_order(spark: SparkSession, broker: Broker, topic: str) -> None:
    """Many keys, several Arrow batches to a task, several record batches to a partition, several in flight."""
    broker.create_topic(topic, 5)
    rows, key_count = 40_000, 300
    frame = (
        spark.range(rows)
        .selectExpr(f"string(id % {key_count}) as key", f"string(id div {key_count}) as value")
        .repartition(4, "key")
        .sortWithinPartitions(F.col("value").cast("int"))
    )
    with session_settings(spark, {"spark.sql.execution.arrow.maxRecordsPerBatch": "1000"}):
        write(frame, broker, topic, {"kafka.batch.size": 4096, "kafka.linger.ms": 0})
    found = read_back(spark, broker, topic, client="confluent", expected=rows)
    place = F.row_number().over(Window.partitionBy("key").orderBy("partition", "offset")) - 1
    ordered = found.select("key", F.col("value").cast("string").cast("int").alias("sequence"), place.alias("place"))
    assert ordered.where("sequence != place").count() == 0
    assert found.select("key", "partition").distinct().count() == key_count


def test_rows_without_a_key_reach_every_partition(spark: SparkSession, broker: Broker, topic: str) -> None:
    broker.create_topic(topic, 4)
    frame = spark.range(0, 4_000, 1, 2).selectExpr("repeat('x', 100) as value")
    write(frame, broker, topic, {"kafka.batch.size": 4096})
    rows = read_topic(broker.bootstrap_servers, topic, expected=4_000)
    assert {row.partition for row in rows} == {0, 1, 2, 3}


def by_row(keys: Any, values: Any, topic: str, partition_count: int) -> np.ndarray:
    """Found by the workers under its name."""
    return np.arange(len(values)) % partition_count


def test_a_function_of_ones_own_places_the_rows_in_the_workers(
    spark: SparkSession, embedded_broker: Broker, topic: str
) -> None:
    embedded_broker.create_topic(topic, 4)
    frame = spark.range(0, 400, 1, 2).selectExpr("'same' as key", "string(id) as value")
    write(frame, embedded_broker, topic, {"kafka.partitioner.class": f"{__name__}:by_row"})
    rows = read_topic(embedded_broker.bootstrap_servers, topic, expected=400)
    assert Counter(row.partition for row in rows) == dict.fromkeys(range(4), 100)


def test_64_small_tasks_reach_every_partition(spark: SparkSession, embedded_broker: Broker, topic: str) -> None:
    """Each has less than a batch and writes to one partition; they start anywhere, also those of one worker. That some
    partition of eight is never chosen in 64 draws happens once in 600."""
    embedded_broker.create_topic(topic, 8)
    frame = spark.range(0, 640, 1, 64).selectExpr("string(id div 10) as value")
    write(frame, embedded_broker, topic)
    rows = read_topic(embedded_broker.bootstrap_servers, topic, expected=640)
    tasks = {(row.value, row.partition) for row in rows}
    assert len(tasks) == 64, "one partition for each task"
    assert len({partition for _, partition in tasks}) >= 7
