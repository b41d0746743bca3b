"""OpenLineage's listener for Spark beside the data source: what docs/reports.md says it sees, and what the page's block adds.

If the first test fails because topics are there, OpenLineage has learned Python data sources: mend the page.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from spark_producer.broker import LocalBroker
from tests.spark.isolated import REPOSITORY, run_program
from tests.support.ivy import Coordinate, fetch_jars

pytestmark = [pytest.mark.spark, pytest.mark.nightly]

LISTENER: Coordinate = ("io.openlineage", "openlineage-spark_2.13", "1.53.0")
PROGRAM = """
import sys
from pyspark.sql import SparkSession
import spark_producer

jar, home, servers = sys.argv[1:]
spark = (
    SparkSession.builder.master("local[2]").appName("lineage").config("spark.ui.enabled", "false")
    .config("spark.jars", jar)
    .config("spark.extraListeners", "io.openlineage.spark.agent.OpenLineageSparkListener")
    .config("spark.openlineage.transport.type", "file")
    .config("spark.openlineage.transport.location", home + "/events.jsonl")
    .getOrCreate()
)
reports = spark_producer.follow(spark)
kafka = {"kafka.bootstrap.servers": servers}
read = {**kafka, "subscribe": "first", "startingOffsets": "earliest"}
spark.range(10).selectExpr("string(id) as value").write.parquet(home + "/in")
frame = spark.read.parquet(home + "/in")
frame.write.format("pyproducer").mode("append").options(**kafka, topic="first").save()
spark.read.format("pyproducer").options(**read).load().selectExpr("string(value) as value").write.parquet(home + "/out")
stream = spark.readStream.format("pyproducer").options(**read).load().select("value").writeStream.format("pyproducer")
stream = stream.options(**kafka, topic="second").option("checkpointLocation", home + "/checkpoint").queryName("copy")
assert stream.trigger(availableNow=True).start().awaitTermination(120)
with open(home + "/reports.jsonl", "w") as file:
    for written in reports:
        file.write(repr((written.write, written.status, written.records, written.outputs)) + "\\n")
spark.stop()
"""


def test_the_listener_sees_runs_and_files_and_no_topics(tmp_path: Path) -> None:
    (jar,) = fetch_jars(LISTENER, name="openlineage-spark", transitive=False).glob("*.jar")
    with LocalBroker() as broker:
        for topic in ("first", "second"):
            broker.create_topic(topic)
        run_program(PROGRAM, [str(jar), str(tmp_path), broker.bootstrap_servers], [REPOSITORY], tmp_path)
        topics = [{"namespace": f"kafka://{broker.bootstrap_servers}", "name": name} for name in ("first", "second")]
    events = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text(encoding="utf-8").splitlines()]
    complete = [event for event in events if event["eventType"] == "COMPLETE"]
    (write,) = [event for event in complete if event["job"]["name"] == "lineage.append_data_pyproducer.pyproducer"]
    assert datasets(write, "inputs") == [f"{tmp_path}/in"]
    assert datasets(write, "outputs") == []
    (read,) = [event for event in complete if f"{tmp_path}/out" in datasets(event, "outputs")]
    assert datasets(read, "inputs") == []
    assert not any("kafka:" in json.dumps([event["inputs"], event["outputs"]]) for event in events)
    lines = (tmp_path / "reports.jsonl").read_text(encoding="utf-8").splitlines()
    assert [line.count(str((topic,))) for line, topic in zip(lines, topics, strict=True)] == [1, 1], "reports have them"


def datasets(event: Any, side: str) -> list[str]:
    """The names of the inputs or outputs of a run."""
    return [each["name"] for each in event[side]]
