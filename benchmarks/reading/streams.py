"""Micro-batches that read a hundred rows: `python -m benchmarks --parts read-stream`. The sink is the same, `noop`."""

from __future__ import annotations

import json
import os
import time
import uuid
from statistics import median

from pyspark.sql import SparkSession

from benchmarks.headlines import Headline
from benchmarks.micro_batches.streams import POLL_SECONDS, QUERY_SECONDS, running
from benchmarks.part import Options, Part, Results
from benchmarks.reading.memory_source import MemorySource
from benchmarks.reading.sources import OURS, SPARK, STREAMS, MemoryRows, Source
from benchmarks.reading.topics import PARTITIONS, Scene, fill
from benchmarks.session import broker, spark_session

ROWS, BATCHES, WARMUPS, ROUNDS = 100, 40, 15, 3
BATCH_BYTES = 16384
"""The size of a batch in the log, as Java's producer makes it by default."""
STEPS = ("latestOffset", "queryPlanning", "getBatch", "addBatch", "commitOffsets", "walCommit")
KEPT_PROGRESS = "spark.sql.streaming.numRecentProgressUpdates"

Times = dict[str, float]
"""The milliseconds of a micro-batch by step, and of all of it as `triggerExecution`."""


def run(options: Options) -> Results:
    """Run the queries of all sources in turns, and return the times of their micro-batches."""
    rounds = ROUNDS if options.repetitions is None else options.repetitions
    warmups = WARMUPS if options.warmups is None else options.warmups
    load = round(os.getloadavg()[0], 1)
    taken: dict[str, list[Times]] = {source.name: [] for source in STREAMS}
    with broker() as cluster:
        topic = f"stream-{uuid.uuid4().hex[:8]}"
        fill(cluster, topic, Scene("stream", ROWS * (warmups + BATCHES), 100, batch_bytes=BATCH_BYTES))
        spark = spark_session({KEPT_PROGRESS: "1000"})
        try:
            spark.dataSource.register(MemorySource)
            _query(spark, STREAMS[0], cluster.bootstrap_servers, topic, warmups)  # it alone would have a cold JVM
            for _ in range(rounds):
                for source in STREAMS:
                    found = _query(spark, source, cluster.bootstrap_servers, topic, warmups)
                    taken[source.name] += found
                    print(f"{source.name:14} trigger {median(_triggers(found)):.0f} ms", flush=True)
        finally:
            spark.stop()
    return {"rows": ROWS, "times": taken, "load": load}


def _query(spark: SparkSession, source: Source | MemoryRows, servers: str, topic: str, warmups: int) -> list[Times]:
    frame = source.read_stream(spark, servers, topic, ROWS)
    deadline = time.monotonic() + QUERY_SECONDS
    with running(frame.writeStream.format("noop")) as query:
        while (last := query.lastProgress) is None or last["batchId"] < warmups + BATCHES - 1:
            if not query.isActive:
                query.awaitTermination()
            if time.monotonic() > deadline:
                raise RuntimeError(f"{source.label}: the micro-batches took more than {QUERY_SECONDS} s")
            time.sleep(POLL_SECONDS)
        done = [json.loads(progress.json) for progress in query.recentProgress]
    batches = {one["batchId"]: one for one in done if one["numInputRows"]}
    wrong = [number for number, one in batches.items() if one["numInputRows"] != ROWS]
    if wrong:
        raise RuntimeError(f"{source.label}: micro-batches {wrong} have not {ROWS} rows")
    return [batches[number]["durationMs"] for number in range(warmups, warmups + BATCHES)]


def _triggers(times: list[Times]) -> list[float]:
    return [each["triggerExecution"] for each in times]


def page(results: Results) -> str:
    """Return the table: medians of each step of a micro-batch."""
    lines = [
        f"Micro-batches of {results['rows']} rows of 100 B from {PARTITIONS} partitions (`maxOffsetsPerTrigger`) into `noop`, "
        "medians in milliseconds by step (`make bench ARGS='--parts read-stream'`):",
        "",
        "| | trigger | " + " | ".join(STEPS) + " |",
        "|---|" + "--:|" * (1 + len(STEPS)),
    ]
    for source in STREAMS:
        if source.name not in results["times"]:  # of an earlier run
            continue
        times = results["times"][source.name]
        steps = [median(each.get(step, 0) for each in times) for step in STEPS]
        cells = [source.label, *(f"{value:.0f}" for value in [median(_triggers(times)), *steps])]
        lines.append(f"| {' | '.join(cells)} |")
    lines += [
        "",
        "*Rows from memory*: a Python source that reads nothing, in as many tasks, or in one: the cost of PySpark itself. Its "
        "tasks have two settings of ours, which PySpark lacks: sockets acknowledge at once "
        "([0701](decisions/0701-a-worker-acknowledges-the-jvm-s-bytes-at-once.md)), and imports are frozen "
        "([0702](decisions/0702-a-worker-freezes-its-imports-when-its-second-task-begins.md)). *Without our settings*: PySpark "
        "as it is.",
    ]
    if results.get("load", 0) >= 1:
        lines += ["", f"Other programs were running, a load of {results['load']:g}: only the ratios count."]
    return "\n".join(lines)


def headlines(results: Results) -> list[Headline]:
    """Return the time of a micro-batch, beside Spark's source."""
    times = {name: median(_triggers(found)) for name, found in results["times"].items()}
    title = f"A micro-batch that reads {results['rows']} rows"
    return [Headline(title, "ms", times[OURS.name], {SPARK.label: times[SPARK.name]}, True)]


PART = Part("read-stream", "Micro-batches that read", run, page, headlines)
