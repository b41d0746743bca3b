"""What the parts of column functions share: the rounds in Spark, the functions alone, and the table.

Owns: the number of rows and rounds. Must not know: formats.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Collection, Mapping

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from benchmarks.measure import Meter
from benchmarks.part import Options
from benchmarks.session import jvm_pid

ROWS, FEWER, PARTITIONS = 2_000_000, 200_000, 4
"""The rows that are decoded or encoded, those of the UDF, and the tasks."""
ROUNDS, WARMUPS = 5, 1
BYTES, COLUMNS, UDF = "bytes", "columns", "udf"
"""The contenders of each part: the column as it is, our column function, and a UDF."""

Decoders = Mapping[str, Callable[[], Column]]


def measure_rounds(
    options: Options, spark: SparkSession, decoders: Decoders, frames: DataFrame, fewer: DataFrame
) -> dict[str, dict[str, list[float]]]:
    """Return seconds and client CPU per million rows of each contender, round by round. The UDF gets `fewer`."""
    taken: dict[str, dict[str, list[float]]] = {kind: {name: [] for name in decoders} for kind in ("seconds", "cpu")}
    warmups = WARMUPS if options.warmups is None else options.warmups
    meter = Meter(jvm_pid(spark), os.getpid())
    for number in range((options.repetitions or ROUNDS) + warmups):
        for name, decoder in decoders.items():
            frame, rows = (fewer, FEWER) if name == UDF else (frames, ROWS)
            done = meter.measure(rows, lambda frame=frame, decoder=decoder: _decode(frame, decoder()))  # type: ignore[misc]
            seconds = done.seconds * 1_000_000 / rows
            print(f"{name}: {seconds:.2f} s, {done.client_per_million:.2f} s of CPU a million rows", flush=True)
            if number >= warmups:
                taken["seconds"][name].append(seconds)
                taken["cpu"][name].append(done.client_per_million)
    return taken


def in_memory(frame: DataFrame) -> DataFrame:
    """Return `frame` with all rows in memory."""
    kept = frame.persist(StorageLevel.MEMORY_ONLY)
    kept.count()
    return kept


def _decode(frame: DataFrame, column: Column) -> None:
    frame.select(column.alias("value")).write.format("noop").mode("overwrite").save()


def as_they_are() -> Column:
    """Return the column itself."""
    return f.col("value")


def least_nanoseconds(work: Callable[[], object], rows: int, rounds: int) -> float:
    """Return the least CPU nanoseconds a row of `work`: what else the machine does only adds to them."""
    taken = []
    for _ in range(rounds):
        began = time.thread_time_ns()
        work()
        taken.append(time.thread_time_ns() - began)
    return min(taken) / rows


def table(
    seconds: Mapping[str, list[float]],
    cpu: Mapping[str, list[float]],
    labels: Mapping[str, str],
    rivals: Collection[str] = (UDF,),
) -> list[str]:
    """Return the lines of the medians, and of the ratios between `rivals` and our column function."""
    lines = ["", f"| | seconds | CPU | {labels[COLUMNS]} is |", "|---|--:|--:|--:|"]
    for name, label in labels.items():
        medians = f"{statistics.median(seconds[name]):.2f} | {statistics.median(cpu[name]):.2f}"
        pairs = zip(seconds[name], seconds[COLUMNS], strict=True)
        ratio = statistics.median(other / ours for other, ours in pairs)
        lines.append(f"| {label} | {medians} | {f'{ratio:.2f}× as fast' if name in rivals else ''} |")
    return [*lines, ""]
