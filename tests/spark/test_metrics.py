"""The report of a write on the driver has the numbers of its own tasks, whatever the workers did before."""

from __future__ import annotations

import json
from typing import Any

from pyspark.sql import SparkSession

from spark_producer.broker import LocalBroker
from spark_producer.datasource.write.worker.executor_memory import MIN_BUFFER_MEMORY, default_buffer_memory
from tests.support.waiting import wait_until

SECONDS = 60
ROWS = 3000


def logged(session: SparkSession, logger: str, count: int) -> list[str]:
    """The first `count` lines of a logger of the Python workers; Spark takes them over a moment after they are written."""
    lines = session.tvf.python_worker_logs().where(f"logger = '{logger}'").select("msg")
    rows = wait_until(
        lambda: found if len(found := lines.collect()) >= count else None,
        f"{count} lines of {logger}",
        seconds=SECONDS,
        pause=0.1,
    )
    return [row.msg for row in rows]


def test_a_task_takes_the_memory_that_its_worker_can_have_unless_it_is_set(spark: SparkSession) -> None:
    """The settings of Spark reach the tasks."""
    session = spark.newSession()
    session.conf.set("spark.sql.pyspark.worker.logging.enabled", "true")
    expected = default_buffer_memory({"spark.master": session.sparkContext.master}.get)
    assert expected > MIN_BUFFER_MEMORY
    try:
        with LocalBroker(default_partitions=1) as broker:
            options = {"kafka.bootstrap.servers": broker.bootstrap_servers, "topic": "t"}
            for more in ({}, {"kafka.buffer.memory": "33554432"}, {"profile": "small-memory"}):
                frame = session.range(0, 10, 1, 1).selectExpr("cast(id as string) as value")
                frame.write.format("pyproducer").mode("append").options(**options, **more).save()
            pages = [json.loads(line) for line in logged(session, "pyproducer.commit", 3)]
    finally:
        session.conf.unset("spark.sql.pyspark.worker.logging.enabled")
    found = sorted(page["metrics"]["producer-metrics"]["buffer-total-bytes"] for page in pages)
    assert found == [4 << 20, MIN_BUFFER_MEMORY, expected]


def test_each_write_reports_counts_and_latencies_of_its_own_tasks(spark: SparkSession) -> None:
    session = spark.newSession()  # with a log of its own
    session.conf.set("spark.sql.pyspark.worker.logging.enabled", "true")
    try:
        with LocalBroker(default_partitions=2) as broker:
            options = {"kafka.bootstrap.servers": broker.bootstrap_servers, "topic": "t", "kafka.batch.size": "4096"}
            for rows in (ROWS, 7):
                frame = session.range(0, rows, 1, 2).selectExpr("cast(id as string) as value")
                frame.write.format("pyproducer").mode("append").options(**options).save()
            pages = [json.loads(line) for line in logged(session, "pyproducer.commit", 2)]
            people = logged(session, "pyproducer", 2)
    finally:
        session.conf.unset("spark.sql.pyspark.worker.logging.enabled")
    by_records: dict[int, Any] = {page["records"]: page for page in pages}
    assert set(by_records) == {ROWS, 7}
    for rows, page in by_records.items():
        common, own = page["metrics"]["producer-metrics"], page["metrics"]["pyproducer-metrics"]
        assert common["record-send-total"] == own["record-delivered-total"] == rows
        assert page["metrics"]["producer-topic-metrics"]["record-send-total"] == {"t": rows}
        assert (own["byte-delivered-total"], own["batch-delivered-total"]) == (page["bytes"], page["batches"])
        assert sum(part["records"] for part in page["ranges"]) == rows
        assert 0 < common["request-latency-avg"] <= common["request-latency-max"]
        assert 0 < own["record-latency-avg"] <= own["record-latency-max"] < page["seconds"] * 1000
        assert common["record-error-total"] == 0
        assert common["flush-time-ns-total"] > 0
        assert common["buffer-total-bytes"] > 0
    (reported,) = (text for text in people if f" {ROWS:,} records in " in text)
    assert "/s); " in reported
    assert "to its acknowledgement: half within " in reported
