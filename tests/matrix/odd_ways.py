"""Odd ways in which Spark runs a write, each as a program with a session of its own: what it writes is judged by who started it.

    python -m tests.matrix.odd_ways WAY MASTER FOLDER SERVERS TOPIC OPTIONS

A row's value is its number. At its end the way writes its outcome to `FOLDER/outcome.json`: topic → count of rows from 0 on, and
a note for the report. An assertion fails if the way was not as odd as it had to be.

Owns: the ways, and the settings that each needs. Must not know: what a reader must see.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from tests.matrix.failing import ancestors
from tests.matrix.odd_ground import (
    ROWS,
    SECONDS,
    TASKS,
    Ground,
    Outcome,
    attempts,
    began,
    kill_writers,
    last_error,
    slow_tasks,
    together,
    wait_for,
    wait_for_rows,
)
from tests.matrix.odd_lives import DEATHS, Death, counted, deduplicated

TWO_EXECUTORS = "two hosts"
"""The master's name for a cluster of Spark's own, see `tests.matrix.standalone`."""


class Way(NamedTuple):
    """A way in words, what plays it, and the settings of its session."""

    title: str
    play: Callable[[Ground], Outcome]
    master: str = "local[4]"
    settings: tuple[tuple[str, str], ...] = ()
    leaves_more: bool = False
    """Whether on path B the log has rows that were aborted, too: else nothing was in the midst of its write."""
    deaths: tuple[Death, ...] = ()
    """Deaths of the program, which is started again on the same folder after each."""


def _speculated(ground: Ground, slow: Mapping[tuple[int, int], float]) -> Outcome:
    last = TASKS - 1
    ground.write_wide(slow_tasks(ground.home, slow))
    assert attempts(ground.home)[last, 1] == 1, "nothing was speculated"
    return Outcome({ground.topic: ROWS})


def second_wins(ground: Ground) -> Outcome:
    """The first attempt of the last task is slow, and killed in the midst of its write."""
    return _speculated(ground, {(TASKS - 1, 0): 0.4})


def first_wins(ground: Ground) -> Outcome:
    """The second attempt is slower still."""
    return _speculated(ground, {(TASKS - 1, 0): 0.2, (TASKS - 1, 1): 1.0})


def stage_retried(ground: Ground) -> Outcome:
    """An executor dies in the midst of the write, and takes the rows of the stage before with it."""
    home = ground.home

    def deadly(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        partition, _ = began(home)
        for index, batch in enumerate(batches):
            if index == 1 and partition == 1 and not (home / "killed").exists():
                (home / "killed").touch()
                time.sleep(0.5)  # the rows that were read are written, and the other executor has its task
                os.kill(next(pid for pid, name in ancestors(os.getpid()) if name == "java"), signal.SIGKILL)
            yield batch

    ground.write(ground.numbers(tasks=3).repartition(6).mapInArrow(deadly, "value string"))
    found = attempts(home)
    assert any(count > 1 for count in found.values()), f"no stage was tried again: {dict(found)}"
    return Outcome({ground.topic: ROWS}, f"{found.total()} attempts of 6 tasks")


def fresh_workers(ground: Ground) -> Outcome:
    """Each task has a Python worker of its own: a job, and a query."""
    ground.write(ground.numbers(), txnVersion=1)
    for number in range(3):
        ground.put(number, 100 * number, 100)
    ground.play(ground.to(ground.stream(), topic=f"{ground.topic}-2", exactlyOnceId=f"{ground.topic}-2"))
    return Outcome({ground.topic: ROWS, f"{ground.topic}-2": 300})


def adaptive(ground: Ground) -> Outcome:
    """A skewed join, whose partitions Spark splits and coalesces before the write."""
    spark = ground.spark
    left = spark.range(0, ROWS, 1, TASKS).selectExpr(
        "id", "if(id % 10 < 8, 1, id % 50) as k", "repeat('x', 300) as pad"
    )
    right = spark.range(0, 50, 1, 2).selectExpr("id as k", "'y' as other")
    joined = left.join(right, "k").selectExpr("string(id) as value")
    joined.collect()
    plan = joined._jdf.queryExecution().executedPlan().toString()
    assert "isFinalPlan=true" in plan, plan
    assert "skewed" in plan, plan
    ground.write(joined)
    return Outcome({ground.topic: ROWS}, next(line.strip() for line in plan.splitlines() if "skewed" in line))


def sessions_with_two_ids(ground: Ground) -> Outcome:
    """Two sessions of one application write at once, each with its id."""
    topics = [ground.topic, f"{ground.topic}-2"]
    failed: list[str] = []

    def job(topic: str) -> None:
        mine = ground.elsewhere(topic)
        try:
            for version in range(3):
                mine.write(mine.numbers(ROWS // 4, first=version * ROWS // 4), txnVersion=version)
        except Exception as error:
            failed.append(str(error))

    together([lambda topic=topic: job(topic) for topic in topics])  # type: ignore[misc]
    assert not failed, failed
    return Outcome(dict.fromkeys(topics, 3 * ROWS // 4))


def sessions_with_one_id(ground: Ground) -> Outcome:
    """Two jobs with one id: while the tasks of the first write, the second begins."""
    home, failed = ground.home, []

    def waits(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number, batch in enumerate(batches):
            yield batch
            if number == 0:
                (home / "first-writes").touch()
                wait_for(home / "second-has-begun")

    def diary(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        (home / "second-has-begun").touch()
        yield from batches

    def first() -> None:
        mine = ground.elsewhere()
        try:
            mine.write(mine.numbers(tasks=2).mapInArrow(waits, "value string"))
        except Exception as error:
            failed.append(str(error))

    thread = threading.Thread(target=first)
    thread.start()
    wait_for(home / "first-writes", failed)
    other = ground.elsewhere()
    other.write(other.numbers(tasks=2).mapInArrow(diary, "value string"))
    thread.join(SECONDS)
    assert not thread.is_alive()
    assert len(failed) == 1, "the first job must have failed"
    return Outcome({ground.topic: ROWS}, last_error(failed[0]))


def two_queries(ground: Ground) -> Outcome:
    """Two queries with two ids at the same time, each with micro-batches one after the other."""
    topics = [ground.topic, f"{ground.topic}-2"]
    queries = []
    for number in range(4):
        for folder in topics:
            ground.put(number, 100 * number, 100, folder)
    for topic in topics:
        frame = ground.stream(topic)
        queries.append(
            ground.to(frame, f"checkpoint-{topic}", topic=topic, exactlyOnceId=topic)
            .trigger(processingTime="50 milliseconds")
            .start()
        )
    for query in queries:
        query.processAllAvailable()
        query.stop()
    return Outcome(dict.fromkeys(topics, 400))


def triggers(ground: Ground) -> Outcome:
    """Every trigger on one checkpoint, and micro-batches without rows among them."""
    frame = ground.stream().where("int(value) >= 100")
    ground.put(0, 0, 100)  # none of its rows is written
    ground.put(1, 100, 100)
    query = ground.to(frame).trigger(once=True).start()
    assert query.awaitTermination(int(SECONDS))
    ground.put(2, 50, 50)
    ground.put(3, 200, 100)
    ground.play(ground.to(frame))
    ground.play(ground.to(frame))  # nothing is there
    ground.put(4, 0, 10)
    ground.put(5, 300, 100)
    for trigger in ({"processingTime": "20 milliseconds"}, {"processingTime": "0 seconds"}):
        query = ground.to(frame).trigger(**trigger).start()
        query.processAllAvailable()
        query.stop()
        ground.put(6, 400, 100)
    return Outcome({ground.topic: 500}, "from 100 on")


def watermark(ground: Ground) -> Outcome:
    """A stateful query, whose watermark brings micro-batches without input. It begins at 0, so rows of then would be late."""
    stream = ground.stream().selectExpr("value", "timestamp_seconds(1 + int(value)) as moment")
    counted = stream.withWatermark("moment", "0 seconds").groupBy("value", "moment").count().where("count = 1")
    for number in range(3):
        ground.put(number, 100 * number, 100)
    query = ground.to(counted.select("value"), checkpoint="watermark").trigger(processingTime="0 seconds").start()
    query.processAllAvailable()
    query.stop()
    done = sorted(int(path.name) for path in (ground.home / "watermark" / "commits").glob("[0-9]*"))
    assert len(done) > 3, f"no micro-batch without input: {done}"
    return Outcome({ground.topic: 300}, f"{len(done)} micro-batches of 3 files")


def one_task_and_many(ground: Ground) -> Outcome:
    """All rows by one task, then by two hundred, then by many of which most have none."""
    ground.write(ground.numbers(1_000).coalesce(1), txnVersion=1)
    ground.write(ground.numbers(1_000, first=1_000).repartition(200), txnVersion=2)
    ground.write(ground.numbers(10, first=2_000).repartition(50), txnVersion=3)
    ground.write(ground.numbers(0), txnVersion=4)
    return Outcome({ground.topic: 2_010})


def function_fails(ground: Ground) -> Outcome:
    """`foreachBatch` with two writes; it fails before, between and after them, and is started again."""
    for number in range(3):
        ground.put(number, 100 * number, 100)
    second = f"{ground.topic}-2"
    failures = [(1, "before"), (1, "between"), (1, "after"), (2, "between"), (2, "after")]

    def write_batch(frame: DataFrame, number: int) -> None:
        def fail(where: str) -> None:
            if failures and failures[0] == (number, where):
                failures.pop(0)
                raise RuntimeError("as the test asked")

        mine = ground._replace(spark=frame.sparkSession)
        fail("before")
        mine.write(frame, txnVersion=number)
        fail("between")
        mine.write(frame, txnVersion=number, topic=second, exactlyOnceId=second)
        fail("after")

    lives = 0
    while True:
        lives += 1
        writer = ground.stream().writeStream.foreachBatch(write_batch)
        try:
            ground.play(writer.option("checkpointLocation", str(ground.home / "checkpoint")))
        except Exception as error:
            if "as the test asked" not in str(error):
                raise
        else:
            break
    assert not failures
    return Outcome({ground.topic: 300, second: 300}, f"{lives} lives")


def connect(ground: Ground) -> Outcome:
    """Spark Connect: a job, that job again, and a query that is started twice."""
    assert "connect" in type(ground.spark).__module__
    for _ in range(2):
        ground.write(ground.numbers(), txnVersion=1)
    second = f"{ground.topic}-2"
    for number in range(2):
        ground.put(number, 100 * number, 100)
        ground.play(ground.to(ground.stream(), topic=second, exactlyOnceId=second))
    return Outcome({ground.topic: ROWS, second: 200})


def killed_worker(ground: Ground) -> Outcome:
    """A Python worker that writes is killed when a part of its rows is in the log. On path A none is before the commit."""
    home, servers, topic, rows = ground.home, ground.servers, ground.topic, range(ROWS // TASKS, 2 * ROWS // TASKS)
    writes = ground.options.get("exactlyOnceMaxInlineBytes") == "0"

    def deadly(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        partition, number = began(home)
        for index, batch in enumerate(batches):
            if index == 5 and (partition, number) == (1, 0):
                if writes:
                    wait_for_rows(servers, topic, rows)
                kill_writers()
            yield batch

    ground.write_wide(deadly)
    assert attempts(home)[1, 1] == 1
    return Outcome({ground.topic: ROWS})


_SPECULATION = (
    ("spark.speculation", "true"),
    ("spark.speculation.interval", "50ms"),
    ("spark.speculation.quantile", "0.5"),
    ("spark.speculation.multiplier", "1.01"),
)
_SKEW = (
    ("spark.sql.adaptive.enabled", "true"),
    ("spark.sql.autoBroadcastJoinThreshold", "-1"),
    ("spark.sql.adaptive.autoBroadcastJoinThreshold", "-1"),
    ("spark.sql.shuffle.partitions", "16"),
    ("spark.sql.adaptive.advisoryPartitionSizeInBytes", "4KB"),
    ("spark.sql.adaptive.skewJoin.skewedPartitionThresholdInBytes", "4KB"),
    ("spark.sql.adaptive.skewJoin.skewedPartitionFactor", "1.5"),
)
WAYS: dict[str, Way] = {
    "speculation": Way(
        "speculation: the second attempt wins", second_wins, TWO_EXECUTORS, _SPECULATION, leaves_more=True
    ),
    "speculation-first": Way("speculation: the first attempt wins", first_wins, TWO_EXECUTORS, _SPECULATION),
    "stage": Way("an executor is lost, and the stage before the write runs again", stage_retried, TWO_EXECUTORS),
    "fresh": Way("no Python worker is used again", fresh_workers, settings=(("spark.python.worker.reuse", "false"),)),
    "adaptive": Way("a skewed join, split and coalesced by adaptive execution", adaptive, settings=_SKEW),
    "sessions": Way("two sessions of one application at once, with two ids", sessions_with_two_ids),
    "one-id": Way("two sessions of one application at once, with one id", sessions_with_one_id),
    "queries": Way("two queries of one application at once, with two ids", two_queries),
    "triggers": Way("every trigger, and micro-batches without rows", triggers),
    "watermark": Way("a stateful query, with micro-batches without input", watermark),
    "dropped": Way("dropDuplicates in a query whose driver is killed twice", deduplicated, deaths=DEATHS),
    "counted": Way(
        "a running count, in update mode by foreachBatch, whose driver is killed twice", counted, deaths=DEATHS
    ),
    "tasks": Way("one task, two hundred, and many without rows", one_task_and_many),
    "function": Way("foreachBatch with two writes, which fails before, between and after them", function_fails),
    "connect": Way("Spark Connect: a job, and a query", connect),
    "killed": Way(
        "a Python worker is killed with a part of its rows in the log", killed_worker, "local[4,3]", leaves_more=True
    ),
    "killed-far": Way(
        "a Python worker of an executor is killed with a part of its rows in the log",
        killed_worker,
        TWO_EXECUTORS,
        leaves_more=True,
    ),
}
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "768m",
    "spark.executor.memory": "512m",
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "60s",
    "spark.sql.shuffle.partitions": "4",
    "spark.network.timeout": "600s",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "100",
    "spark.executorEnv.PYTHONPATH": os.environ.get("PYTHONPATH", ""),
}


def session_of(name: str, master: str) -> SparkSession:
    """The session of a way."""
    way = WAYS[name]
    builder = SparkSession.builder
    builder = builder.remote("local[2]") if name == "connect" else builder.master(master)
    log = Path(__file__).parents[1] / "support" / "log4j2.properties"
    for key, value in {**SETTINGS, **dict(way.settings)}.items():
        builder = builder.config(key, value)
    return builder.config("spark.driver.extraJavaOptions", f"-Dlog4j2.configurationFile={log}").getOrCreate()


def main() -> None:
    """Play one way."""
    name, master, folder, servers, topic, options = sys.argv[1:]
    spark = session_of(name, master)
    ground = Ground(spark, servers, topic, Path(folder), json.loads(options))
    outcome = WAYS[name].play(ground)
    partial = ground.home / "outcome.partial"
    partial.write_text(json.dumps(outcome._asdict()))
    partial.rename(ground.home / "outcome.json")
    spark.stop()


if __name__ == "__main__":
    main()
