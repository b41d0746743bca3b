"""Frames of Avro decoded into columns, beside Spark's from_avro and a UDF: `python -m benchmarks --parts avro-decoding`.

All decode the same rows as part `avro` encodes, held in memory, into Spark's `noop`, and take turns. One only hands the rows to
`noop`. The decoders alone are measured on one of Spark's Arrow batches.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from typing import Any

import fastavro
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from benchmarks.avro import SCHEMA, SPARK_AVRO
from benchmarks.column_functions import (
    BYTES,
    COLUMNS,
    ENCODED_ROWS,
    ENCODER_ROUNDS,
    SCHEMA_ID,
    TYPE,
    UDF,
    Contenders,
    as_they_are,
    in_memory,
    introduction,
    least_nanoseconds,
    measure_functions,
    structs,
    table,
    utc_session,
)
from benchmarks.part import Options, Part, Results
from spark_producer.kernel.arrays import ArrowArray
from spark_producer.schemas import from_confluent_avro, to_confluent_avro
from spark_producer.schemas.decoded_column import ColumnDecoder
from spark_producer.schemas.reader_types import TypeRules
from tests.support.ivy import fetch_jars

FRAME = 5
"""The bytes before the value."""

LABELS: Mapping[str, str] = {
    "bytes": "the frames, not decoded",
    "columns": "from_confluent_avro",
    "from_avro": "Spark's from_avro of the bytes after the frame",
    "udf": "a UDF with fastavro",
}


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


DECODERS: Contenders = {BYTES: as_they_are, COLUMNS: _columns, "from_avro": _from_avro, UDF: _udf}


def run(options: Options) -> Results:
    """Decode all rounds, and return the seconds and client CPU per million rows of each contender, round by round."""
    jars = ",".join(map(str, fetch_jars(SPARK_AVRO, name="spark-avro", transitive=False).glob("*.jar")))
    with utc_session(jars) as spark:
        encoded = to_confluent_avro("value", SCHEMA_ID, SCHEMA).alias("value")
        frames, fewer = (in_memory(each.select(encoded)) for each in structs(spark))
        batch = _batch(frames)
        alone = {"columns": decoder_nanoseconds(batch), "fastavro": fastavro_nanoseconds(batch)}
        return {**measure_functions(options, spark, DECODERS, frames, fewer), "alone": alone}


def _batch(frames: DataFrame) -> ArrowArray:
    chunks: ArrowArray = frames.limit(ENCODED_ROWS).toArrow()["value"].combine_chunks()
    return chunks


def decoder_nanoseconds(frames: ArrowArray, rounds: int = ENCODER_ROUNDS) -> float:
    """Return the least CPU nanoseconds a row of the decoder alone."""
    decoder = ColumnDecoder(SCHEMA, lambda _: SCHEMA, "value", TypeRules())
    return least_nanoseconds(lambda: decoder.decode(frames), len(frames), rounds)


def fastavro_nanoseconds(frames: ArrowArray, rounds: int = 5) -> float:
    """Return the least CPU nanoseconds a row of fastavro's compiled reader, into Python's values."""
    schema = fastavro.parse_schema(json.loads(SCHEMA))
    column: Any = frames
    values = [each[FRAME:] for each in column.to_pylist()]

    def read() -> None:
        for value in values:
            fastavro.schemaless_reader(io.BytesIO(value), schema, None)

    return least_nanoseconds(read, len(values), rounds)


def page(results: Results) -> str:
    """Return the table."""
    alone = results["alone"]
    lines = [
        introduction("frames of the rows of [Avro](#avro), decoded into", results),
        *table(results, LABELS, ("from_avro", UDF)),
        f"The decoder alone takes {alone['columns']:.0f} ns of CPU a row, {ENCODED_ROWS:,} rows at a time; fastavro's compiled "
        f"reader {alone['fastavro']:,.0f}, into Python's values.",
    ]
    return "\n".join(lines)


PART = Part("avro-decoding", "Avro decoded", run, page)
