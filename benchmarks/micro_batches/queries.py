"""The queries of one run: their sessions, their order, and the check that every row arrived."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import SparkSession

from benchmarks.counting import CountingSource
from benchmarks.micro_batches.page import Scene, add_batch, trigger
from benchmarks.micro_batches.streams import CONTENDERS, TASKS, Batch, StreamContender, StreamResult, measure
from benchmarks.session import broker, end_session, spark_session
from tests.support.kafka_cluster import KafkaCluster
from tests.support.read_confluent import count_rows

ROWS = (100, 100_000)
UNIX_SOCKETS = "spark.python.unix.domain.socket.enabled"
KEPT_PROGRESS = "spark.sql.streaming.numRecentProgressUpdates"


@dataclass(frozen=True)
class Amount:
    """The amount that is measured: sizes of micro-batches, queries of each contender, and micro-batches of each query."""

    rows: tuple[int, ...] = ROWS
    rounds: int = 3
    warmups: int = 10
    batches: int = 25
    contenders: tuple[StreamContender, ...] = CONTENDERS


def run(amount: Amount) -> list[Scene]:
    """Measure every size, first with Spark's loopback TCP, then with Unix sockets, each in its own session and JVM.

    Raises:
        RuntimeError: a query was too slow, or a row did not arrive.
    """
    scenes: list[Scene] = []
    with broker() as cluster:
        for unix_sockets in (False, True):
            spark = spark_session({UNIX_SOCKETS: str(unix_sockets).lower(), KEPT_PROGRESS: "1000"})
            try:
                spark.dataSource.register(CountingSource)
                scenes += [_scene(spark, cluster, rows, unix_sockets, amount) for rows in amount.rows]
            finally:
                end_session(spark)
    return sorted(scenes, key=lambda scene: scene.rows)


def _scene(spark: SparkSession, cluster: KafkaCluster, rows: int, unix_sockets: bool, amount: Amount) -> Scene:
    scene = Scene(rows, unix_sockets, [StreamResult(contender) for contender in amount.contenders])
    for number in range(amount.rounds):
        # Each round begins with another contender, so that none always follows the same one.
        first = number % len(scene.results)
        for result in scene.results[first:] + scene.results[:first]:
            warmups = amount.warmups * (1 if number else 3)
            found = _query(spark, cluster, result.contender, rows, warmups, amount.batches)
            result.batches += found
            report_progress(scene, result.contender, f"query {number + 1}/{amount.rounds}", found)
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
        expected = rows * (warmups + batches)
        arrived = count_rows(cluster.bootstrap_servers, topic, transactional=contender.transactional)
        if arrived != expected:
            raise RuntimeError(f"{contender.label}: {arrived} records in the topic instead of {expected}")
        return found
    finally:
        cluster.delete_topic(topic)


def report_progress(scene: Scene, contender: StreamContender, kind: str, found: Sequence[Batch]) -> None:
    """Print one line per query."""
    whole = sum(map(trigger, found)) / len(found)
    part = sum(map(add_batch, found)) / len(found)
    print(
        f"{scene.title:34} {contender.name:12} {kind:10} trigger {whole:5.0f} ms, addBatch {part:5.0f} ms", flush=True
    )
