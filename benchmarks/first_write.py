"""The time of the first write of a Spark session: `python -m benchmarks --parts first-write`.

Every session has a JVM of its own, which has run one small job before, and the contenders take turns.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
import uuid
from collections.abc import Mapping
from pathlib import Path

import pyspark
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from benchmarks.headlines import Headline
from benchmarks.part import Options, Part, Results
from benchmarks.session import broker, end_session, spark_session
from tests.support.kafka_cluster import KafkaCluster

ROWS = 1_000
SESSIONS = 3
WRITES = 4
PARTITIONS = 4
SECONDS = 60
SINKS: Mapping[str, str] = {"kafka": "Spark's sink", "pyproducer": "pyproducer"}
"""Format → its name on the page."""

_IMPORT = "import pyspark.daemon"


def run(options: Options) -> Results:
    """Run sessions of all sinks in turns, and measure how long Python needs for Spark's own part of a process."""
    writes: dict[str, list[list[float]]] = {name: [] for name in SINKS}
    with broker() as cluster:
        for _ in range(options.repetitions or SESSIONS):
            for name, taken in writes.items():
                taken.append(session(cluster, name))
    return {"writes": writes, "zip": imports(zipped_path()), "folder": imports("")}


def session(cluster: KafkaCluster, sink: str) -> list[float]:
    """Return the seconds of each write of a new session."""
    spark = spark_session()
    try:
        columns = [f.col("id").cast("string").cast("binary").alias("key"), f.repeat(f.lit("x"), 100).alias("value")]
        frame = spark.range(ROWS).select(*columns)
        frame.count()
        topic = f"{sink}-{uuid.uuid4().hex[:8]}"
        cluster.create_topic(topic, PARTITIONS)
        return [write(frame, sink, cluster.bootstrap_servers, topic) for _ in range(WRITES)]
    finally:
        end_session(spark)


def write(frame: DataFrame, sink: str, servers: str, topic: str) -> float:
    """Return the seconds of one write."""
    began = time.perf_counter()
    writer = frame.write.format(sink).option("kafka.bootstrap.servers", servers).option("topic", topic)
    writer.mode("append").save()
    return time.perf_counter() - began


def zipped_path() -> str:
    """Return the entries that Spark puts first on the path of its Python processes."""
    folder = Path(pyspark.__file__).parent / "python" / "lib"
    return os.pathsep.join(str(archive) for archive in sorted(folder.glob("*.zip"), reverse=True))


def imports(path: str) -> list[float]:
    """Return the seconds of new interpreters with the imports of every Python process of Spark, from `path` or its folder."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    taken = []
    for _ in range(SESSIONS + 1):
        began = time.perf_counter()
        subprocess.run(
            [sys.executable, "-c", _IMPORT],
            env=environment | ({"PYTHONPATH": path} if path else {}),
            timeout=SECONDS,
            check=True,
        )
        taken.append(time.perf_counter() - began)
    return taken[1:]


def page(results: Results) -> str:
    """Return the table, and the text that says where the seconds go."""
    writes = results["writes"]
    lines = [
        f"{ROWS:,} rows of 100 B to {PARTITIONS} partitions, written {WRITES} times by each of "
        f"{len(next(iter(writes.values())))} new sessions (`local[2]`): seconds, medians.",
        "",
        "| | " + " | ".join(f"write {number + 1}" for number in range(WRITES)) + " |",
        "|---|" + "--:|" * WRITES,
    ]
    for name, label in SINKS.items():
        middle = [statistics.median(taken) for taken in zip(*writes[name], strict=True)]
        lines.append(f"| {label} | " + " | ".join(f"{seconds:.2f}" for seconds in middle) + " |")
    zipped, folder = statistics.median(results["zip"]), statistics.median(results["folder"])
    lines += [
        "",
        "The first write waits for four Python processes, which Spark starts one after the other. Each compiles PySpark from "
        f"`pyspark.zip`: {zipped:.2f} s, or {folder:.2f} s with the bytecode of an unpacked PySpark. Later writes and all "
        "micro-batches use them again.",
    ]
    return "\n".join(lines)


def headlines(_: Results) -> list[Headline]:
    """Return no headline, since the first page shows what users wait for again and again."""
    return []


PART = Part("first-write", "The first write of a session", run, page, headlines)
