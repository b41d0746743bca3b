"""Whole topics read into Spark's `noop` sink: `python -m benchmarks --parts read`.

Each source first proves that it reads the same rows as the others; then they take turns.
"""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from benchmarks.bulk import in_turns
from benchmarks.headlines import Headline
from benchmarks.measure import Meter, Run
from benchmarks.part import Options, Part, Results
from benchmarks.reading.sources import OURS, SPARK, SPARK_TUNED, WHOLE, Source
from benchmarks.reading.topics import PARTITIONS, Scene, fill
from benchmarks.session import broker, jvm_pid, spark_session
from tests.support.kafka_cluster import KafkaCluster

ROUNDS, WARMUPS = 3, 1
_CPU = ("python_cpu", "jvm_cpu", "broker_cpu")
_WHERE = (
    "At 1,000 B most CPU is for bytes: of Python's, by samples of its threads, a third is the socket to the JVM, a quarter the "
    "socket from the broker, a fifth decoding with its checksums, and a tenth the start of tasks by PySpark. Each value is "
    "copied three times: by the kernel out of one socket, by the decoder into Arrow's column, and by the kernel into the other "
    "socket; PySpark's serializer passes the column's memory on. The JVM then reads the same bytes again, which Spark's own "
    "source need not. Unix sockets between both (`spark.python.unix.domain.socket.enabled`) brought nothing."
)
SMALL_PART = 4
"""The scenes with a codec or large values have this fraction of the rows, so that all take about as long."""


def scenes(rows: int) -> list[Scene]:
    """Return the scenes; `rows` is the number of rows of the first."""
    fewer = max(1, rows // SMALL_PART)
    return [
        Scene("small", rows, 100),
        Scene("zstd", rows, 100, "zstd"),
        Scene("lz4", rows, 100, "lz4"),
        Scene("large", fewer, 1000),
    ]


def run(options: Options) -> Results:
    """Measure every scene, each with its own topic."""
    rounds = ROUNDS if options.repetitions is None else options.repetitions
    warmups = WARMUPS if options.warmups is None else options.warmups
    runs: dict[str, dict[str, list[dict[str, Any]]]] = {}
    found = scenes(options.rows)
    with broker() as cluster:
        spark = spark_session()
        try:
            meter = Meter(jvm_pid(spark), cluster.pid(1))
            for scene in found:
                runs[scene.name] = _measure(spark, cluster, meter, scene, warmups, rounds)
        finally:
            spark.stop()
    return {"scenes": [dataclasses.asdict(scene) for scene in found], "runs": runs, "warmups": warmups}


def _measure(
    spark: SparkSession, cluster: KafkaCluster, meter: Meter, scene: Scene, warmups: int, rounds: int
) -> dict[str, list[dict[str, Any]]]:
    topic = f"{scene.name}-{uuid.uuid4().hex[:8]}"
    fill(cluster, topic, scene)
    frames = {source.name: source.read(spark, cluster.bootstrap_servers, topic) for source in WHOLE}
    check_equal({name: summary(frame) for name, frame in frames.items()}, scene)
    runs: dict[str, list[dict[str, Any]]] = {source.name: [] for source in WHOLE}
    for number in range(warmups + rounds):
        for source in in_turns(WHOLE, number):
            one = meter.measure(scene.rows, lambda frame=frames[source.name]: into_noop(frame))  # type: ignore[misc]
            print(
                f"{scene.name:8} {source.name:20} {one.rate / 1e6:6.2f} M/s  client {one.client_per_million:5.2f}, "
                f"broker {one.per_million(one.broker_cpu):4.2f} s/M",
                flush=True,
            )
            if number >= warmups:
                runs[source.name].append(dataclasses.asdict(one))
    cluster.delete_topic(topic)
    return runs


def into_noop(frame: DataFrame) -> None:
    """Read every row of a DataFrame, and drop it in the JVM."""
    frame.write.format("noop").mode("overwrite").save()


def summary(frame: DataFrame) -> tuple[int, int]:
    """Return the number of rows, and the sum of the hashes of their values."""
    row = frame.agg(f.count("*"), f.sum(f.crc32("value"))).collect()[0]
    return int(row[0]), int(row[1])


def check_equal(found: Mapping[str, tuple[int, int]], scene: Scene) -> None:
    """Raise if the sources did not all read the rows of the scene.

    Raises:
        RuntimeError: the sources differ, or rows are missing.
    """
    if len(set(found.values())) > 1 or any(count != scene.rows for count, _ in found.values()):
        raise RuntimeError(f"{scene.title}: the sources read different rows (rows, sum of hashes): {dict(found)}")


def page(results: Results) -> str:
    """Return a table for each scene."""
    lines = [
        f"A topic with {PARTITIONS} partitions, keys of 9 B, is read from its start to its end into `noop`, all columns of "
        f"Spark's source or only `value`; Spark (`local[2]`) and one Kafka share two cores. Rates are medians, followed by "
        f"the lowest and the highest; Python, JVM and broker are CPU seconds per million records. Tuned: {SPARK_TUNED.text}.",
    ]
    for scene in map(_scene, results["scenes"]):
        runs = results["runs"][scene.name]
        base = _rate(runs[SPARK.name])
        lines += [
            "",
            f"### {scene.title}",
            "",
            f"{scene.rows:,} rows.",
            "",
            "| | M records/s | × Spark's source | Python | JVM | broker |",
            "|---|--:|--:|--:|--:|--:|",
            *(_row(source, _runs(runs[source.name]), base) for source in WHOLE if runs.get(source.name)),
        ]
    return "\n".join([*lines, "", _WHERE])


def _scene(stored: Mapping[str, Any]) -> Scene:
    return Scene(**stored)


def _runs(stored: Sequence[Mapping[str, Any]]) -> list[Run]:
    return [Run(**each) for each in stored]


def _rate(stored: Sequence[Mapping[str, Any]]) -> float:
    return median(run.rate for run in _runs(stored))


def _row(source: Source, runs: list[Run], base: float) -> str:
    rates = [run.rate / 1e6 for run in runs]
    cpu = [median(run.per_million(getattr(run, kind)) for run in runs) for kind in _CPU]
    cells = [
        source.label,
        f"{median(rates):.2f}; {min(rates):.2f}–{max(rates):.2f}",
        f"{median(rates) * 1e6 / base:.2f}",
        *(f"{seconds:.2f}" for seconds in cpu),
    ]
    return f"| {' | '.join(cells)} |"


def headlines(results: Results) -> list[Headline]:
    """Return the rate with rows of 100 B, beside Spark's source by default and tuned."""
    runs = results["runs"]["small"]
    others = {source.label: _rate(runs[source.name]) / 1e6 for source in (SPARK, SPARK_TUNED)}
    ours = _rate(runs[OURS.name]) / 1e6
    return [Headline("Reading, rows of 100 B from 4 partitions", "million records/s", ours, others, False)]


PART = Part("read", "Reading whole topics", run, page, headlines, sister="benchmarks_reading.md")
