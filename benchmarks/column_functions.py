"""What the parts of Avro, Protobuf and JSON Schema share: the rows, the rounds in Spark, the functions alone, and the table.

Owns: the rows and their number, and the number of rounds. Must not know: formats.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import partial

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from benchmarks.measure import Meter, Run
from benchmarks.part import Options
from benchmarks.session import end_session, jvm_pid, spark_session
from spark_producer.kernel.arrays import ArrowArray

ROWS, FEWER, PARTITIONS = 2_000_000, 200_000, 4
"""The rows that are decoded or encoded, those of the UDF, and the tasks."""
ROUNDS, WARMUPS = 5, 1
ENCODED_ROWS, ENCODER_ROUNDS = 10_000, 100
"""The rows of one of Spark's Arrow batches, and how often they are encoded or decoded."""
SCHEMA_ID = 7
BYTES, COLUMNS, UDF = "bytes", "columns", "udf"
"""The contenders of each part: the column as it is, our column function, and a UDF."""

TYPE = "struct<id: bigint, delay: int, distance: double, tail: string, carrier: string, at: timestamp>"
ARROW_TYPE = pa.struct([
    ("id", pa.int64()), ("delay", pa.int32()), ("distance", pa.float64()), ("tail", pa.string()), ("carrier", pa.string()),
    ("at", pa.timestamp("us", "UTC")),
])  # fmt: skip
"""The type of the rows, in Spark and in Arrow."""

Contenders = Mapping[str, Callable[[], Column]]
"""The column that each contender makes of the column `value`."""

Rounds = dict[str, dict[str, list[float]]]
"""`seconds` and `cpu` per million rows of each contender, round by round."""


def flights(frame: DataFrame) -> DataFrame:
    """Return a struct for each number in the column `id`."""
    number = f.col("id")
    tail = f.when(number % 7 != 0, f.concat(f.lit("N"), number % 5000))
    return frame.select(
        f.struct(
            "id",
            (number % 3000).cast("int").alias("delay"),
            (number * 1.1).alias("distance"),
            tail.alias("tail"),
            f.concat(f.lit("carrier "), number % 16).alias("carrier"),
            f.timestamp_micros(number * 1_000_003 + 1_700_000_000_000_000).alias("at"),
        ).alias("value")
    )


def first_flights(count: int = ENCODED_ROWS) -> ArrowArray:
    """Return the first structs as Arrow has them."""
    return pa.array(
        [
            {
                "id": number,
                "delay": number % 3000,
                "distance": number * 1.1,
                "tail": f"N{number % 5000}" if number % 7 else None,
                "carrier": f"carrier {number % 16}",
                "at": number * 1_000_003 + 1_700_000_000_000_000,
            }
            for number in range(count)
        ],
        ARROW_TYPE,
    )


@contextmanager
def utc_session(jars: str = "") -> Iterator[SparkSession]:
    """Yield a session in UTC, and end it. `jars` are added to its class path."""
    spark = spark_session({"spark.sql.session.timeZone": "UTC"} | ({"spark.jars": jars} if jars else {}))
    try:
        yield spark
    finally:
        end_session(spark)


def structs(spark: SparkSession) -> tuple[DataFrame, DataFrame]:
    """Return the rows as structs in memory, all of them and those of the UDF."""
    both = (in_memory(flights(spark.range(0, count, 1, PARTITIONS))) for count in (ROWS, FEWER))
    return next(both), next(both)


def in_memory(frame: DataFrame) -> DataFrame:
    """Return `frame` with all rows in memory."""
    kept = frame.persist(StorageLevel.MEMORY_ONLY)
    kept.count()
    return kept


def as_they_are() -> Column:
    """Return the column itself."""
    return f.col("value")


def measure_functions(
    options: Options, spark: SparkSession, contenders: Contenders, frames: DataFrame, fewer: DataFrame
) -> Rounds:
    """Return what it takes to write each contender's column into `noop`. The UDF gets `fewer`."""
    meter = Meter(jvm_pid(spark), os.getpid())

    def measure(name: str, function: Callable[[], Column]) -> Run:
        frame, rows = (fewer, FEWER) if name == UDF else (frames, ROWS)
        return meter.measure(rows, lambda: _select(frame, function()))

    return measure_rounds(options, {name: partial(measure, name, each) for name, each in contenders.items()})


def _select(frame: DataFrame, column: Column) -> None:
    frame.select(column.alias("value")).write.format("noop").mode("overwrite").save()


def measure_rounds(options: Options, contenders: Mapping[str, Callable[[], Run]], rounds: int = ROUNDS) -> Rounds:
    """Let the contenders take turns, and return what they took. The first rounds only warm up."""
    taken: Rounds = {kind: {name: [] for name in contenders} for kind in ("seconds", "cpu")}
    warmups = WARMUPS if options.warmups is None else options.warmups
    for number in range((options.repetitions or rounds) + warmups):
        for name, contender in contenders.items():
            done = contender()
            seconds = done.seconds * 1_000_000 / done.rows
            print(f"{name}: {seconds:.2f} s, {done.client_per_million:.2f} s of CPU a million rows", flush=True)
            if number >= warmups:
                taken["seconds"][name].append(seconds)
                taken["cpu"][name].append(done.client_per_million)
    return taken


def least_nanoseconds(work: Callable[[], object], rows: int, rounds: int) -> float:
    """Return the least CPU nanoseconds a row of `work`: what else the machine does only adds to them."""
    taken = []
    for _ in range(rounds):
        began = time.thread_time_ns()
        work()
        taken.append(time.thread_time_ns() - began)
    return min(taken) / rows


def introduction(what: str, measured: Mapping[str, Mapping[str, list[float]]]) -> str:
    """Return the text before a table; `what` says which rows, and what is done with them."""
    return (
        f"{ROWS:,} cached {what} Spark's `noop` (`local[2]`), by the UDF {FEWER:,} of them. Seconds a million rows, and CPU "
        f"seconds of Spark and its Python workers, medians of {len(measured['seconds'][BYTES])} rounds; the ratios are medians "
        "of the rounds' seconds."
    )


def table(
    measured: Mapping[str, Mapping[str, list[float]]], labels: Mapping[str, str], rivals: Collection[str] = (UDF,)
) -> list[str]:
    """Return the lines of the medians, and of the ratios between `rivals` and our column function."""
    seconds, cpu = measured["seconds"], measured["cpu"]
    lines = ["", f"| | seconds | CPU | {labels[COLUMNS]} is |", "|---|--:|--:|--:|"]
    for name, label in labels.items():
        medians = f"{statistics.median(seconds[name]):.2f} | {statistics.median(cpu[name]):.2f}"
        pairs = zip(seconds[name], seconds[COLUMNS], strict=True)
        ratio = statistics.median(other / ours for other, ours in pairs)
        lines.append(f"| {label} | {medians} | {f'{ratio:.2f}× as fast' if name in rivals else ''} |")
    return [*lines, ""]
