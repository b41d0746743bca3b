"""JSON Schema both ways, beside UDFs with Python's `json`: `python -m benchmarks --parts json-schema`.

All encode, or decode, the rows of part `avro`, held in memory, into Spark's `noop`, and take turns. One only hands the rows to
`noop`. Encoder and decoder alone are measured on one of Spark's Arrow batches.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as f

from benchmarks.column_functions import (
    ARROW_TYPE,
    BYTES,
    COLUMNS,
    ENCODED_ROWS,
    ENCODER_ROUNDS,
    SCHEMA_ID,
    TYPE,
    UDF,
    Contenders,
    as_they_are,
    first_flights,
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
from spark_producer.schemas import from_confluent_json_schema, to_confluent_json_schema
from spark_producer.schemas.column_format import ColumnFormat, encode_column
from spark_producer.schemas.json_schema.column_plan import derived_plan
from spark_producer.schemas.json_schema.column_reader import json_schema_reader
from spark_producer.schemas.json_schema.derived_schema import json_schema
from spark_producer.schemas.wire_format import prefix_of

PREFIX = prefix_of(SCHEMA_ID)
SCHEMA = json.dumps(json_schema(ARROW_TYPE, "value"))

ENCODED: Mapping[str, str] = {
    "bytes": "the structs, not encoded",
    "columns": "to_confluent_json_schema",
    "udf": "a UDF with Python's json",
}
DECODED: Mapping[str, str] = {
    "bytes": "the frames, not decoded",
    "columns": "from_confluent_json_schema",
    "udf": "a UDF with Python's json",
}


def _encoding_udf() -> Column:
    @f.udf("binary")
    def encode(value: Any) -> bytes:
        fields = value.asDict() | {"at": value.at.isoformat() + "Z"}
        return PREFIX + json.dumps({name: each for name, each in fields.items() if each is not None}).encode()

    return encode("value")


def _decoding_udf() -> Column:
    @f.udf(TYPE)
    def decode(value: Any) -> Any:
        import datetime

        found = json.loads(value[len(PREFIX) :])
        at = datetime.datetime.fromisoformat(found["at"])
        return found["id"], found["delay"], found["distance"], found.get("tail"), found["carrier"], at

    return decode("value")


ENCODERS: Contenders = {
    BYTES: as_they_are, COLUMNS: lambda: to_confluent_json_schema("value", SCHEMA_ID), UDF: _encoding_udf
}  # fmt: skip
DECODERS: Contenders = {
    BYTES: as_they_are, COLUMNS: lambda: from_confluent_json_schema("value", schema=SCHEMA), UDF: _decoding_udf
}  # fmt: skip


def run(options: Options) -> Results:
    """Encode and decode all rounds, and return the seconds and client CPU per million rows of each contender, round by round."""
    alone = nanoseconds()
    with utc_session() as spark:
        everything, fewer = structs(spark)
        encoding = measure_functions(options, spark, ENCODERS, everything, fewer)
        encoded = to_confluent_json_schema("value", SCHEMA_ID).alias("value")
        frames = [in_memory(each.select(encoded)) for each in (everything, fewer)]
        return {
            "encoding": encoding,
            "decoding": measure_functions(options, spark, DECODERS, *frames),
            "alone": alone,
        }


def nanoseconds(count: int = ENCODED_ROWS, rounds: int = ENCODER_ROUNDS) -> dict[str, float]:
    """Return the least CPU nanoseconds a row of the encoder and the decoder alone, and of Python's json into its own values."""
    batch = first_flights(count)
    form = ColumnFormat(PREFIX, derived_plan(batch.type, "value"))
    frames: Any = encode_column(form, batch).column
    texts = [each[len(PREFIX) :] for each in frames.to_pylist()]
    binary: ArrowArray = frames.cast("binary")
    decoder = json_schema_reader("value", SCHEMA, "FAILFAST", {}, None).decoder()
    return {
        "encoder": least_nanoseconds(lambda: encode_column(form, batch), count, rounds),
        "decoder": least_nanoseconds(lambda: decoder.decode(binary), count, rounds),
        "json": least_nanoseconds(lambda: [json.loads(text) for text in texts], count, min(rounds, 5)),
    }


def page(results: Results) -> str:
    """Return the tables."""
    alone = results["alone"]
    lines = [introduction("rows as in [Avro](#avro), encoded and decoded into", results["encoding"])]
    for name, labels in (("encoding", ENCODED), ("decoding", DECODED)):
        lines += table(results[name], labels)
    lines.append(
        f"Alone the encoder takes {alone['encoder']:.0f} ns of CPU a row and the decoder {alone['decoder']:.0f}, "
        f"{ENCODED_ROWS:,} rows at a time; Python's json reads one in {alone['json']:,.0f}, into its own values."
    )
    return "\n".join(lines)


PART = Part("json-schema", "JSON Schema", run, page)
