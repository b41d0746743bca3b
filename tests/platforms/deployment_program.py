"""Job that a deployment runs: it writes rows exactly once, each with what its worker noted of itself, and reads them.

spark-submit deployment_program.py SERVERS TOPIC ROWS
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

import spark_producer


def noted(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the rows as texts, each with the folder of its executor."""
    for batch in batches:
        yield pa.record_batch({"value": pa.array([f"{row}|{Path.cwd()}" for row in batch.column(0).to_pylist()])})


def main(servers: str, topic: str, rows: int) -> None:
    """Write and read, and print one line of JSON."""
    spark = SparkSession.builder.config("spark.ui.enabled", "false").getOrCreate()
    spark_producer.register(spark)
    made = spark.range(rows, numPartitions=2).mapInArrow(noted, "value string")
    options = {"kafka.bootstrap.servers": servers}
    sink: dict[str, Any] = {**options, "topic": topic, "exactlyOnceId": topic, "txnVersion": "1"}
    made.write.format("pyproducer").mode("append").options(**sink).save()
    read = spark.read.format("pyproducer").options(**options, subscribe=topic).load()
    java: Any = spark._jvm  # the version of Java is nowhere else
    found = {
        "values": [row.value for row in read.selectExpr("cast(value as string) as value").collect()],
        "java": java.java.lang.System.getProperty("java.version"),
        "spark": spark.version,
    }
    print(json.dumps(found), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
