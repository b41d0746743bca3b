"""A stream that goes on from its checkpoint until some micro-batches are committed, or it is killed. It runs with any version:

    PYTHONPATH=TREE python tests/upgrade/stream_program.py JOB.json

Each micro-batch has ten rows of `rate-micro-batch`, or those of a topic (`"source": {options of a read}`).
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession


def main(job: dict[str, Any]) -> None:
    path = os.environ.get("PYTHONPATH", "")
    builder = SparkSession.builder.master(job.get("master", "local[2]")).config("spark.ui.enabled", "false")
    for name, value in job.get("conf", {}).items():
        builder = builder.config(name, value)
    spark = builder.config("spark.executorEnv.PYTHONPATH", job.get("executor_path", path)).getOrCreate()
    if "source" in job:
        rows = spark.readStream.format("pyproducer").options(**job["source"]).load().selectExpr("value")
    else:
        made = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).option("numPartitions", 2)
        rows = made.load().selectExpr("cast(value as string) as value")
    writer = rows.writeStream.format("pyproducer").options(**job["options"])
    query = writer.option("checkpointLocation", job["checkpoint"]).trigger(processingTime="0 seconds").start()
    committed = Path(job["checkpoint"]) / "commits" / str(job["until"])
    try:
        while query.isActive and not committed.exists():
            query.awaitTermination(1)
    finally:
        query.stop()
    if query.exception() is not None:
        raise SystemExit(str(query.exception()))
    spark.stop()


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text()))
