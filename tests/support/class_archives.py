"""Archives of the classes that Spark and Kafka load: a JVM maps them into memory, instead of reading them from jars (JEP 350).

They save a process of Spark five of its twelve CPU seconds, and a node of Kafka one of four. A JVM that finds other jars than
those of its archive runs without it.

Owns: where archives are kept, what they depend on, how Spark's is made. Must not know: who starts a JVM.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.ivy import JarsUnavailable, java

MAKE_SECONDS = 240.0
SPARK_JVM = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
"""No session of a test lives long enough to gain from the optimising compiler."""

SILENT = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off")
"""Warnings would go to the standard output, which belongs to Kafka's tools and to the jobs."""

USUAL_WORK = """
import sys
from pyspark import SparkContext
from pyspark.sql import SparkSession, functions as F

home = sys.argv[1]
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
spark.range(100).select(F.col("id").cast("string").alias("key"), "id").write.csv(home + "/files")
read = spark.readStream.schema("key string, id int").csv(home + "/files")
records = read.select("key", F.to_json(F.struct("*")).alias("value"))
writer = records.mapInArrow(lambda batches: batches, "key string, value string").writeStream.format("noop")
query = writer.option("checkpointLocation", home + "/checkpoint").trigger(availableNow=True).start()
assert query.awaitTermination(120)
assert spark.sparkContext.parallelize(range(10), 2).map(lambda number: number).count() == 10
gateway = SparkContext._gateway
spark.stop()
gateway.shutdown()
gateway.proc.stdin.close()  # the JVM ends, and writes the archive
assert gateway.proc.wait(120) == 0
"""


def archive_of(jars: Path, folder: Path) -> Path:
    """Return the path of the archive of a folder of jars in `folder`, whether it exists or not.

    Its name changes with the jars and with Java, since a JVM wants the very files that were there when it was made.
    """
    files = [Path(java()).resolve(), *sorted(jars.glob("*.jar"))]
    facts = [(str(file), status.st_size, status.st_mtime_ns) for file in files for status in [file.stat()]]
    return folder / f"classes-{hashlib.sha256(repr(facts).encode()).hexdigest()[:10]}.jsa"


def is_wanted(archive: Path) -> bool:
    """Whether an archive is still to be made: it is not there, and its folder, which may be another user's, can be written."""
    return not archive.exists() and os.access(archive.parent, os.W_OK)


def use(archive: Path) -> tuple[str, ...]:
    """Options of a JVM that uses an archive; none as long as it was not made."""
    return (f"-XX:SharedArchiveFile={archive}", *SILENT) if archive.exists() else ()


@contextmanager
def making(archive: Path) -> Iterator[tuple[str, ...]]:
    """Options of the one JVM that makes an archive, when it ends in order; those of other jars are removed then.

    A Java that has no archive of its own classes makes none of others either: tests work without, and that is said.
    """
    partial = archive.with_suffix(f".{os.getpid()}")
    try:
        yield (f"-XX:ArchiveClassesAtExit={partial}", *SILENT)
        if partial.exists():
            partial.rename(archive)
            for other in set(archive.parent.glob("classes-*.jsa")) - {archive}:
                other.unlink(missing_ok=True)
        else:
            print(f"{java()} wrote no {archive}: JVMs start more slowly without it", file=sys.stderr)
    finally:
        partial.unlink(missing_ok=True)


def spark_archive() -> Path:
    """The archive of PySpark's jars, which lives and dies with the environment that they are installed in.

    PySpark follows links to its jars, so checkouts that link to one environment have one archive.
    """
    spec = importlib.util.find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    return archive_of(Path(spec.origin).resolve().parent / "jars", Path(sys.prefix))


def spark_options() -> str:
    """The value of SPARK_SUBMIT_OPTS for tests."""
    try:
        return shlex.join([*SPARK_JVM, *use(spark_archive())])
    except JarsUnavailable:  # without Java no test starts Spark
        return shlex.join(SPARK_JVM)


def make_spark_archive() -> None:
    """Do once what tests do in Spark, if there is no archive yet. Raises RuntimeError with what was said."""
    archive = spark_archive()
    if not is_wanted(archive):
        return
    with making(archive) as options, tempfile.TemporaryDirectory() as home:
        environment = {"SPARK_SUBMIT_OPTS": shlex.join([*SPARK_JVM, *options]), "SPARK_LOCAL_IP": "127.0.0.1"}
        environment |= {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
        program = [sys.executable, "-c", USUAL_WORK, home]
        done = subprocess.run(
            program,
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            timeout=MAKE_SECONDS,
            check=False,
        )
        if done.returncode != 0:
            raise RuntimeError(f"Spark could not do its usual work:\n{done.stderr[-4000:]}")
