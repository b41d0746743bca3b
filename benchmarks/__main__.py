"""Command line of the benchmarks: `python -m benchmarks` (or `make bench`).

Owns: arguments, the order of the runs, the check that every row arrived. Must not know: how anything is measured.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import time
import uuid
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from benchmarks.contenders import CONTENDERS, Contender, Target, chosen, register
from benchmarks.machine import facts
from benchmarks.measure import Meter, Run
from benchmarks.report import Result, SceneResults, draw, markdown
from benchmarks.scenes import Scene, all_scenes, cached, part_of
from benchmarks.session import ROOT, SPARK_SINK, broker, jvm_pid, spark_session
from tests.support.kafka_cluster import KafkaCluster
from tests.support.kafka_node import KAFKA_4
from tests.support.read_back import end_offsets

DELETE_SECONDS = 60.0


class Bench:
    """One session, one broker, and the runs on them."""

    def __init__(self, spark: SparkSession, cluster: KafkaCluster, contenders: list[Contender]) -> None:
        self._cluster = cluster
        self._contenders = contenders
        self._meter = Meter(jvm_pid(spark), cluster.pid(1))
        self._spark = spark

    def scene(self, scene: Scene, warmups: int, repetitions: int) -> SceneResults:
        """All rounds of one scene; in every round each contender runs once."""
        contenders = [contender for contender in self._contenders if contender.compressed is scene.compressed]
        results = SceneResults(scene, [Result(contender) for contender in contenders])
        if not contenders:
            return results
        frames = self._frames(scene, contenders)
        for number in range(warmups + repetitions):
            # Each round begins with another contender, so that none always follows the same one.
            first = number % len(results.results)
            for result in results.results[first:] + results.results[:first]:
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
            rows = min(scene.rows, contender.most_rows or scene.rows)
            frames[contender.name] = (whole if rows == scene.rows else part_of(whole, rows), rows)
        return frames

    def _run(self, scene: Scene, contender: Contender, data: tuple[DataFrame, int]) -> Run:
        frame, rows = data
        target = Target(self._cluster.bootstrap_servers, f"{contender.name}-{uuid.uuid4().hex[:8]}", rows)
        if not contender.reaches_kafka:
            return self._meter.measure(rows, lambda: contender.write(frame, target))
        self._cluster.create_topic(target.topic, scene.partitions)
        try:
            run = self._meter.measure(rows, lambda: contender.write(frame, target))
            arrived = sum(end_offsets(target.bootstrap, target.topic).values())
            if arrived != rows:
                raise RuntimeError(f"{contender.label}: {arrived} records in the topic instead of {rows}")
            logs = self._cluster.log_dir(1).glob(f"{target.topic}-*/*.log")
            run = dataclasses.replace(run, log_size=sum(log.stat().st_size for log in logs))
        finally:
            self._delete(target.topic)
        return run

    def _delete(self, topic: str) -> None:
        """Delete a topic and wait until its files are gone, so that this is not counted into the next run."""
        self._cluster.delete_topic(topic)
        deadline = time.monotonic() + DELETE_SECONDS
        while any(self._cluster.log_dir(1).glob(f"{topic}-*")):
            if time.monotonic() > deadline:
                raise RuntimeError(f"the files of topic {topic} were not removed within {DELETE_SECONDS:.0f} s")
            time.sleep(0.1)


def report_progress(scene: Scene, contender: Contender, kind: str, run: Run) -> None:
    """One line per run."""
    cpu = f"client {run.client_per_million:5.2f}, broker {run.per_million(run.broker_cpu):4.2f} s/M"
    print(
        f"{scene.name:16} {contender.name:20} {kind:10} {run.rate / 1e6:6.2f} M/s  {cpu}, "
        f"others {run.other_cpu / run.seconds:.1f} cores",
        flush=True,
    )


def arguments(given: list[str]) -> argparse.Namespace:
    """Parse and check the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--rows", type=int, default=4_000_000, help="rows of the scenes with small values")
    parser.add_argument("--repetitions", type=int, default=5, help="measured rounds")
    parser.add_argument(
        "--warmups", type=int, default=3, help="rounds before them: Spark's sink gets faster until then"
    )
    parser.add_argument("--only", action="append", default=[], help=", ".join(item.name for item in CONTENDERS))
    parser.add_argument("--scenes", action="append", default=[], help=", ".join(all_scenes(4)))
    parser.add_argument(
        "--out", type=Path, default=ROOT / "docs" / "benchmarks.md", help="the page; its picture lies beside it"
    )
    chosen_values = parser.parse_args(given)
    unknown = sorted(set(chosen_values.scenes) - set(all_scenes(4)))
    if unknown:
        parser.error(f"unknown scenes {', '.join(unknown)}")
    try:
        chosen(chosen_values.only)
    except ValueError as error:
        parser.error(str(error))
    return chosen_values


def main(given: list[str]) -> None:
    """Run everything and write the page."""
    options = arguments(given)
    contenders = chosen(options.only)
    scenes = [scene for name, scene in all_scenes(options.rows).items() if not options.scenes or name in options.scenes]
    done: list[SceneResults] = []
    with broker() as cluster:
        spark = spark_session()
        try:
            register(spark, contenders)
            bench = Bench(spark, cluster, contenders)
            done += [bench.scene(scene, options.warmups, options.repetitions) for scene in scenes]
        finally:
            spark.stop()
    done = [results for results in done if results.results]
    picture = options.out.with_suffix(".svg")
    draw(done, picture)
    options.out.write_text(markdown(done, facts(KAFKA_4, SPARK_SINK), picture.name, options.warmups))
    print(f"{options.out} and {picture.name} written")


if __name__ == "__main__":
    main(sys.argv[1:])
