"""A program that does with secrets everything that users do, successes and failures, and keeps all that can be seen of it.

Run with the path of a plan (JSON, see `Plan`): it must not have a secret on its command line itself.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import pickle
import sys
import traceback
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TypedDict

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from spark_producer import Producer
from spark_producer.config import parse_options
from spark_producer.datasource.write.task_settings import TaskSettings
from spark_producer.datasource.write.worker.task import write_task

SECONDS = 60
PACKAGE = str(Path(__file__).parents[2] / "spark_producer")


class Plan(TypedDict):
    """The actions, and the folder of the traces."""

    home: str
    good: dict[str, dict[str, str]]
    """Name → options of the sink, without a topic, that work."""
    bad: dict[str, dict[str, str]]
    """Name → options that do not."""
    streamed: list[str]
    """Names, of good ones and bad ones, for what takes seconds."""
    table: dict[str, str]
    """Options of CREATE TABLE and INSERT."""
    key: str
    """The text of a key, for CREATE TABLE alone."""
    topic: str
    absent: str
    """A topic that does not exist."""


def main(plan: Plan) -> None:
    """Run all actions."""
    logging.basicConfig(level=logging.DEBUG, stream=sys.stderr)
    logging.getLogger("py4j").setLevel(
        logging.WARNING
    )  # at DEBUG it shows each call from Python to Spark, whosever it is
    home = Path(plan["home"])
    spark = session(home)
    try:
        for name, options in plan["good"].items():
            append(spark, options, plan["topic"])
            (home / f"repr-{name}.txt").write_text(shown(options, plan["topic"]))
        for name, options in plan["bad"].items():
            with failure(home, f"append-{name}"):
                append(spark, options, plan["topic"])
            with failure(home, f"producer-{name}"):
                produce(options, plan["topic"])
            with failure(home, f"config-{name}"):
                parse_options({**options, "kafka.no.such.option": "1", "topic": plan["topic"]})
        for name in plan["streamed"]:
            options = plan["good"][name]
            stream(spark, home / "checkpoints" / name, options, plan["topic"])
            with failure(home, f"task-{name}"):
                absent = rows(spark).selectExpr("value", f"'{plan['absent']}' as topic")
                append_frame(absent, {**options, "kafka.max.block.ms": "1000"})
            with failure(home, f"stream-{name}"):
                stream(spark, home / "checkpoints" / f"bad-{name}", plan["bad"][name], plan["topic"])
        by_sql(spark, plan)
        keep_what_the_ui_says(spark, home)
        keep_command_lines(home)
    finally:
        spark.stop()
    print("the program has come to its end")


def session(home: Path) -> SparkSession:
    """Return a Spark session with all logs and listeners switched on."""
    for folder in ("events", "local", "warehouse", "checkpoints", "exceptions"):
        (home / folder).mkdir()
    (home / "rows").mkdir()
    (home / "rows" / "rows.json").write_text('{"value": "streamed"}\n')
    java = f"-Dlog4j2.configurationFile={home}/log4j2.properties -Djava.io.tmpdir={home}/local"
    return (
        SparkSession.builder.master("local[2]")
        .appName("canaries")
        .config("spark.driver.extraJavaOptions", java)
        .config("spark.eventLog.enabled", "true")
        .config("spark.eventLog.compress", "false")
        .config("spark.eventLog.dir", f"file://{home}/events")
        .config("spark.local.dir", str(home / "local"))
        .config("spark.sql.warehouse.dir", str(home / "warehouse"))
        .config("spark.ui.enabled", "true")
        .config("spark.ui.port", "0")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )


def rows(spark: SparkSession) -> DataFrame:
    """A few rows in two tasks."""
    return spark.range(10, numPartitions=2).selectExpr("cast(id as string) as value")


def append_frame(frame: DataFrame, options: Mapping[str, str]) -> None:
    """A batch write."""
    frame.write.format("pyproducer").options(**options).mode("append").save()


def append(spark: SparkSession, options: Mapping[str, str], topic: str) -> None:
    """A batch write of `rows`."""
    append_frame(rows(spark), {**options, "topic": topic})


def stream(spark: SparkSession, checkpoint: Path, options: Mapping[str, str], topic: str) -> None:
    """A stream of one micro-batch."""
    source = spark.readStream.schema("value string").json(str(checkpoint.parents[1] / "rows"))
    writer = source.writeStream.format("pyproducer").options(**options).option("topic", topic)
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    try:
        if not query.awaitTermination(SECONDS):
            raise TimeoutError(f"the query has not ended within {SECONDS} s")
    finally:
        query.stop()


def produce(options: Mapping[str, str], topic: str) -> None:
    """Without Spark."""
    config = {name.removeprefix("kafka."): value for name, value in options.items()}
    with Producer(config) as producer:
        producer.send(topic, "row")
        producer.flush()


def shown(options: Mapping[str, str], topic: str) -> str:
    """Return the representations of a configuration, a task's settings, and a commit message."""
    config, sink = parse_options({**options, "topic": topic})
    settings = TaskSettings(config, sink, buffer_memory_unset=False)
    report = write_task(settings, iter([pa.record_batch({"value": [b"row"]})]))
    return f"{config!r} {config} {settings!r} {report!r} {pickle.dumps(report)!r}"


@contextlib.contextmanager
def failure(home: Path, name: str) -> Iterator[None]:
    """Expect an exception of the `with` block, and write it with the local variables of our own frames."""
    try:
        yield
    except Exception as error:
        text = "".join(traceback.format_exception(error)) + "".join(variables(error)) + repr(vars(error))
        (home / "exceptions" / f"{name}.txt").write_text(text)
        return
    raise AssertionError(f"{name} has not failed")


def variables(error: BaseException | None) -> Iterator[str]:
    """The variables of the frames of this package, as tools show them that report errors."""
    while error is not None:
        for frame, _ in traceback.walk_tb(error.__traceback__):
            if frame.f_code.co_filename.startswith(PACKAGE):
                yield f"{frame.f_code.co_filename} {frame.f_code.co_name} {frame.f_locals!r}\n"
        error = error.__cause__ or error.__context__


def by_sql(spark: SparkSession, plan: Plan) -> None:
    """Statements that hold secrets, and a table that is written to without."""

    def listed(options: Mapping[str, str], between: str) -> str:
        return ", ".join(f"'{name}'{between}'{value}'" for name, value in options.items())

    options = {**plan["table"], "topic": plan["topic"]}
    stored = listed({**options, "kafka.ssl.keystore.key": plan["key"]}, " ")
    spark.sql(f"CREATE TABLE canaries (value STRING) USING pyproducer OPTIONS ({stored})")
    spark.sql(f"INSERT INTO canaries WITH ({listed(options, ' = ')}) VALUES ('by SQL')")
    rows(spark).writeTo("canaries").options(**next(iter(plan["good"].values())), topic=plan["topic"]).append()
    for statement in ("DESCRIBE EXTENDED canaries", "SHOW CREATE TABLE canaries", "SHOW TBLPROPERTIES canaries"):
        print(spark.sql(statement).collect())
    spark.sql("DROP TABLE canaries")


def keep_what_the_ui_says(spark: SparkSession, home: Path) -> None:
    """Write all responses of the REST API of this application."""
    base = f"{spark.sparkContext.uiWebUrl}/api/v1/applications/{spark.sparkContext.applicationId}"
    pages = [
        "environment",
        "jobs",
        "stages?details=true",
        "allexecutors",
        "sql?details=true&planDescription=true&length=1000",
    ]
    for number, page in enumerate(pages):
        with urllib.request.urlopen(f"{base}/{page}", timeout=SECONDS) as answer:
            (home / f"ui-{number}.json").write_bytes(answer.read())


def keep_command_lines(home: Path) -> None:
    """Write the command lines of this process and all that it has started: the JVM, and Spark's workers."""
    parents = {process.name: _parent(process) for process in Path("/proc").glob("[0-9]*")}
    ours = {str(os.getpid())}
    while more := {child for child, parent in parents.items() if parent in ours} - ours:
        ours |= more
    lines = [_read(Path("/proc") / process / "cmdline").replace("\0", " ") for process in sorted(ours)]
    (home / "command-lines.txt").write_text("\n".join(lines))


def _parent(process: Path) -> str:
    return (_read(process / "stat").rpartition(")")[2].split() or ["", ""])[1]


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:  # the process has ended
        return ""


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text()))
