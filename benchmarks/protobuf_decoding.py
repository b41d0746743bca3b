"""Frames of Protobuf decoded into columns, beside a UDF with Google's library: `python -m benchmarks --parts protobuf-decoding`.

Both decode the same rows, which are those of part `avro`, held in memory, into Spark's `noop`, and take turns. One only hands the
rows to `noop`. The decoders alone are measured on one of Spark's Arrow batches.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from benchmarks.column_functions import (
    BYTES,
    COLUMNS,
    ENCODED_ROWS,
    ENCODER_ROUNDS,
    FEWER,
    PARTITIONS,
    ROWS,
    SCHEMA_ID,
    TYPE,
    UDF,
    Contenders,
    as_they_are,
    in_memory,
    introduction,
    least_nanoseconds,
    measure_functions,
    table,
    utc_session,
)
from benchmarks.part import Options, Part, Results
from spark_producer.kernel.arrays import ArrowArray
from spark_producer.schemas import from_confluent_protobuf
from spark_producer.schemas.protobuf.column_reader import ReaderSchema, protobuf_reader
from spark_producer.schemas.protobuf.compiler import ProtobufSchema, compiled
from spark_producer.schemas.wire_format import prefix_of

FRAME = 6
"""The bytes before the message."""

SCHEMA = """
syntax = "proto3";
import "google/protobuf/timestamp.proto";
message Flight {
  int64 id = 1;
  int32 delay = 2;
  double distance = 3;
  optional string tail = 4;
  string carrier = 5;
  google.protobuf.Timestamp at = 6;
}
"""

LABELS: Mapping[str, str] = {
    "bytes": "the frames, not decoded",
    "columns": "from_confluent_protobuf",
    "udf": "a UDF with Google's protobuf",
}


def message_class(files: bytes) -> Any:
    """Return the class of the message, from the descriptors of its file and of Protobuf's own."""
    pool: Any = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(files).file:
        pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("Flight"))


def descriptors() -> bytes:
    """Return the descriptors of the schema's file and of the one that it imports."""
    file = compiled(ProtobufSchema(SCHEMA), "the schema")
    own = (*file.dependencies, file)
    parsed = [descriptor_pb2.FileDescriptorProto.FromString(each.serialized_pb) for each in own]
    found: bytes = descriptor_pb2.FileDescriptorSet(file=parsed).SerializeToString()
    return found


def frames(count: int = ENCODED_ROWS) -> list[bytes]:
    """Return the first rows of part `avro` as frames."""
    kind, prefix, found = message_class(descriptors()), prefix_of(SCHEMA_ID, (0,)), []
    for number in range(count):
        row = kind(id=number, delay=number % 3000, distance=number * 1.1, carrier=f"carrier {number % 16}")
        if number % 7:
            row.tail = f"N{number % 5000}"
        row.at.FromMicroseconds(number * 1_000_003 + 1_700_000_000_000_000)
        found.append(prefix + row.SerializeToString())
    return found


def _columns() -> Column:
    return from_confluent_protobuf("value", schema=SCHEMA)


def values_of(row: Any) -> tuple[Any, ...]:
    """Return the values of a message, as a UDF returns them."""
    tail = row.tail if row.HasField("tail") else None
    return row.id, row.delay, row.distance, tail, row.carrier, row.at.ToDatetime()


def _udf() -> Column:
    files = descriptors()

    @f.udf(TYPE)
    def decode(value: Any) -> Any:
        kind = decode.__dict__.get("kind") or decode.__dict__.setdefault("kind", message_class(files))
        return values_of(kind.FromString(value[FRAME:]))

    return decode("value")


DECODERS: Contenders = {BYTES: as_they_are, COLUMNS: _columns, UDF: _udf}


def run(options: Options) -> Results:
    """Decode all rounds, and return the seconds and client CPU per million rows of each contender, round by round."""
    rows = frames()
    alone = {"columns": decoder_nanoseconds(pa.array(rows, pa.binary())), "protobuf": protobuf_nanoseconds(rows)}
    with utc_session() as spark:
        all_rows, fewer = _frames(spark, rows, ROWS), _frames(spark, rows, FEWER)
        return {**measure_functions(options, spark, DECODERS, all_rows, fewer), "alone": alone}


def _frames(spark: SparkSession, rows: list[bytes], count: int) -> DataFrame:
    """Return the rows, repeated, all of them in memory."""
    once = spark.createDataFrame([(row,) for row in rows], "value binary").coalesce(1)
    numbers = spark.range(0, count // len(rows), 1, PARTITIONS)
    return in_memory(numbers.crossJoin(f.broadcast(once)).select("value"))


def decoder_nanoseconds(batch: ArrowArray, rounds: int = ENCODER_ROUNDS) -> float:
    """Return the least CPU nanoseconds a row of the decoder alone."""
    decoder = protobuf_reader("value", ReaderSchema(SCHEMA, None), "FAILFAST", {}, None).decoder()
    return least_nanoseconds(lambda: decoder.decode(batch), len(batch), rounds)


def protobuf_nanoseconds(rows: list[bytes], rounds: int = 5) -> float:
    """Return the least CPU nanoseconds a row of Google's library, into Python's values."""
    kind = message_class(descriptors())
    contents = [row[FRAME:] for row in rows]

    def read() -> None:
        for content in contents:
            values_of(kind.FromString(content))

    return least_nanoseconds(read, len(rows), rounds)


def page(results: Results) -> str:
    """Return the table."""
    alone = results["alone"]
    lines = [
        introduction("frames with rows as in [Avro](#avro), decoded into", results),
        *table(results, LABELS),
        f"The decoder alone takes {alone['columns']:.0f} ns of CPU a row, {ENCODED_ROWS:,} rows at a time; Google's library "
        f"{alone['protobuf']:,.0f}, into Python's values.",
    ]
    return "\n".join(lines)


PART = Part("protobuf-decoding", "Protobuf decoded", run, page)
