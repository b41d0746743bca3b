"""The time of the first write of a Spark session: `python -m benchmarks --parts first-write`.

Every session has a JVM of its own, which has run one small job before, and the contenders take turns.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import psutil
import pyspark
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

import spark_producer
from benchmarks.part import Options, Part, Results
from benchmarks.session import broker, end_session, jvm_pid, spark_session
from spark_producer.cli.bytecode import add_bytecode
from tests.support.kafka_cluster import KafkaCluster

ROWS = 3
SESSIONS = 3
WRITES = 4
PARTITIONS = 4
SECONDS = 60


class Way(NamedTuple):
    """How a session prepares for its first write."""

    label: str
    sink: str = "pyproducer"
    bytecode: bool = False
    registered: bool = False
    warmed_up: bool = False


SPARKS = "kafka"
WAYS: Mapping[str, Way] = {
    SPARKS: Way("Spark's sink", sink="kafka"),
    "pyproducer": Way("pyproducer"),
    "registered": Way("…, `register(spark)`", registered=True),
    "bytecode": Way("…, `pyproducer bytecode`", bytecode=True),
    "warmed-up": Way("…, after `warm_up(spark)`", warmed_up=True),
    "all": Way("…, after `warm_up(spark)`, with bytecode", bytecode=True, warmed_up=True),
}
"""The rows of the page."""

_IMPORT = "import pyspark.daemon"


class Session(NamedTuple):
    """What a session took, in seconds."""

    writes: list[float]
    cpu: float
    """CPU of Spark's Python processes in the first write."""
    warm_up: float | None


def run(options: Options) -> Results:
    """Run sessions of all ways in turns, and measure how long Python needs for Spark's own part of a process."""
    taken: dict[str, list[Session]] = {name: [] for name in WAYS}
    with broker() as cluster, tempfile.TemporaryDirectory() as folder:
        home = home_with_bytecode(Path(folder))
        for _ in range(options.repetitions or SESSIONS):
            for name, way in WAYS.items():
                taken[name].append(session(cluster, way, home))
        compiled = imports(archives(home))
    return {
        "rows": ROWS,
        "writes": {name: [each.writes for each in sessions] for name, sessions in taken.items()},
        "cpu": {name: [each.cpu for each in sessions] for name, sessions in taken.items()},
        "warm_up": {name: [each.warm_up for each in taken[name]] for name, way in WAYS.items() if way.warmed_up},
        "zip": imports(archives(Path(pyspark.__file__).parent)),
        "bytecode": compiled,
    }


def session(cluster: KafkaCluster, way: Way, home: Path) -> Session:
    """Run a new session that prepares in a way; `home` is Spark's folder with bytecode."""
    with spark_home(home if way.bytecode else None):
        spark = spark_session()
    try:
        began = time.perf_counter()
        warm_up = spark_producer.warm_up(spark) if way.warmed_up else None
        columns = [f.col("id").cast("string").cast("binary").alias("key"), f.repeat(f.lit("x"), 100).alias("value")]
        frame = spark.range(ROWS).select(*columns)
        frame.count()
        if warm_up is not None:
            warm_up.join(SECONDS)
        warmed_up = time.perf_counter() - began if warm_up is not None else None
        topic = f"{way.sink}-{uuid.uuid4().hex[:8]}"
        cluster.create_topic(topic, PARTITIONS)
        before = python_cpu(spark)
        began = time.perf_counter()
        if way.registered:
            spark_producer.register(spark)
        writes = [time.perf_counter() - began + write(frame, way.sink, cluster.bootstrap_servers, topic)]
        cpu = python_cpu(spark) - before
        writes += [write(frame, way.sink, cluster.bootstrap_servers, topic) for _ in range(WRITES - 1)]
        return Session(writes, cpu, warmed_up)
    finally:
        end_session(spark)


def write(frame: DataFrame, sink: str, servers: str, topic: str) -> float:
    """Return the seconds of one write."""
    began = time.perf_counter()
    writer = frame.write.format(sink).option("kafka.bootstrap.servers", servers).option("topic", topic)
    writer.mode("append").save()
    return time.perf_counter() - began


def python_cpu(spark: SparkSession) -> float:
    """Return the seconds of CPU that the Python processes of the JVM have used so far."""
    used = 0.0
    for process in psutil.Process(jvm_pid(spark)).children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            used += times.user + times.system
    return used


@contextmanager
def spark_home(home: Path | None) -> Iterator[None]:
    """Let PySpark start the Spark of a folder, or its own."""
    before = os.environ.pop("SPARK_HOME", None)
    if home is not None:
        os.environ["SPARK_HOME"] = str(home)
    try:
        yield
    finally:
        os.environ.pop("SPARK_HOME", None)
        if before is not None:
            os.environ["SPARK_HOME"] = before


def home_with_bytecode(folder: Path) -> Path:
    """Return a home of Spark in `folder`: links to the installed one, and archives with bytecode."""
    installed = Path(pyspark.__file__).parent
    for entry in installed.iterdir():
        if entry.name != "python":
            (folder / entry.name).symlink_to(entry)
    shutil.copytree(installed / "python", folder / "python")
    for archive in archives(folder).split(os.pathsep):
        add_bytecode(Path(archive))
    return folder


def archives(home: Path) -> str:
    """Return the entries that Spark puts first on the path of its Python processes."""
    found = sorted((home / "python" / "lib").glob("*.zip"), reverse=True)
    return os.pathsep.join(str(archive) for archive in found)


def imports(path: str) -> list[float]:
    """Return the seconds of new interpreters with the imports of every Python process of Spark, from `path`."""
    taken = []
    for _ in range(SESSIONS + 1):
        began = time.perf_counter()
        subprocess.run(
            [sys.executable, "-c", _IMPORT], env=os.environ | {"PYTHONPATH": path}, timeout=SECONDS, check=True
        )
        taken.append(time.perf_counter() - began)
    return taken[1:]


def page(results: Results) -> str:
    """Return the table, and the text that says where the seconds go."""
    writes, cpu, rows = results["writes"], results["cpu"], results["rows"]
    lines = [
        f"{rows:,} rows to {PARTITIONS} partitions, written {WRITES} times by each of {len(writes[SPARKS])} new sessions "
        "(`local[2]`): seconds, medians; *× Spark's sink* is of the first write, and *Python* is the CPU of Spark's Python "
        "processes in it.",
        "",
        "| | " + " | ".join(f"write {number + 1}" for number in range(WRITES)) + " | × Spark's sink | Python |",
        "|---|" + "--:|" * (WRITES + 2),
    ]
    base = statistics.median(taken[0] for taken in writes[SPARKS])
    for name, sessions in writes.items():
        middle = [statistics.median(taken) for taken in zip(*sessions, strict=True)]
        shown = [f"{seconds:.2f}" for seconds in middle]
        python = f"{statistics.median(cpu[name]):.2f}"
        lines.append(f"| {WAYS[name].label} | {' | '.join(shown)} | {middle[0] / base:.1f} | {python} |")
    zipped, bytecode = (
        statistics.median(results["zip"]),
        statistics.median(results["bytecode"]),
    )
    text = (
        "The first write waits for four Python processes, which Spark starts one after the other. Each compiles PySpark from "
        f"`pyspark.zip`: {zipped:.2f} s, or {bytecode:.2f} s with bytecode. Later writes and all micro-batches use them again. "
    )
    warm_up = statistics.median(results["warm_up"]["warmed-up"])
    text += f"`warm_up` took {warm_up:.1f} s beside the program's own first job. "
    lines += ["", text + "[What you can do](latency.md#the-first-write)."]
    return "\n".join(lines)


PART = Part("first-write", "The first write of a session", run, page)
"""The benchmark of first writes: its table; figures are not judged here."""
