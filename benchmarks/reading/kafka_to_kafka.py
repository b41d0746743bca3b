"""From Kafka to Kafka, read, filtered and written in one batch job: `python -m benchmarks --parts kafka-to-kafka`."""

from __future__ import annotations

import dataclasses
import uuid
from statistics import median
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from benchmarks.bulk import in_turns
from benchmarks.headlines import Headline
from benchmarks.measure import Meter, Run
from benchmarks.part import Options, Part, Results
from benchmarks.reading.sources import OURS, PAIRS, SPARK, SPARK_TUNED, Source
from benchmarks.reading.topics import PARTITIONS, Scene, fill
from benchmarks.session import broker, jvm_pid, spark_session
from tests.support.kafka_cluster import KafkaCluster
from tests.support.read_confluent import count_rows

ROUNDS, WARMUPS = 3, 1
HALF = 2
"""The filter keeps the rows with even numbers."""


def run(options: Options) -> Results:
    """Copy half of a topic to new topics, with each pair of source and sink in turn."""
    rounds = ROUNDS if options.repetitions is None else options.repetitions
    warmups = WARMUPS if options.warmups is None else options.warmups
    scene, topic = Scene("pairs", options.rows // HALF, 100), f"pairs-{uuid.uuid4().hex[:8]}"
    runs: dict[str, list[dict[str, Any]]] = {source.name: [] for source in PAIRS}
    with broker() as cluster:
        fill(cluster, topic, scene)
        spark = spark_session()
        try:
            meter = Meter(jvm_pid(spark), cluster.pid(1))
            for number in range(warmups + rounds):
                for source in in_turns(PAIRS, number):
                    one = _copy(spark, cluster, meter, source, topic, scene.rows)
                    print(
                        f"{source.name:14} {one.rate / 1e6:6.2f} M/s  client {one.client_per_million:5.2f} s/M",
                        flush=True,
                    )
                    if number >= warmups:
                        runs[source.name].append(dataclasses.asdict(one))
        finally:
            spark.stop()
    return {"rows": scene.rows, "runs": runs}


def _copy(spark: SparkSession, cluster: KafkaCluster, meter: Meter, source: Source, topic: str, rows: int) -> Run:
    servers, target = cluster.bootstrap_servers, f"{source.name}-{uuid.uuid4().hex[:8]}"
    cluster.create_topic(target, PARTITIONS)
    even = f.col("key").cast("string").cast("long") % HALF == 0
    frame = source.read(spark, servers, topic).where(even).select("key", "value")
    writer = frame.write.format(source.form).option("kafka.bootstrap.servers", servers).option("topic", target)
    writer = writer.options(**source.sink_options).mode("append")
    try:
        found = meter.measure(rows, writer.save)
        arrived = count_rows(servers, target, transactional=False)
        if arrived != rows // HALF:
            raise RuntimeError(f"{source.label}: {arrived} records in the topic instead of {rows // HALF}")
        return found
    finally:
        cluster.delete_topic(target)


def page(results: Results) -> str:
    """Return the table."""
    rates = {name: [Run(**one) for one in runs] for name, runs in results["runs"].items()}
    base = median(one.rate for one in rates[SPARK.name])
    lines = [
        f"{results['rows']:,} rows of 100 B in {PARTITIONS} partitions are read, every second one is kept and written to another "
        "topic of the same cluster, with `acks=all`: records read per second, and CPU seconds of the client per million.",
        "",
        "| source and sink | M records/s | × Spark's pair | client CPU |",
        "|---|--:|--:|--:|",
    ]
    for source in PAIRS:
        runs = rates[source.name]
        rate, cpu = median(one.rate for one in runs), median(one.client_per_million for one in runs)
        lines.append(f"| {_label(source)} | {rate / 1e6:.2f} | {rate / base:.2f} | {cpu:.2f} |")
    return "\n".join(lines)


def _label(source: Source) -> str:
    return source.label.replace("source", "source and sink")


def headlines(results: Results) -> list[Headline]:
    """Return the rate, beside Spark's pair by default and tuned."""
    rates = {name: median(Run(**one).rate for one in runs) / 1e6 for name, runs in results["runs"].items()}
    others = {_label(source): rates[source.name] for source in (SPARK, SPARK_TUNED)}
    return [Headline("From Kafka to Kafka, half of the rows", "million records/s", rates[OURS.name], others, False)]


PART = Part("kafka-to-kafka", "From Kafka to Kafka", run, page, headlines)
