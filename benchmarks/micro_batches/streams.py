"""Queries that write rows in micro-batches of a steady size, and the times that Spark gives for each batch."""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from benchmarks.contenders import TUNED

TASKS = 4
VALUE_BYTES = 100
POLL_SECONDS = 0.2
QUERY_SECONDS = 240.0

Configure = Callable[[DataStreamWriter, str, str], DataStreamWriter]
"""(writer, bootstrap servers, topic) → the configured writer."""


@dataclass(frozen=True)
class StreamContender:
    """A sink that is compared; it has one bar in the pictures."""

    name: str
    label: str
    configure: Configure
    reaches_kafka: bool = True
    transactional: bool = False
    """Whether it writes in transactions, whose markers take offsets too."""


@dataclass(frozen=True)
class Batch:
    """The milliseconds of one micro-batch, from the query's progress."""

    trigger: float
    add_batch: float


@dataclass
class StreamResult:
    """The measured micro-batches of one contender."""

    contender: StreamContender
    batches: list[Batch] = field(default_factory=list)


def _format(name: str, options: dict[str, str] | None = None) -> Configure:
    return lambda writer, _servers, _topic: writer.format(name).options(**options or {})


def _sink(name: str, options: dict[str, str]) -> Configure:
    def configure(writer: DataStreamWriter, servers: str, topic: str) -> DataStreamWriter:
        return writer.format(name).option("kafka.bootstrap.servers", servers).option("topic", topic).options(**options)

    return configure


def _exactly_once(writer: DataStreamWriter, servers: str, topic: str) -> DataStreamWriter:
    return _sink("pyproducer", {"exactlyOnceId": topic})(writer, servers, topic)


CONTENDERS = (
    StreamContender("noop", "JVM noop sink", _format("noop"), reaches_kafka=False),
    StreamContender("floor", "Python, only counted", _format("counting"), reaches_kafka=False),
    StreamContender(
        "floor-tricks",
        "Python, only counted, our settings",
        _format("counting", {"tricks": "true"}),
        reaches_kafka=False,
    ),
    StreamContender("spark", "Spark's Kafka sink", _sink("kafka", {})),
    StreamContender("spark-tuned", "Spark's Kafka sink, tuned", _sink("kafka", TUNED)),
    StreamContender("pyproducer", "pyproducer", _sink("pyproducer", {})),
    StreamContender("pyproducer-exactly-once", "pyproducer, exactly once", _exactly_once, transactional=True),
)


def rows(spark: SparkSession, per_batch: int, batches: int) -> DataFrame:
    """Return a stream of `per_batch` rows in each of the first `batches` micro-batches: keys, and values of 100 B."""
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", per_batch)
    return (
        source.option("numPartitions", TASKS)
        .load()
        .where(f"value < {per_batch * batches}")
        .selectExpr(
            "cast(cast(value as string) as binary) as key",
            f"cast(rpad(cast(value as string), {VALUE_BYTES}, 'x') as binary) as value",
        )
    )


@contextmanager
def running(writer: DataStreamWriter) -> Iterator[StreamingQuery]:
    """Run a query with a checkpoint, which is removed afterwards."""
    home = Path(tempfile.mkdtemp(prefix="pyproducer-stream-"))
    query = writer.option("checkpointLocation", str(home)).start()
    try:
        yield query
    finally:
        query.stop()
        shutil.rmtree(home, ignore_errors=True)


def measure(
    spark: SparkSession, contender: StreamContender, servers: str, topic: str, per_batch: int, warmups: int, count: int
) -> list[Batch]:
    """Return the times of the micro-batches after the first `warmups`.

    Raises:
        RuntimeError: they were not done in time.
    """
    frame = rows(spark, per_batch, warmups + count)
    deadline = time.monotonic() + QUERY_SECONDS
    with running(contender.configure(frame.writeStream, servers, topic)) as query:
        while (last := query.lastProgress) is None or last["batchId"] < warmups + count - 1:
            if not query.isActive:
                query.awaitTermination()
            if time.monotonic() > deadline:
                raise RuntimeError(
                    f"{contender.label}: {warmups + count} micro-batches took more than {QUERY_SECONDS} s"
                )
            time.sleep(POLL_SECONDS)
        done = [json.loads(progress.json) for progress in query.recentProgress]
    took = {progress["batchId"]: progress["durationMs"] for progress in done}
    return [Batch(took[n]["triggerExecution"], took[n]["addBatch"]) for n in range(warmups, warmups + count)]
