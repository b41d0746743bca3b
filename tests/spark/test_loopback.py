"""In a real worker, among connections of others, only the socket to the JVM gets the option to acknowledge at once."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from tests.conftest import Broker
from tests.spark.frames import sink_options
from tests.spark.overheard import FORMAT, OverheardDataSource, read_diary
from tests.support.read_back import read_topic


def test_only_the_socket_to_the_jvm_is_touched(
    spark: SparkSession, embedded_broker: Broker, topic: str, tmp_path: Path
) -> None:
    embedded_broker.create_topic(topic, 1)
    spark.dataSource.register(OverheardDataSource)
    frame = spark.range(0, 40, 1, 4).selectExpr("string(id) as value")
    options = sink_options(embedded_broker, topic, {"diary": tmp_path / "diary"})
    frame.write.format(FORMAT).options(**options).mode("append").save()
    tasks = read_diary(tmp_path / "diary")
    assert len(tasks) == 4
    for task in tasks:
        assert task.touched == [task.jvm] * 3, "before the one Arrow batch, after it, and at the end"
        assert len(task.sockets) >= 6, "the JVM's, four of the test's, and at least one of the producer's"
    assert len(read_topic(embedded_broker.bootstrap_servers, topic)) == 40


def test_a_task_that_reads_answers_between_its_reader_and_its_ranges(
    spark: SparkSession, embedded_broker: Broker, topic: str, tmp_path: Path
) -> None:
    embedded_broker.create_topic(topic, 2)
    spark.dataSource.register(OverheardDataSource)
    frame = spark.range(40).selectExpr("string(id) as value", "int(id % 2) as partition")
    frame.write.format("pyproducer").options(**sink_options(embedded_broker, topic)).mode("append").save()
    options = {"kafka.bootstrap.servers": embedded_broker.bootstrap_servers, "subscribe": topic}
    read = spark.read.format(FORMAT).options(**options, diary=str(tmp_path / "diary")).load()
    assert len(read.collect()) == 40
    tasks = read_diary(tmp_path / "diary")
    assert len(tasks) == 2
    assert all(task.touched == [task.jvm] for task in tasks)
