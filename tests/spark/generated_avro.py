"""Reads of arbitrary Avro in a process whose time zone is not UTC: `python -m tests.spark.generated_avro ZONE EXAMPLES`.

Rows of two schemas, whose ids change from row to row, are read by the one that has evolved from the other, and fastavro is the
judge of every value. Owns: session, broker and registry. Must not know: how columns are decoded.
"""

from __future__ import annotations

import datetime
import io
import itertools
import json
import os
import re
import sys
import time
from typing import Any

import fastavro
from hypothesis import HealthCheck, Phase, given, reject, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from spark_producer import Producer
from spark_producer.broker import LocalBroker
from spark_producer.datasource.read.columns import all_nullable
from tests.unit.schemas.avro_schemas import as_spark, evolved, records, schemas, written
from tests.unit.schemas.played_registry import Played

FIRST_OLD, FIRST_NEW = 3, 70_000
"""The ids of the schemas of the first example. Those of the others follow, since workers keep the schema of an id."""
NULLS = re.compile(r'"(items|values)": "null"')
"""Arrays and maps of nulls, of which Spark's toArrow makes an invalid column (PySpark 4.3)."""
UNKNOWN = (404, b'{"error_code": 40401, "message": "not found"}')


def framed(schema_id: int, content: bytes) -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big") + content


def by_fastavro(writer: Any, content: bytes, reader: Any) -> Any:
    """A value as fastavro resolves it."""
    parsed = [fastavro.parse_schema(json.loads(json.dumps(each))) for each in (writer, reader)]
    return fastavro.schemaless_reader(io.BytesIO(content), *parsed)


def interleaved(
    data: st.DataObject, number: int, schema: Any, reader: Any, values: st.SearchStrategy[Any]
) -> tuple[list[Any], list[Any]]:
    """Values of records, and what Spark is to read: rows of either schema in any order, and tombstones between them."""
    found: list[bytes | None] = []
    wanted: list[Any] = []
    for row in data.draw(st.lists(st.none() | values, min_size=1, max_size=8)):
        if row is None:
            found.append(None)
            wanted.append(None)
            continue
        (content,) = written(schema, [row])
        read = by_fastavro(schema, content, reader)
        found.append(framed(FIRST_OLD + number, content))
        wanted.append(as_spark(reader, read))
        try:
            (content,) = written(reader, [read])
        except (TypeError, ValueError, AttributeError):  # fastavro does not write its own defaults of bytes
            continue
        found.append(framed(FIRST_NEW + number, content))
        wanted.append(as_spark(reader, by_fastavro(reader, content, reader)))
    return found, wanted


def naive(value: Any) -> Any:
    """A value without its time zone: instants in UTC. Times of day are numbers, as in Spark without its type for them."""
    if isinstance(value, datetime.datetime):
        return value if value.tzinfo is None else (value.astimezone(datetime.UTC).replace(tzinfo=None), "instant")
    if isinstance(value, dict):
        return {name: naive(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [naive(each) for each in value]
    return value


def times_as_numbers(schema: Any, value: Any) -> Any:
    """A value whose times of day are what Avro stores."""
    if value is None or isinstance(schema, (str, list)):
        only = [each for each in schema if each != "null"] if isinstance(schema, list) else []
        return times_as_numbers(only[0], value) if len(only) == 1 and value is not None else value
    if schema.get("logicalType") in ("time-millis", "time-micros"):
        micros = (datetime.datetime.combine(datetime.date.min, value) - datetime.datetime.min) // datetime.timedelta(
            microseconds=1
        )
        return micros // 1000 if schema["logicalType"] == "time-millis" else micros
    form = schema["type"]
    if form == "record":
        return {field["name"]: times_as_numbers(field["type"], value[field["name"]]) for field in schema["fields"]}
    if form == "array":
        return [times_as_numbers(schema["items"], each) for each in value]
    if form == "map":
        return [(key, times_as_numbers(schema["values"], each)) for key, each in value]
    return value


def check(
    spark: SparkSession, broker: LocalBroker, registry: Played, number: int, data: st.DataObject, case: Any
) -> int:
    """Write, read and compare; return the number of rows."""
    topic = f"generated-{number}"
    schema, values = case
    reader = data.draw(evolved(schema))
    if NULLS.search(json.dumps(reader)):
        reject()
    frames, wanted = interleaved(data, number, schema, reader, values)
    for schema_id, text in ((FIRST_OLD + number, schema), (FIRST_NEW + number, reader)):
        registry.answers[f"/schemas/ids/{schema_id}"] = (200, json.dumps({"schema": json.dumps(text)}).encode())
    broker.create_topic(topic, 1)
    with Producer({"bootstrap.servers": broker.bootstrap_servers}) as producer:
        for frame in frames:
            producer.send(topic, value=frame, partition=0)
        producer.flush()
    options = {
        "kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": topic, "valueFormat": "avro",
        "valueReaderSchema": json.dumps(reader), "schema.registry.url": registry.url,
    }  # fmt: skip
    frame = spark.read.format("pyproducer").options(**options).load().select("offset", "value")
    # Arrow refuses Spark's own type: null structs whose fields cannot be null.
    nullable: Any = all_nullable(frame.schema)
    table = spark.read.format("pyproducer").schema(nullable).options(**options).load().toArrow()
    found = [row["value"] for row in sorted(table.to_pylist(), key=lambda row: row["offset"])]
    rows = sorted(frame.collect(), key=lambda row: row.offset)
    assert [row.value is None for row in rows] == [each is None for each in found]
    expected = [times_as_numbers(reader, each) for each in wanted]
    assert naive(found) == naive(expected), (schema, reader, found, expected)
    return len(found)


def main() -> None:
    """Play the examples in a time zone."""
    zone, examples = sys.argv[1:]
    os.environ["TZ"] = zone
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    time.tzset()
    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.sql.session.timeZone", zone).getOrCreate()
    numbers, rows = itertools.count(), 0
    with LocalBroker() as broker, Played() as registry:
        registry.answer = UNKNOWN

        @settings(
            max_examples=int(examples), deadline=None, derandomize=True, database=None,
            suppress_health_check=list(HealthCheck), phases=[Phase.generate],
        )  # fmt: skip
        @given(st.data(), records() | schemas())
        def play(data: st.DataObject, case: Any) -> None:
            nonlocal rows
            rows += check(spark, broker, registry, next(numbers), data, case)

        play()
    assert time.tzname != ("UTC", "UTC")
    print(f"{next(numbers)} schemas, {rows} rows are those of fastavro", file=sys.stderr)
    spark.stop()


if __name__ == "__main__":
    main()
