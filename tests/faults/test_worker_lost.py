"""A Python worker that is killed in the middle of a task: Spark tries again, and no row is missing."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.conftest import KAFKA_4_FIRST, Broker
from tests.faults.dying import FATAL_BATCH
from tests.spark.isolated import REPOSITORY, run_program
from tests.support.read_back import read_topic

ROWS, ARROW_BATCH = 4_000, 200

PROGRAM = """
import sys
from pyspark.sql import SparkSession
from tests.faults.dying import DyingDataSource

bootstrap, topic, rows, arrow_batch = sys.argv[1:]
spark = (
    SparkSession.builder.master("local[2,4]")
    .config("spark.ui.enabled", "false")
    .config("spark.sql.execution.arrow.maxRecordsPerBatch", arrow_batch)
    .getOrCreate()
)
spark.dataSource.register(DyingDataSource)
frame = spark.range(0, int(rows), 1, 2).selectExpr("string(id) as value", "'x' || (id % 50) as key")
options = {"kafka.bootstrap.servers": bootstrap, "topic": topic, "kafka.batch.size": "1024"}
frame.write.format("pyproducer_dying").options(**options).mode("append").save()
"""


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("broker", KAFKA_4_FIRST, indirect=True)
def test_the_next_attempt_writes_what_is_missing(broker: Broker, topic: str, tmp_path: Path) -> None:
    broker.create_topic(topic, 3)
    arguments = [broker.bootstrap_servers, topic, str(ROWS), str(ARROW_BATCH)]
    said = run_program(PROGRAM, arguments, [REPOSITORY], tmp_path)
    assert "Python worker exited unexpectedly (crashed)" in said
    counts = Counter(int(row.value or b"") for row in read_topic(broker.bootstrap_servers, topic, client="confluent"))
    assert sorted(counts) == list(range(ROWS))
    assert set(counts.values()) == {1, 2}
    # At least once: rows that were acknowledged before the death are written again.
    twice = [number for number, count in counts.items() if count == 2]
    assert 0 < len(twice) <= 2 * FATAL_BATCH * ARROW_BATCH
