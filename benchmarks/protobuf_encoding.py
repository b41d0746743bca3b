"""Columns of structs encoded as Protobuf, beside a UDF with Google's library: `python -m benchmarks --parts protobuf-encoding`.

Both encode the same rows, which are those of part `avro`, held in memory, into Spark's `noop`, and take turns. One only hands the
structs to `noop`. The encoders alone are measured on one of Spark's Arrow batches.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from pyspark.sql import Column
from pyspark.sql import functions as f

from benchmarks.column_functions import (
    BYTES,
    COLUMNS,
    ENCODED_ROWS,
    ENCODER_ROUNDS,
    SCHEMA_ID,
    UDF,
    Contenders,
    as_they_are,
    first_flights,
    introduction,
    least_nanoseconds,
    measure_functions,
    structs,
    table,
    utc_session,
)
from benchmarks.part import Options, Part, Results
from benchmarks.protobuf_decoding import SCHEMA, descriptors, message_class
from spark_producer.kernel.arrays import ArrowArray
from spark_producer.schemas import to_confluent_protobuf
from spark_producer.schemas.column_format import ColumnFormat, encode_column
from spark_producer.schemas.protobuf.compiler import ProtobufSchema, compiled, message_of
from spark_producer.schemas.protobuf.plan import plan_of
from spark_producer.schemas.wire_format import prefix_of

PREFIX = prefix_of(SCHEMA_ID, (0,))

LABELS: Mapping[str, str] = {
    "bytes": "the structs, not encoded",
    "columns": "to_confluent_protobuf",
    "udf": "a UDF with Google's protobuf",
}


def message_of_row(kind: Any, value: Any) -> Any:
    """Return the message of a row, as a UDF makes it."""
    found = kind(id=value["id"], delay=value["delay"], distance=value["distance"], carrier=value["carrier"])
    if value["tail"] is not None:
        found.tail = value["tail"]
    found.at.FromDatetime(value["at"])
    return found


def _columns() -> Column:
    return to_confluent_protobuf("value", SCHEMA_ID, SCHEMA)


def _udf() -> Column:
    files = descriptors()

    @f.udf("binary")
    def encode(value: Any) -> bytes:
        kind = encode.__dict__.get("kind") or encode.__dict__.setdefault("kind", message_class(files))
        content: bytes = message_of_row(kind, value).SerializeToString()
        return PREFIX + content

    return encode("value")


ENCODERS: Contenders = {BYTES: as_they_are, COLUMNS: _columns, UDF: _udf}


def run(options: Options) -> Results:
    """Encode all rounds, and return the seconds and client CPU per million rows of each contender, round by round."""
    batch = first_flights()
    alone = {"columns": encoder_nanoseconds(batch), "protobuf": protobuf_nanoseconds(batch)}
    with utc_session() as spark:
        everything, fewer = structs(spark)
        return {**measure_functions(options, spark, ENCODERS, everything, fewer), "alone": alone}


def encoder_nanoseconds(batch: ArrowArray, rounds: int = ENCODER_ROUNDS) -> float:
    """Return the least CPU nanoseconds a row of the encoder alone."""
    message = message_of(compiled(ProtobufSchema(SCHEMA), "the schema"), None, "the schema")
    form = ColumnFormat(PREFIX, plan_of(message, batch.type, "value"))
    return least_nanoseconds(lambda: encode_column(form, batch), len(batch), rounds)


def protobuf_nanoseconds(batch: ArrowArray, rounds: int = 5) -> float:
    """Return the least CPU nanoseconds a row of Google's library, from Python's values."""
    kind = message_class(descriptors())
    values: list[Any] = cast("Any", batch).to_pylist()

    def write() -> None:
        for value in values:
            message_of_row(kind, value).SerializeToString()

    return least_nanoseconds(write, len(values), rounds)


def page(results: Results) -> str:
    """Return the table."""
    alone = results["alone"]
    lines = [
        introduction("structs with rows as in [Avro](#avro), encoded into", results),
        *table(results, LABELS),
        f"The encoder alone takes {alone['columns']:.0f} ns of CPU a row, {ENCODED_ROWS:,} rows at a time; Google's library "
        f"{alone['protobuf']:,.0f}, from Python's values.",
    ]
    return "\n".join(lines)


PART = Part("protobuf-encoding", "Protobuf encoded", run, page)
