"""Avro in the sink, beside the same bytes as binary and what else there is: `python -m benchmarks --parts avro`.

All write the same million rows of six fields to one topic, and take turns; a round's ratios are of writes that ran side by side.
Two contenders only count what reaches Python: a struct of six columns costs Spark more to hand over than one of bytes does, and
what remains is ours.
"""

from __future__ import annotations

import statistics
import uuid
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from benchmarks.column_functions import (
    ENCODED_ROWS,
    ENCODER_ROUNDS,
    SCHEMA_ID,
    flights,
    in_memory,
    least_nanoseconds,
    measure_rounds,
    utc_session,
)
from benchmarks.counting import CountingSource
from benchmarks.measure import Meter, Run
from benchmarks.part import Options, Part, Results
from benchmarks.session import broker, jvm_pid
from spark_producer.kernel.arrays import ArrowArray
from spark_producer.schemas import to_confluent_avro
from spark_producer.schemas.column_format import ColumnFormat, encode_column
from spark_producer.schemas.plan import parse_schema, plan_of
from spark_producer.schemas.wire_format import prefix_of
from tests.support.ivy import fetch_jars
from tests.support.jars import spark_sink_jars
from tests.support.kafka_cluster import KafkaCluster

ROWS, FEWER, PARTITIONS = 1_000_000, 100_000, 4
ROUNDS = 3
SPARK_AVRO = ("org.apache.spark", "spark-avro_2.13", "4.1.1")
"""Spark's own to_avro."""

_FIELDS = (
    '{"name":"id","type":"long"},{"name":"delay","type":"int"},{"name":"distance","type":"double"},'
    '{"name":"tail","type":["null","string"]},{"name":"carrier","type":"string"},'
    '{"name":"at","type":{"type":"long","logicalType":"timestamp-micros"}}'
)
SCHEMA = f'{{"type":"record","name":"Flight","fields":[{_FIELDS}]}}'
LABELS: Mapping[str, str] = {
    "read-binary": "the same bytes, handed to Python and counted",
    "read-structs": "the structs, handed to Python and counted",
    "binary": "the same bytes, encoded before, as binary",
    "avro": "valueFormat=avro",
    "to_avro": "Spark's to_avro and a prefix, then the sink",
    "udf": "a UDF with fastavro, then the sink",
}
BASE = "binary"

Write = Callable[[DataFrame, str, str], None]


def _sink(frame: DataFrame, servers: str, topic: str, **options: str) -> None:
    writer = frame.write.format("pyproducer").option("kafka.bootstrap.servers", servers).option("topic", topic)
    writer.options(**options).mode("append").save()


def _count(frame: DataFrame, _servers: str, _topic: str) -> None:
    frame.write.format("counting").option("rows", str(ROWS)).mode("append").save()


def _avro(frame: DataFrame, servers: str, topic: str) -> None:
    _sink(frame, servers, topic, valueFormat="avro", valueSchema=SCHEMA, valueSchemaId=str(SCHEMA_ID))


def _to_avro(frame: DataFrame, servers: str, topic: str) -> None:
    from pyspark.sql.avro.functions import to_avro

    prefix = f.lit(b"\x00" + SCHEMA_ID.to_bytes(4, "big"))
    _sink(frame.select(f.concat(prefix, to_avro("value", SCHEMA)).alias("value")), servers, topic)


def _udf(frame: DataFrame, servers: str, topic: str) -> None:
    @f.udf("binary")
    def encode(value: Any) -> bytes:
        import io
        import json

        import fastavro

        schema = encode.__dict__.setdefault("schema", fastavro.parse_schema(json.loads(SCHEMA)))
        out = io.BytesIO()
        out.write(b"\x00" + SCHEMA_ID.to_bytes(4, "big"))
        fastavro.schemaless_writer(out, schema, value.asDict() | {"at": int(value.at.timestamp() * 1_000_000)})
        return out.getvalue()

    _sink(frame.select(encode("value").alias("value")), servers, topic)


WRITES: Mapping[str, Write] = {
    "read-binary": _count, "read-structs": _count, "binary": _sink, "avro": _avro, "to_avro": _to_avro, "udf": _udf,
}  # fmt: skip


def run(options: Options) -> Results:
    """Write all rounds, and return the seconds and client CPU per million rows of each contender, round by round."""
    avro = fetch_jars(SPARK_AVRO, name="spark-avro", transitive=False).glob("*.jar")
    jars = ",".join(map(str, [*spark_sink_jars(), *avro]))
    with broker() as cluster, utc_session(jars) as spark:
        spark.dataSource.register(CountingSource)
        meter, frames = Meter(jvm_pid(spark), cluster.pid(1)), _frames(spark)
        writes = {
            name: partial(_run, meter, cluster, write, frames[name], FEWER if name == "udf" else ROWS)
            for name, write in WRITES.items()
        }
        encoder = encoder_nanoseconds(_batch(frames["avro"]))
        return {**measure_rounds(options, writes, ROUNDS), "encoder": encoder}


def encoder_nanoseconds(structs: ArrowArray, rounds: int = ENCODER_ROUNDS) -> float:
    """Return the least CPU nanoseconds a row of the encoder alone."""
    form = ColumnFormat(prefix_of(SCHEMA_ID), plan_of(parse_schema(SCHEMA), structs.type, "value"))
    return least_nanoseconds(lambda: encode_column(form, structs), len(structs), rounds)


def _batch(structs: DataFrame) -> ArrowArray:
    chunks: ArrowArray = structs.limit(ENCODED_ROWS).toArrow()["value"].combine_chunks()
    return chunks


def _frames(spark: SparkSession) -> dict[str, DataFrame]:
    """Return what each contender writes, all of it in memory."""
    structs, fewer = (in_memory(flights(spark.range(0, count, 1, 4))) for count in (ROWS, FEWER))
    encoded = in_memory(structs.select(to_confluent_avro("value", SCHEMA_ID, SCHEMA).alias("value")))
    both = {"read-binary": encoded, "read-structs": structs}
    return both | {"binary": encoded, "avro": structs, "to_avro": structs, "udf": fewer}


def _run(meter: Meter, cluster: KafkaCluster, write: Write, frame: DataFrame, rows: int) -> Run:
    topic = f"avro-{uuid.uuid4().hex[:8]}"
    cluster.create_topic(topic, PARTITIONS)
    return meter.measure(rows, lambda: write(frame, cluster.bootstrap_servers, topic))


def page(results: Results) -> str:
    """Return the table."""
    seconds, cpu = results["seconds"], results["cpu"]
    more, handed = _part(cpu, "avro", "binary"), _part(cpu, "read-structs", "read-binary")
    encoder = results["encoder"]
    lines = [
        f"{ROWS:,} cached rows of `struct<bigint, int, double, string null, string, timestamp>`, some 50 B each as Avro, to "
        f"{PARTITIONS} partitions (`local[2]`), the UDF {FEWER:,} of them. Seconds a million rows, and CPU seconds of Spark and "
        f"its Python workers, medians of {len(seconds[BASE])} rounds; the ratios are medians of the rounds' CPU.",
        "",
        "| | seconds | CPU | beside binary |",
        "|---|--:|--:|--:|",
    ]
    for name, label in LABELS.items():
        medians = f"{statistics.median(seconds[name]):.2f} | {statistics.median(cpu[name]):.2f}"
        lines.append(f"| {label} | {medians} | {_ratio(cpu[name], cpu[BASE]):.2f}× |")
    lines += [
        "",
        f"Avro costs {more:.0f} ns of CPU a row more than binary does. Spark takes {handed:.0f} to hand structs to Python "
        f"instead of bytes. The encoder alone takes {encoder:.0f}, {ENCODED_ROWS:,} rows at a time: "
        f"{encoder / _nanoseconds(cpu, BASE):.0%} of the write of binary.",
    ]
    return "\n".join(lines)


def _nanoseconds(cpu: Results, name: str) -> float:
    return 1000.0 * statistics.median(map(float, cpu[name]))


def _part(cpu: Results, more: str, less: str) -> float:
    """Return the median of the rounds' differences, in nanoseconds a row."""
    return 1000.0 * statistics.median(float(one - other) for one, other in zip(cpu[more], cpu[less], strict=True))


def _ratio(ours: list[float], others: list[float]) -> float:
    return statistics.median(one / other for one, other in zip(ours, others, strict=True))


PART = Part("avro", "Avro", run, page)
