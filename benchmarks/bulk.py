"""Whole writes: every way to write a cached DataFrame to Kafka, side by side. Each scene is a part.

Each run is checked for missing and double rows.
"""

from __future__ import annotations

import dataclasses
import functools
import random
import time
import uuid
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from pyspark.sql import DataFrame, SparkSession

from benchmarks import report
from benchmarks.contenders import CONTENDERS, Contender, Target, chosen, register, rows_in, takes_part
from benchmarks.headlines import Headline
from benchmarks.measure import Meter, Run
from benchmarks.part import Options, Part, Results
from benchmarks.report import Result, SceneResults
from benchmarks.scenes import Scene, all_scenes, cached, part_of
from benchmarks.secured_broker import SecuredBroker
from benchmarks.session import broker, jvm_pid, spark_session
from tests.support.kafka_cluster import KafkaCluster
from tests.support.read_confluent import count_rows

T = TypeVar("T")

DELETE_SECONDS = 60.0
REPETITIONS = 5
WARMUPS = 3
"""The number of rounds before the measured ones; Spark's sink gets faster in them."""

HEADLINES: Mapping[str, str] = {
    "small": "Bulk, rows of 100 B to 4 partitions",
    "thousand-partitions": "Bulk, rows of 100 B to 1,000 partitions",
    "tls": "Bulk over TLS, rows of 100 B to 4 partitions",
}
"""Scene → its name on the first page."""

OTHERS: Mapping[str, str] = {
    "spark": "Spark's Kafka sink",
    "spark-tuned": "Spark's Kafka sink, tuned",
    "confluent-batches": "confluent-kafka over Arrow",
}
"""Contender → its name on the first page. Over TLS they have names that end in `OVER_TLS`."""

OVER_TLS = "-ssl"


class Rounds:
    """One session, one broker, and the runs on them."""

    def __init__(self, spark: SparkSession, cluster: KafkaCluster, contenders: list[Contender]) -> None:
        self._cluster = cluster
        self._contenders = contenders
        self._meter = Meter(jvm_pid(spark), cluster.pid(1))
        self._spark = spark

    def scene(self, scene: Scene, warmups: int, repetitions: int) -> SceneResults:
        """Run all rounds of one scene; in every round each contender runs once."""
        contenders = [contender for contender in self._contenders if takes_part(contender, scene)]
        results = SceneResults(scene, [Result(contender) for contender in contenders])
        if not contenders:
            return results
        frames = self._frames(scene, contenders)
        for number in range(warmups + repetitions):
            for result in in_turns(results.results, number):
                run = self._run(scene, result.contender, frames[result.contender.name])
                kind = "warm-up" if number < warmups else f"run {number - warmups + 1}/{repetitions}"
                report_progress(scene, result.contender, kind, run)
                if number >= warmups:
                    result.runs.append(run)
        for frame, _ in frames.values():
            frame.unpersist(blocking=True)
        return results

    def _frames(self, scene: Scene, contenders: list[Contender]) -> dict[str, tuple[DataFrame, int]]:
        whole = cached(self._spark, scene)
        frames = {}
        for contender in contenders:
            rows = rows_in(contender, scene)
            frames[contender.name] = (whole if rows == scene.rows else part_of(whole, rows), rows)
        return frames

    def _run(self, scene: Scene, contender: Contender, data: tuple[DataFrame, int]) -> Run:
        frame, rows = data
        target = self._target(contender, rows)
        if not contender.reaches_kafka:
            return self._meter.measure(rows, lambda: contender.write(frame, target))
        self._cluster.create_topic(target.topic, scene.partitions)
        try:
            run = self._meter.measure(rows, lambda: contender.write(frame, target))
            arrived = count_rows(self._cluster.bootstrap_servers, target.topic, transactional=contender.transactional)
            if arrived != rows:
                raise RuntimeError(f"{contender.label}: {arrived} records in the topic instead of {rows}")
            logs = self._cluster.log_dir(1).glob(f"{target.topic}-*/*.log")
            run = dataclasses.replace(run, log_size=sum(log.stat().st_size for log in logs))
        finally:
            self._delete(target.topic)
        return run

    def _target(self, contender: Contender, rows: int) -> Target:
        topic = f"{contender.name}-{uuid.uuid4().hex[:8]}"
        if not isinstance(self._cluster, SecuredBroker):
            return Target(self._cluster.bootstrap_servers, topic, rows)
        protocol = contender.protocol
        return Target(self._cluster.address(protocol), topic, rows, self._cluster.options(protocol))

    def _delete(self, topic: str) -> None:
        """Delete a topic and wait until its files are gone, so that this does not count in the next run."""
        self._cluster.delete_topic(topic)
        deadline = time.monotonic() + DELETE_SECONDS
        while any(self._cluster.log_dir(1).glob(f"{topic}-*")):
            if time.monotonic() > deadline:
                raise RuntimeError(f"the files of topic {topic} were not removed within {DELETE_SECONDS:.0f} s")
            time.sleep(0.1)


def in_turns(contenders: Sequence[T], number: int) -> list[T]:
    """Return the order of one round. It is another one in each, so that no contender always follows the same one.

    That matters: what a write leaves for the broker and the disk to do, the next one pays for.
    """
    return random.Random(number).sample(contenders, len(contenders))


def report_progress(scene: Scene, contender: Contender, kind: str, run: Run) -> None:
    """Print one line per run."""
    cpu = f"client {run.client_per_million:5.2f}, broker {run.per_million(run.broker_cpu):4.2f} s/M"
    print(
        f"{scene.name:16} {contender.name:20} {kind:10} {run.rate / 1e6:6.2f} M/s  {cpu}, "
        f"others {run.other_cpu / run.seconds:.1f} cores",
        flush=True,
    )


def run(name: str, options: Options) -> Results:
    """Measure one scene, with a session and a broker of its own."""
    scene, contenders = all_scenes(options.rows)[name], chosen(list(options.only))
    warmups = WARMUPS if options.warmups is None else options.warmups
    repetitions = REPETITIONS if options.repetitions is None else options.repetitions
    with SecuredBroker() if scene.secured else broker() as cluster:
        spark = spark_session()
        try:
            register(spark, contenders)
            results = Rounds(spark, cluster, contenders).scene(scene, warmups, repetitions)
        finally:
            spark.stop()
    return to_json(results, warmups)


def to_json(results: SceneResults, warmups: int) -> dict[str, Any]:
    """Return the results of a scene as JSON values."""
    runs = {result.contender.name: [dataclasses.asdict(run) for run in result.runs] for result in results.results}
    return {"scene": dataclasses.asdict(results.scene), "warmups": warmups, "runs": runs}


def from_json(results: Results) -> SceneResults:
    """Return the results of a scene that was stored, without contenders that no longer exist."""
    known = {contender.name: contender for contender in CONTENDERS}
    found = [
        Result(known[name], [Run(**run) for run in runs]) for name, runs in results["runs"].items() if name in known
    ]
    return SceneResults(Scene(**results["scene"]), found)


def page(results: Results) -> str:
    """Return the section of a scene."""
    return report.section(from_json(results), results["warmups"])


def headlines(results: Results) -> list[Headline]:
    """Return the rates beside Spark's sink and confluent-kafka's best, for the scenes that the first page shows."""
    scene = from_json(results)
    ending = OVER_TLS * scene.scene.secured
    title, own = HEADLINES.get(scene.scene.name), scene.find(f"pyproducer{ending}")
    if title is None or own is None:
        return []
    others = {label: scene.find(f"{name}{ending}") for name, label in OTHERS.items()}
    rates = {label: report.rate(other) / 1e6 for label, other in others.items() if other is not None}
    return [Headline(title, "million records/s", report.rate(own) / 1e6, rates, lower_is_better=False)]


def _part(scene: Scene) -> Part:
    return Part(
        name=scene.name,
        title=scene.title,
        run=functools.partial(run, scene.name),
        page=page,
        headlines=headlines,
        notes=report.NOTES,
        ratios=lambda results: report.ratios(from_json(results)),
        draw=lambda results, path: report.draw(from_json(results), path),
    )


PARTS = tuple(_part(scene) for scene in all_scenes(Options().rows).values())
"""The parts, one for each scene."""
