"""`warm_up`: the first write starts no Python process, whichever it is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from spark_producer.broker import LocalBroker
from tests.spark.isolated import REPOSITORY, run_program

PROGRAM = """
import json, os, sys
import psutil
from pyspark.sql import SparkSession
import spark_producer

bootstrap, topic, found = sys.argv[1:]

def processes():
    children = psutil.Process().children(recursive=True)
    running = [each for each in children if each.status() != psutil.STATUS_ZOMBIE]
    commands = {each.pid: each.cmdline() for each in running}
    return {pid: command[-1] for pid, command in commands.items() if "pyspark.daemon" in command}

spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
thread = spark_producer.warm_up(spark)
thread.join(120)
assert not thread.is_alive()
before = processes()
frame = spark.range(3, numPartitions=2).selectExpr("string(id) as value")
frame.write.format("pyproducer").options(**{"kafka.bootstrap.servers": bootstrap, "topic": topic}).mode("append").save()
with open(found, "w") as file:
    json.dump([before, processes()], file)
"""


@pytest.mark.spark
@pytest.mark.slow
def test_the_first_write_starts_no_process(embedded_broker: LocalBroker, topic: str, tmp_path: Path) -> None:
    embedded_broker.create_topic(topic, 2)
    found = tmp_path / "found.json"
    run_program(PROGRAM, [embedded_broker.bootstrap_servers, topic, str(found)], [REPOSITORY], tmp_path)
    warm, after = json.loads(found.read_text())
    assert set(warm.values()) == {
        "pyspark.sql.worker.lookup_data_sources",
        "pyspark.worker",
        "pyspark.sql.worker.write_into_data_source",
        "pyspark.sql.worker.commit_data_source_write",
    }
    assert after == warm
