"""Frames of Avro decoded into columns, beside Spark's from_avro and a UDF: `python -m benchmarks --parts avro-decoding`.

All decode the same rows as part `avro` encodes, held in memory, into Spark's `noop`, and take turns. One only hands the rows to
`noop`. The decoders alone are measured on one of Spark's Arrow batches.
"""

from __future__ import annotations

import io
import json
import os
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

import fastavro
from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from benchmarks.avro import ENCODED_ROWS, ENCODER_ROUNDS, SCHEMA, SCHEMA_ID, SPARK_AVRO, flights
from benchmarks.headlines import Headline
from benchmarks.measure import Meter
from benchmarks.part import Options, Part, Results
from benchmarks.session import end_session, jvm_pid, spark_session
from spark_producer.kernel.arrays import ArrowArray
from spark_producer.schemas import from_confluent_avro, to_confluent_avro
from spark_producer.schemas.decoded_column import ColumnDecoder
from spark_producer.schemas.reader_types import TypeRules
from tests.support.ivy import fetch_jars

ROWS, FEWER, PARTITIONS = 2_000_000, 200_000, 4
ROUNDS, WARMUPS = 5, 1
FRAME = 5
"""The bytes before the value."""

LABELS: Mapping[str, str] = {
    "bytes": "the frames, not decoded",
    "columns": "from_confluent_avro",
    "from_avro": "Spark's from_avro of the bytes after the frame",
    "udf": "a UDF with fastavro",
}

TYPE = "struct<id: bigint, delay: int, distance: double, tail: string, carrier: string, at: timestamp>"


def _columns() -> Column:
    return from_confluent_avro("value", schema=SCHEMA, writer_schemas={SCHEMA_ID: SCHEMA})


def _from_avro() -> Column:
    from pyspark.sql.avro.functions import from_avro

    return from_avro(f.expr(f"substring(value, {FRAME + 1})"), SCHEMA)


def _udf() -> Column:
    @f.udf(TYPE)
    def decode(value: Any) -> Any:
        schema = decode.__dict__.setdefault("schema", fastavro.parse_schema(json.loads(SCHEMA)))
        return fastavro.schemaless_reader(io.BytesIO(value[FRAME:]), schema, None)

    return decode("value")


DECODERS: Mapping[str, Callable[[], Column]] = {
    "bytes": lambda: f.col("value"), "columns": _columns, "from_avro": _from_avro, "udf": _udf,
}  # fmt: skip


def run(options: Options) -> Results:
    """Decode all rounds, and return the seconds and client CPU per million rows of each contender, round by round."""
    jars = ",".join(map(str, fetch_jars(SPARK_AVRO, name="spark-avro", transitive=False).glob("*.jar")))
    taken: dict[str, dict[str, list[float]]] = {kind: {name: [] for name in DECODERS} for kind in ("seconds", "cpu")}
    warmups = WARMUPS if options.warmups is None else options.warmups
    spark = spark_session({"spark.sql.session.timeZone": "UTC", "spark.jars": jars})
    try:
        meter = Meter(jvm_pid(spark), os.getpid())
        all_rows, fewer = _frames(spark, ROWS), _frames(spark, FEWER)
        batch = _batch(all_rows)
        alone = {"columns": decoder_nanoseconds(batch), "fastavro": fastavro_nanoseconds(batch)}
        for number in range((options.repetitions or ROUNDS) + warmups):
            for name, decoder in DECODERS.items():
                frame, rows = (fewer, FEWER) if name == "udf" else (all_rows, ROWS)
                done = meter.measure(rows, lambda frame=frame, decoder=decoder: _decode(frame, decoder()))  # type: ignore[misc]
                seconds = done.seconds * 1_000_000 / rows
                print(f"{name}: {seconds:.2f} s, {done.client_per_million:.2f} s of CPU a million rows", flush=True)
                if number >= warmups:
                    taken["seconds"][name].append(seconds)
                    taken["cpu"][name].append(done.client_per_million)
    finally:
        end_session(spark)
    return {**taken, "alone": alone}


def _decode(frame: DataFrame, column: Column) -> None:
    frame.select(column.alias("value")).write.format("noop").mode("overwrite").save()


def _frames(spark: SparkSession, rows: int) -> DataFrame:
    """Return the rows as frames, all of them in memory."""
    structs = flights(spark.range(0, rows, 1, PARTITIONS))
    frames = structs.select(to_confluent_avro("value", SCHEMA_ID, SCHEMA).alias("value"))
    frames = frames.persist(StorageLevel.MEMORY_ONLY)
    frames.count()
    return frames


def _batch(frames: DataFrame) -> ArrowArray:
    chunks: ArrowArray = frames.limit(ENCODED_ROWS).toArrow()["value"].combine_chunks()
    return chunks


def decoder_nanoseconds(frames: ArrowArray, rounds: int = ENCODER_ROUNDS) -> float:
    """Return the least CPU nanoseconds a row of the decoder alone: what else the machine does only adds to them."""
    decoder = ColumnDecoder(SCHEMA, lambda _: SCHEMA, "value", TypeRules())
    taken = []
    for _ in range(rounds):
        began = time.thread_time_ns()
        decoder.decode(frames)
        taken.append(time.thread_time_ns() - began)
    return min(taken) / len(frames)


def fastavro_nanoseconds(frames: ArrowArray, rounds: int = 5) -> float:
    """Return the least CPU nanoseconds a row of fastavro's compiled reader, into Python's values."""
    schema = fastavro.parse_schema(json.loads(SCHEMA))
    column: Any = frames
    values = [each[FRAME:] for each in column.to_pylist()]
    taken = []
    for _ in range(rounds):
        began = time.thread_time_ns()
        for value in values:
            fastavro.schemaless_reader(io.BytesIO(value), schema, None)
        taken.append(time.thread_time_ns() - began)
    return min(taken) / len(values)


def page(results: Results) -> str:
    """Return the table."""
    seconds, cpu, alone = results["seconds"], results["cpu"], results["alone"]
    lines = [
        f"{ROWS:,} cached frames of the rows of [Avro](#avro), decoded into Spark's `noop` (`local[2]`), by the UDF {FEWER:,} of "
        f"them. Seconds a million rows, and CPU seconds of Spark and its Python workers, medians of {len(seconds['bytes'])} "
        "rounds; the ratios are medians of the rounds' seconds.",
        "",
        "| | seconds | CPU | from_confluent_avro is |",
        "|---|--:|--:|--:|",
    ]
    for name, label in LABELS.items():
        medians = f"{statistics.median(seconds[name]):.2f} | {statistics.median(cpu[name]):.2f}"
        pairs = zip(seconds[name], seconds["columns"], strict=True)
        ratio = statistics.median(other / ours for other, ours in pairs)
        lines.append(f"| {label} | {medians} | {f'{ratio:.2f}× as fast' if name in ('from_avro', 'udf') else ''} |")
    lines += [
        "",
        f"The decoder alone takes {alone['columns']:.0f} ns of CPU a row, {ENCODED_ROWS:,} rows at a time; fastavro's compiled "
        f"reader {alone['fastavro']:,.0f}, into Python's values.",
    ]
    return "\n".join(lines)


def headlines(_: Results) -> list[Headline]:
    """Return no headline: the table says it."""
    return []


PART = Part("avro-decoding", "Avro decoded", run, page, headlines)
