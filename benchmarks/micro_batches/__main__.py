"""Command line of the benchmark of micro-batches: `python -m benchmarks.micro_batches`.

Owns: arguments, the order of the queries, the check that every row arrived. Must not know: how a query is measured.
"""

from __future__ import annotations

import argparse
import sys
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession

from benchmarks.counting import CountingSource
from benchmarks.machine import facts
from benchmarks.micro_batches.page import Scene, add_batch, draw, markdown, trigger
from benchmarks.micro_batches.streams import CONTENDERS, TASKS, Batch, StreamContender, StreamResult, measure
from benchmarks.session import ROOT, SPARK_SINK, broker, end_session, spark_session
from tests.support.kafka_cluster import KafkaCluster
from tests.support.kafka_node import KAFKA_4
from tests.support.read_back import end_offsets

ROWS = (100, 100_000)
UNIX_SOCKETS = "spark.python.unix.domain.socket.enabled"
KEPT_PROGRESS = "spark.sql.streaming.numRecentProgressUpdates"


@dataclass(frozen=True)
class Options:
    """How much is measured: sizes of micro-batches, queries of each contender, and micro-batches of each query."""

    rows: tuple[int, ...] = ROWS
    rounds: int = 3
    warmups: int = 10
    batches: int = 25
    contenders: tuple[StreamContender, ...] = CONTENDERS


def run(options: Options) -> list[Scene]:
    """Every size, first with Spark's loopback TCP and then with Unix sockets, each in a session and a JVM of its own.

    Raises:
        RuntimeError: a query was too slow, or a row did not arrive.
    """
    scenes: list[Scene] = []
    with broker() as cluster:
        for unix_sockets in (False, True):
            spark = spark_session({UNIX_SOCKETS: str(unix_sockets).lower(), KEPT_PROGRESS: "1000"})
            try:
                spark.dataSource.register(CountingSource)
                scenes += [_scene(spark, cluster, rows, unix_sockets, options) for rows in options.rows]
            finally:
                end_session(spark)
    return sorted(scenes, key=lambda scene: scene.rows)


def _scene(spark: SparkSession, cluster: KafkaCluster, rows: int, unix_sockets: bool, options: Options) -> Scene:
    scene = Scene(rows, unix_sockets, [StreamResult(contender) for contender in options.contenders])
    for number in range(options.rounds):
        # Each round begins with another contender, so that none always follows the same one.
        first = number % len(scene.results)
        for result in scene.results[first:] + scene.results[:first]:
            warmups = options.warmups * (1 if number else 3)
            found = _query(spark, cluster, result.contender, rows, warmups, options.batches)
            result.batches += found
            report_progress(scene, result.contender, f"query {number + 1}/{options.rounds}", found)
    return scene


def _query(
    spark: SparkSession, cluster: KafkaCluster, contender: StreamContender, rows: int, warmups: int, batches: int
) -> list[Batch]:
    topic = f"{contender.name}-{uuid.uuid4().hex[:8]}"
    if not contender.reaches_kafka:
        return measure(spark, contender, cluster.bootstrap_servers, topic, rows, warmups, batches)
    cluster.create_topic(topic, TASKS)
    try:
        found = measure(spark, contender, cluster.bootstrap_servers, topic, rows, warmups, batches)
        arrived, expected = sum(end_offsets(cluster.bootstrap_servers, topic).values()), rows * (warmups + batches)
        if arrived != expected:
            raise RuntimeError(f"{contender.label}: {arrived} records in the topic instead of {expected}")
        return found
    finally:
        cluster.delete_topic(topic)


def report_progress(scene: Scene, contender: StreamContender, kind: str, found: Sequence[Batch]) -> None:
    """One line per query."""
    whole = sum(map(trigger, found)) / len(found)
    part = sum(map(add_batch, found)) / len(found)
    print(
        f"{scene.title:34} {contender.name:12} {kind:10} trigger {whole:5.0f} ms, addBatch {part:5.0f} ms", flush=True
    )


def arguments(given: list[str]) -> argparse.Namespace:
    """Parse the command line."""
    usual = Options()
    parser = argparse.ArgumentParser(prog="python -m benchmarks.micro_batches", description=__doc__)
    parser.add_argument("--rows", type=int, action="append", help=f"of a micro-batch ({', '.join(map(str, ROWS))})")
    names = [contender.name for contender in CONTENDERS]
    parser.add_argument("--only", action="append", choices=names, help="these contenders, instead of all")
    parser.add_argument("--rounds", type=int, default=usual.rounds, help="queries of each contender (%(default)s)")
    parser.add_argument(
        "--warmups", type=int, default=usual.warmups, help="micro-batches of each query before (%(default)s)"
    )
    parser.add_argument("--batches", type=int, default=usual.batches, help="measured in each query (%(default)s)")
    parser.add_argument(
        "--out",
        type=Path,
        default=ROOT / "docs" / "benchmarks_streaming.md",
        help="the page; its picture lies beside it",
    )
    return parser.parse_args(given)


def write_page(scenes: Sequence[Scene], options: Options, out: Path) -> None:
    """The page and its picture."""
    picture = out.with_suffix(".svg")
    draw(scenes, picture)
    out.write_text(markdown(scenes, facts(KAFKA_4, SPARK_SINK), picture.name, options.warmups, options.rounds))
    print(f"{out} and {picture.name} written")


def main(given: list[str]) -> None:
    """Run everything and write the page."""
    chosen = arguments(given)
    contenders = tuple(contender for contender in CONTENDERS if not chosen.only or contender.name in chosen.only)
    options = Options(tuple(chosen.rows or ROWS), chosen.rounds, chosen.warmups, chosen.batches, contenders)
    write_page(run(options), options, chosen.out)


if __name__ == "__main__":
    main(sys.argv[1:])
