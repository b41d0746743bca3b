"""A driver of Spark that runs the queries it is given, one after the other, until it is ended.

    python -m tests.matrix.driver_program FOLDER MASTER

A query is a file `job-N.json` in the folder: where its rows are, its checkpoint, the options of its sink. Its end is written to
`done-N.json`. A driver that dies leaves none: another one gets the same query, with the same checkpoint.

Owns: the session, the query. Must not know: what is wrong with it, or what arrives.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from tests.support.waiting import poll

SECONDS = 600.0
STOPPED = "the query was stopped"
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "768m",
    "spark.sql.shuffle.partitions": "2",
    "spark.network.timeout": "600s",
    "spark.executorEnv.PYTHONPATH": os.environ.get("PYTHONPATH", ""),
    "spark.sql.streaming.metricsEnabled": "false",
    # the state of a stream is two small files a batch
    "spark.sql.streaming.checkpoint.fileManager.renameWithOverwrite.enabled": "true",
}


def main() -> None:
    folder, master = Path(sys.argv[1]), sys.argv[2]
    log = Path(__file__).parents[1] / "support" / "log4j2.properties"
    builder = SparkSession.builder.master(master).appName("matrix")
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    for name in ("MATRIX_FOLDER", "MATRIX_FAILPOINT"):
        builder = builder.config(f"spark.executorEnv.{name}", os.environ.get(name, ""))
    spark = builder.config("spark.driver.extraJavaOptions", f"-Dlog4j2.configurationFile={log}").getOrCreate()
    spark.range(2, numPartitions=2).mapInArrow(lambda batches: batches, "id long").collect()  # the workers are there
    (folder / "ready").touch()
    number = 0
    while not (folder / "end").exists():
        job = folder / f"job-{number}.json"
        if job.exists():
            _write_outcome(
                folder / f"done-{number}.json", run(spark, json.loads(job.read_text()), folder / f"stop-{number}")
            )
            number += 1
        time.sleep(0.01)  # the test ends or kills this process
    spark.stop()


def run(spark: SparkSession, job: dict[str, Any], stop: Path) -> dict[str, Any]:
    """The query until it has written all that there is, has failed, or the file `stop` is there."""
    begun = time.monotonic()
    writer = read(spark, job).writeStream.format(job["format"]).options(**job["options"])
    writer = writer.option("checkpointLocation", job["checkpoint"])
    if not job["endless"]:
        writer = writer.trigger(availableNow=True)
    elif "interval" in job:
        writer = writer.trigger(processingTime=job["interval"])
    query = writer.start()
    error = ""
    try:
        poll(lambda: not query.isActive or stop.exists(), seconds=job.get("seconds", SECONDS), pause=0.02)
        if query.isActive:
            query.stop()
            error = STOPPED
        else:
            query.awaitTermination(1)
    except Exception as failed:
        error = str(failed)
    return {"seconds": time.monotonic() - begun, "error": error}


def read(spark: SparkSession, job: dict[str, Any]) -> DataFrame:
    """The rows of a query: lines of files, the columns `key` and `value` of a topic, or numbers, as its job says."""
    if "source" in job:
        return spark.readStream.format(job["format"]).options(**job["source"]).load().select("key", "value")
    if "numbers" in job:
        numbers = spark.readStream.format("rate-micro-batch").options(**job["numbers"]).load()
        return numbers.selectExpr("string(value % 10) as key", "rpad(string(value), 100, ' ') as value")
    lines = spark.readStream.option("maxFilesPerTrigger", job["files"]).text(job["rows"])
    return lines.selectExpr("split(value, ' ')[3] as key", "value")


def _write_outcome(path: Path, outcome: dict[str, Any]) -> None:
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(outcome))
    partial.rename(path)


if __name__ == "__main__":
    main()
