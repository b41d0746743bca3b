"""JSON Schema in the sink, the source and the column functions, with a real registry and confluent-kafka's serialisers."""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as f

from spark_producer.errors import ConfigError, SchemaError
from spark_producer.schemas import from_confluent_json_schema, to_confluent_json_schema
from spark_producer.schemas.wire_format import prefix_of
from tests.conftest import Broker
from tests.support.schema_registry import SchemaRegistry

pytestmark = [pytest.mark.spark, pytest.mark.covers("JS5")]

ROW: Any = Row
KIND = (
    "struct<b: byte, s: short, i: int, l: bigint, f: float, d: double, t: string, x: binary, z: boolean, n: decimal(20,3), "
    "day: date, at: timestamp, here: timestamp_ntz, a: array<int>, m: map<string,struct<k: bigint>>, in: struct<u: string>>"
)
VALUE = ROW(
    1, 2, 3, 2**63 - 1, 0.5, 1e300, 'ä"', b"\x00\xff", True, Decimal("12345678901234567.125"), datetime.date(2020, 2, 29),
    datetime.datetime(2020, 1, 1, 1, 2, 3, 456789), datetime.datetime(2020, 1, 1, 1, 2, 3, 4), [1, None],
    {"a": Row(k=5), "b": None}, Row(u=None),
)  # fmt: skip


@pytest.fixture
def client(registry: SchemaRegistry) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": registry.url}) as made:
        yield made


def values(spark: SparkSession) -> DataFrame:
    """A row with all types, one with nulls only, and a null row."""
    empty = ROW(*[None] * len(VALUE))
    return spark.createDataFrame([(VALUE,), (empty,), (None,)], f"value {KIND}").coalesce(1)


def sink(frame: DataFrame, broker: Broker, registry: SchemaRegistry, topic: str, **options: str) -> None:
    given = {
        "kafka.bootstrap.servers": broker.bootstrap_servers, "topic": topic, "valueFormat": "json-schema",
        "schema.registry.url": registry.url,
    }  # fmt: skip
    frame.write.format("pyproducer").options(**given | options).mode("append").save()


def source(spark: SparkSession, broker: Broker, registry: SchemaRegistry, topic: str, **options: str) -> DataFrame:
    given = {
        "kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": topic, "schema.registry.url": registry.url,
        "valueFormat": "json-schema",
    }  # fmt: skip
    return spark.read.format("pyproducer").options(**given | options).load()


def raw_values(spark: SparkSession, broker: Broker, topic: str) -> list[Any]:
    given = {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": topic}
    frame = spark.read.format("pyproducer").options(**given).load()
    return [row.value and bytes(row.value) for row in frame.orderBy("offset").collect()]


@pytest.mark.parametrize("validate", ["false", "true"])
def test_every_type_comes_back_and_confluents_deserializer_reads_it(
    spark: SparkSession,
    embedded_broker: Broker,
    registry: SchemaRegistry,
    client: SchemaRegistryClient,
    topic: str,
    validate: str,
) -> None:
    frame = values(spark)
    embedded_broker.create_topic(topic, 1)
    before = len(registry.requests())
    sink(frame, embedded_broker, registry, topic, **{"json.fail.invalid.schema": validate})
    assert len(registry.requests()) == before + 1, "the driver asks once, and executors never"
    back = source(spark, embedded_broker, registry, topic, **{"json.fail.invalid.schema": validate})
    assert back.schema["value"].dataType == frame.schema["value"].dataType
    assert back.orderBy("offset").select("value").collect() == frame.collect()
    schema = client.get_latest_version(f"{topic}-value")
    deserializer = JSONDeserializer(None, schema_registry_client=client)
    context = SerializationContext(topic, MessageField.VALUE)
    found = [deserializer(each, context) for each in raw_values(spark, embedded_broker, topic)]
    assert (found[0]["l"], found[0]["x"], found[0]["day"], found[0]["m"]) == (
        2**63 - 1,
        "AP8=",
        "2020-02-29",
        {"a": {"k": 5}, "b": None},
    )
    assert found[1:] == [{}, None]
    assert json.loads(schema.schema.schema_str or "")["title"].endswith("_value")


def test_frames_of_confluents_serializer_are_read(
    spark: SparkSession, embedded_broker: Broker, registry: SchemaRegistry, client: SchemaRegistryClient, topic: str
) -> None:
    schema = {
        "title": "Flight", "type": "object", "required": ["id"],
        "properties": {
            "id": {"type": "integer", "minimum": 0}, "tail": {"oneOf": [{"type": "null"}, {"$ref": "#/$defs/tail"}]},
            "at": {"type": "string", "format": "date-time"}, "any": {},
        },
        "$defs": {"tail": {"type": "string"}},
    }  # fmt: skip
    serializer = JSONSerializer(json.dumps(schema), client)
    context = SerializationContext(topic, MessageField.VALUE)
    rows = [{"id": 2**60, "tail": "N1", "at": "2020-01-01T00:00:00Z", "any": [1, {"a": None}]}, {"id": 1, "tail": None}]
    frames = [bytes(serializer(each, context) or b"") for each in rows]
    avro = client.register_schema(f"{topic}-other", Schema('"int"', "AVRO"))
    registered = client.get_latest_version(f"{topic}-value").schema_id
    assert registered is not None
    frames += [prefix_of(avro) + b"\x02", b"plain", prefix_of(registered) + b'{"id": -1}']
    frame = spark.createDataFrame(
        [(number, each) for number, each in enumerate(frames)], "n int, value binary"
    ).coalesce(1)
    options = {"schema.registry.url": registry.url}
    found = from_confluent_json_schema("value", options, subject=f"{topic}-value", mode="permissive").alias("v")
    decoded = frame.select("n", found)
    assert decoded.schema["v"].dataType.simpleString() == "struct<id:bigint,tail:string,at:timestamp,any:string>"
    got = [row.v for row in decoded.orderBy("n").collect()]
    assert [(row.id, row.tail, row.any) for row in got[:2]] == [(2**60, "N1", '[1,{"a":null}]'), (1, None, None)]
    assert (got[2:4], got[4].id) == ([None, None], -1)
    strict = from_confluent_json_schema("value", options, subject=f"{topic}-value", mode="permissive", validate=True)
    assert [row[0] is None for row in frame.orderBy("n").select(strict).collect()] == [False, False, True, True, True]
    for number, reason in ((2, "is Avro, not JSON Schema"), (3, "it is not in Confluent's wire format")):
        with pytest.raises(Exception, match="RecordError") as raised:
            frame.where(f"n = {number}").select(
                from_confluent_json_schema("value", options, subject=f"{topic}-value")
            ).collect()
        assert reason in str(raised.value)


def test_evolution_given_schemas_and_the_latest_one(
    spark: SparkSession, embedded_broker: Broker, registry: SchemaRegistry, client: SchemaRegistryClient, topic: str
) -> None:
    frame = spark.sql("SELECT struct(1L AS id, 'a' AS s) AS value")
    embedded_broker.create_topic(topic, 1)
    sink(frame, embedded_broker, registry, topic)
    more = spark.sql("SELECT struct(2L AS id, 'b' AS s, CAST(NULL AS DOUBLE) AS d) AS value")
    sink(more, embedded_broker, registry, topic)
    with pytest.raises(Exception, match=r"SchemaIncompatible: the schema does not fit the other versions of subject"):
        sink(spark.sql("SELECT struct('x' AS id) AS value"), embedded_broker, registry, topic)
    with pytest.raises(
        Exception, match=r"SchemaError: field 'value.odd' is not in the schema, whose fields are id, s, d"
    ):
        sink(
            spark.sql("SELECT struct(1L AS id, 'a' AS s, 1 AS odd) AS value"),
            embedded_broker,
            registry,
            topic,
            **{"use.latest.version": "true"},
        )
    sink(frame, embedded_broker, registry, topic, **{"use.latest.version": "true"})
    got = source(spark, embedded_broker, registry, topic).orderBy("offset").select("value.*").collect()
    assert [(row.id, row.s, row.d) for row in got] == [(1, "a", None), (2, "b", None), (1, "a", None)]
    schema = {"title": "T", "type": "object", "properties": {"id": {"type": "integer"}, "s": {"enum": ["a"]}}}
    named = {"value.subject.name.strategy": "TopicRecordNameStrategy", "valueSchema": json.dumps(schema)}
    sink(frame, embedded_broker, registry, topic, **named)
    assert client.get_latest_version(f"{topic}-T").schema.schema_type == "JSON"
    with pytest.raises(Exception, match="is JSON Schema, not Avro"):
        source(spark, embedded_broker, registry, topic, valueFormat="avro").schema  # noqa: B018


def test_rows_that_do_not_fit_are_dead_letters(
    spark: SparkSession, embedded_broker: Broker, registry: SchemaRegistry, topic: str
) -> None:
    schema = {
        "type": "object",
        "properties": {"d": {"type": "number", "maximum": 10}, "s": {"enum": ["a", "b"]}},
        "required": ["d"],
    }
    frame = spark.sql(
        "SELECT struct(d, s) AS value FROM VALUES (1.5D, 'a'), (DOUBLE('NaN'), 'a'), (2D, 'c'), (NULL, 'a'), (11D, 'b'), "
        "(2D, NULL) AS t(d, s)"
    ).coalesce(1)
    for each in (topic, f"{topic}-dead"):
        embedded_broker.create_topic(each, 1)
    options = {"valueSchema": json.dumps(schema), "json.fail.invalid.schema": "true", "maxBadRatio": "1"}
    sink(frame, embedded_broker, registry, topic, deadLetterTopic=f"{topic}-dead", **options)
    good = [json.loads(each[5:]) for each in raw_values(spark, embedded_broker, topic)]
    assert good == [{"d": 1.5, "s": "a"}, {"d": 2.0}]
    dead = [json.loads(each) for each in raw_values(spark, embedded_broker, f"{topic}-dead")]
    assert sorted(map(str, dead)) == sorted(
        map(str, [{"d": "NaN", "s": "a"}, {"d": 2.0, "s": "c"}, {"d": None, "s": "a"}, {"d": 11.0, "s": "b"}])
    )
    with pytest.raises(Exception, match="RecordError") as raised:
        sink(frame, embedded_broker, registry, topic, **options | {"maxBadRatio": "0.1"})
    assert "does not fit its JSON schema: field 'value." in str(raised.value)


def test_the_function_writes_the_bytes_of_the_sink_and_both_refuse_what_is_wrong(spark: SparkSession) -> None:
    frame = values(spark)
    written = frame.select(to_confluent_json_schema("value", 7).alias("v"))
    rows = [row.v and bytes(row.v) for row in written.collect()]
    assert rows[1:] == [prefix_of(7) + b"{}", None]
    text = f.to_json(
        "value",
        {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXXXX", "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS"},
    )
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    assert (rows[0] or b"")[5:].decode() == frame.select(text).first()[0]  # type: ignore[index]
    schema = '{"type": "object", "properties": {"a": {"type": "integer", "maximum": 3}}}'
    one = spark.sql("SELECT struct(5 AS a) AS value")
    assert one.select(to_confluent_json_schema("value", 7, schema)).collect()
    with pytest.raises(Exception, match="it violates maximum 3 of its schema"):
        one.select(to_confluent_json_schema("value", 7, schema, validate=True)).collect()
    with pytest.raises(ValueError, match="schema_id must lie between"):
        to_confluent_json_schema("value", -1)
    with pytest.raises(SchemaError, match="the schema is not JSON"):
        to_confluent_json_schema("value", 7, "{")
    with pytest.raises(ConfigError, match="Schema Registry"):
        from_confluent_json_schema("value")


def test_the_function_finds_schemas_in_headers(spark: SparkSession) -> None:
    """With the headers, bare values are decoded beside values with a prefix."""
    rows = [
        (b'{"a": 1}', [("__value_schema_id", b"\x01" + bytes(16))]),
        (prefix_of(7) + b'{"a": 2}', [("__key_schema_id", b"\x01" + bytes(16))]),
        (b'{"a": 3}', None),
    ]
    frame = spark.createDataFrame(rows, "value binary, headers array<struct<key: string, value: binary>>").coalesce(1)
    schema = '{"type": "object", "properties": {"a": {"type": "integer"}}}'

    def decoded(**more: Any) -> list[Any]:
        column = from_confluent_json_schema("value", schema=schema, mode="PERMISSIVE", **more)
        return [row.v and row.v.a for row in frame.select(column.alias("v")).collect()]

    assert decoded(headers="headers") == [1, 2, None]
    assert decoded(headers="headers", is_key=True) == [None, None, None]
    assert decoded() == [None, 2, None]


def test_the_examples_of_the_page_run(
    spark: SparkSession, embedded_broker: Broker, registry: SchemaRegistry, topic: str
) -> None:
    page = (Path(__file__).parents[2] / "docs" / "json_schema.md").read_text(encoding="utf-8")
    embedded_broker.create_topic(topic, 1)
    names: dict[str, Any] = {"spark": spark}
    for block in re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL):
        code = block.replace("localhost:9092", embedded_broker.bootstrap_servers).replace('"flights', f'"{topic}')
        exec(code.replace("http://localhost:8081", registry.url), names)
    assert sorted(tuple(row) for row in names["late"].collect()) == [
        (number, "AA", 3 * number) for number in range(6, 100)
    ]
    assert names["decoded"].count() == 100
    assert names["encoded"].count() == 100
