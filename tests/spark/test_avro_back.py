"""Avro read back: the column function with a real Schema Registry, beside Spark's from_avro and confluent-kafka's frames."""

from __future__ import annotations

import datetime
import decimal
import json
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import TimeType

from benchmarks.avro import SPARK_AVRO
from spark_producer import Producer
from spark_producer.errors import ConfigError, RegistryError, SchemaError
from spark_producer.schemas import from_confluent_avro, to_confluent_avro
from tests.conftest import Broker
from tests.spark.frames import FORMAT, short_message, sink_options
from tests.support.ivy import fetch_jars
from tests.support.schema_registry import SchemaRegistry

pytestmark = [pytest.mark.spark, pytest.mark.covers("RD19")]

OLD = {
    "type": "record",
    "name": "Flight",
    "fields": [{"name": "id", "type": "int"}, {"name": "gone", "type": "string"}],
}
NEW = {
    "type": "record",
    "name": "Flight",
    "fields": [{"name": "id", "type": "long"}, {"name": "tail", "type": ["null", "string"], "default": None}],
}


@pytest.fixture
def client(registry: SchemaRegistry) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": registry.url}) as made:
        yield made


@pytest.fixture
def avro_spark(spark: SparkSession) -> SparkSession:
    """The session with Spark's own Avro."""
    (jar,) = fetch_jars(SPARK_AVRO, name="spark-avro", transitive=False).glob("*.jar")
    spark.sql(f"ADD JAR '{jar}'")
    return spark


def frames(spark: SparkSession, rows: list[bytes | None]) -> DataFrame:
    return spark.createDataFrame([(number, row) for number, row in enumerate(rows)], "n int, value binary").coalesce(1)


def serialized(client: SchemaRegistryClient, topic: str, schema: Any, rows: list[Any]) -> list[bytes]:
    """Frames as confluent-kafka's serializer writes them."""
    serializer = AvroSerializer(client, json.dumps(schema), conf={"auto.register.schemas": True})
    context = SerializationContext(topic, MessageField.VALUE)
    return [bytes(serializer(row, context) or b"") for row in rows]


def test_frames_of_two_schemas_are_read_by_the_latest(
    spark: SparkSession, registry: SchemaRegistry, client: SchemaRegistryClient, topic: str
) -> None:
    old = serialized(client, topic, OLD, [{"id": number, "gone": "x"} for number in range(3)])
    new = serialized(client, topic, NEW, [{"id": number, "tail": f"N{number}"} for number in range(3)])
    rows: list[bytes | None] = [old[0], new[0], None, new[1], old[1], old[2], new[2]]
    options = {"schema.registry.url": registry.url}
    before = len(registry.requests())
    decoded = frames(spark, rows).select(from_confluent_avro("value", options, subject=f"{topic}-value").alias("v"))
    assert decoded.schema["v"].dataType.simpleString() == "struct<id:bigint,tail:string>"
    assert [None if row.v is None else tuple(row.v) for row in decoded.collect()] == [
        (0, None), (0, "N0"), None, (1, "N1"), (1, None), (2, None), (2, "N2")
    ]  # fmt: skip
    asked = registry.requests()[before:]
    assert not [each for each in asked if "/schemas/ids/" in each], "the driver has sent both"


def test_a_task_asks_for_ids_that_the_driver_does_not_know(
    spark: SparkSession, registry: SchemaRegistry, client: SchemaRegistryClient, topic: str
) -> None:
    (row,) = serialized(client, topic, OLD, [{"id": 4, "gone": "x"}])
    options = {"schema.registry.url": registry.url}
    frame = frames(spark, [row, row]).select(from_confluent_avro("value", options, schema=json.dumps(NEW)).alias("v"))
    assert [tuple(each.v) for each in frame.collect()] == [(4, None), (4, None)]


def test_failfast_names_row_and_reason_and_permissive_reads_null(
    spark: SparkSession, registry: SchemaRegistry, client: SchemaRegistryClient, topic: str
) -> None:
    (row,) = serialized(client, topic, NEW, [{"id": 4, "tail": None}])
    unknown = b"\x00\x00\x0f\x42\x40" + row[5:]
    frame = frames(spark, [row, row[:-1], b"plain", unknown, row])
    options = {"schema.registry.url": registry.url}
    with pytest.raises(Exception, match="RecordError") as raised:
        frame.select(from_confluent_avro("value", options, subject=f"{topic}-value")).collect()
    reason = "row 1 of a batch: column 'value' cannot be decoded as Avro: field 'value.tail': it ends too early"
    assert reason in str(raised.value)
    decoded = from_confluent_avro("value", options, subject=f"{topic}-value", mode="permissive").alias("v")
    assert [None if each.v is None else each.v.id for each in frame.select(decoded).collect()] == [
        4, None, None, None, 4
    ]  # fmt: skip


FIELDS: list[tuple[Any, str]] = [
    ("boolean", "true"), ("int", "7"), ("long", "7L"), ("float", "1.5F"), ("double", "1.5D"), ("string", "'é'"),
    ("bytes", "X'ff'"), ({"type": "int", "logicalType": "date"}, "DATE'2020-01-02'"),
    ({"type": "long", "logicalType": "timestamp-millis"}, "TIMESTAMP'2020-01-02 03:04:05.006'"),
    ({"type": "long", "logicalType": "timestamp-micros"}, "TIMESTAMP'2020-01-02 03:04:05.000006'"),
    ({"type": "long", "logicalType": "local-timestamp-millis"}, "TIMESTAMP_NTZ'2020-01-02 03:04:05.006'"),
    ({"type": "long", "logicalType": "local-timestamp-micros"}, "TIMESTAMP_NTZ'2020-01-02 03:04:05.000006'"),
    ({"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}, "CAST(1.25 AS DECIMAL(9, 2))"),
    (
        {"type": "fixed", "name": "D", "size": 8, "logicalType": "decimal", "precision": 9, "scale": 2},
        "CAST(-1.25 AS DECIMAL(9, 2))",
    ),
    ({"type": "fixed", "name": "F", "size": 3}, "X'010203'"), ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "'B'"),
    ({"type": "array", "items": ["null", "int"]}, "array(1, null)"), ({"type": "map", "values": "int"}, "map('k', 1)"),
    (["null", "string"], "CAST(NULL AS STRING)"), (["int", "long"], "7L"), (["float", "double"], "1.5D"),
    ({"type": "record", "name": "Q", "fields": [{"name": "x", "type": "int"}]}, "named_struct('x', 1)"),
]  # fmt: skip


def test_types_and_values_are_those_of_sparks_from_avro(avro_spark: SparkSession) -> None:
    from pyspark.sql.avro.functions import from_avro

    schema = json.dumps(
        {
            "type": "record",
            "name": "R",
            "fields": [{"name": f"f{number}", "type": kind} for number, (kind, _) in enumerate(FIELDS)],
        }
    )
    struct = F.expr(
        "named_struct(" + ", ".join(f"'f{number}', {value}" for number, (_, value) in enumerate(FIELDS)) + ")"
    )
    framed = avro_spark.range(2).select(to_confluent_avro(struct, 7, schema).alias("value"))
    ours = framed.select(from_confluent_avro("value", schema=schema, writer_schemas={7: schema}).alias("v"))
    theirs = framed.select(from_avro(F.expr("substring(value, 6)"), schema).alias("v"))
    assert ours.schema == theirs.schema
    assert ours.collect() == theirs.collect()


def test_a_union_becomes_a_struct_of_members_as_in_from_avro(avro_spark: SparkSession) -> None:
    from pyspark.sql.avro.functions import from_avro

    union = ["null", "int", "string", {"type": "array", "items": "int"}]
    schema = json.dumps({"type": "record", "name": "R", "fields": [{"name": "u", "type": union}]})
    rows: list[bytes | None] = [b"\x02\x02", b"\x04\x02a", b"\x06\x02\x02\x00", b"\x00"]
    frame = frames(avro_spark, [b"\x00\x00\x00\x00\x07" + (row or b"") for row in rows])
    ours = frame.select(from_confluent_avro("value", schema=schema, writer_schemas={7: schema}).alias("v"))
    theirs = frame.select(from_avro(F.expr("substring(value, 6)"), schema).alias("v"))
    assert ours.schema == theirs.schema
    assert ours.collect() == theirs.collect()


def test_a_column_comes_back_as_it_was_encoded(spark: SparkSession, request: pytest.FixtureRequest) -> None:
    spark.conf.set("spark.sql.timeType.enabled", "true")
    request.addfinalizer(lambda: spark.conf.unset("spark.sql.timeType.enabled"))
    frame = spark.range(3).select(
        F.expr(
            "struct(id, make_time(12, 0, 1.5) as at, if(id = 1, null, array(map('k', named_struct('d', 1.25BD)))) as deep, "
            "X'ff' as b, timestamp_micros(id) as t, null as nothing) as value"
        )
    )
    from spark_producer.datasource.arrow_types import arrow_type
    from spark_producer.schemas.types import avro_schema

    schema = json.dumps(avro_schema(arrow_type(frame.schema["value"].dataType, "value"), "value"))
    back = frame.select("value", to_confluent_avro("value", 7, schema).alias("bytes")).select(
        "value", from_confluent_avro("bytes", schema=schema, writer_schemas={7: schema}).alias("back")
    )
    assert isinstance(back.schema["back"].dataType["at"].dataType, TimeType)  # type: ignore[index]
    found = back.collect()
    assert [row.back for row in found] == [row.value for row in found]
    assert found[0].back.at == datetime.time(12, 0, 1, 500_000)
    assert found[0].back.deep == [{"k": (decimal.Decimal("1.25"),)}]


def test_wrong_arguments_are_errors_on_the_driver(spark: SparkSession, registry: SchemaRegistry) -> None:
    options = {"schema.registry.url": registry.url}
    with pytest.raises(ConfigError, match="reader's schema is missing"):
        from_confluent_avro("value", options)
    with pytest.raises(ConfigError, match="Avro needs a Schema Registry"):
        from_confluent_avro("value", subject="s")
    with pytest.raises(RegistryError, match="404"):
        from_confluent_avro("value", options, subject="no such subject")
    with pytest.raises(ConfigError, match="mode must be FAILFAST or PERMISSIVE"):
        from_confluent_avro("value", options, schema='"int"', mode="DROPMALFORMED")
    with pytest.raises(SchemaError, match="is recursive"):
        from_confluent_avro("value", options, schema=json.dumps(NEW | {"fields": [{"name": "next", "type": "Flight"}]}))


def source_options(broker: Broker, registry: SchemaRegistry, topic: str, **more: str) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": topic, "startingOffsets": "earliest",
        "valueFormat": "avro", "schema.registry.url": registry.url,
    } | more  # fmt: skip


def write_frames(broker: Broker, topic: str, rows: list[bytes | None]) -> None:
    with Producer({"bootstrap.servers": broker.bootstrap_servers}) as producer:
        for row in rows:
            producer.send(topic, value=row, partition=0)
        producer.flush()


def test_a_read_decodes_keys_and_values(
    spark: SparkSession, embedded_broker: Broker, registry: SchemaRegistry, client: SchemaRegistryClient, topic: str
) -> None:
    embedded_broker.create_topic(topic, 1)
    struct = "struct(id, if(id = 1, null, concat('N', id)) as tail, array(id) as legs, timestamp_micros(id) as at)"
    frame = spark.range(5).coalesce(1).select(F.expr("struct(id) as key"), F.expr(f"{struct} as value"))
    options = sink_options(embedded_broker, topic, {"schema.registry.url": registry.url, "valueFormat": "avro"})
    frame.write.format(FORMAT).options(**options | {"keyFormat": "avro"}).mode("append").save()
    found = (
        spark.read.format(FORMAT).options(**source_options(embedded_broker, registry, topic, keyFormat="avro")).load()
    )
    assert found.schema["value"].dataType.simpleString() == (
        "struct<id:bigint,tail:string,legs:array<bigint>,at:timestamp>"
    )
    assert found.select("key", "value").orderBy("value.id").collect() == frame.collect()
    assert [row.offset for row in found.collect()] == [0, 1, 2, 3, 4]
    pruned = spark.read.format(FORMAT).schema(found.select("value").schema)
    assert pruned.options(**source_options(embedded_broker, registry, topic)).load().count() == 5
    filtered = found.where("value.id > 2").select("value.tail", "topic")
    assert [tuple(row) for row in filtered.collect()] == [("N3", topic), ("N4", topic)]


def test_a_stream_reads_a_schema_that_is_registered_while_it_runs(
    spark: SparkSession, embedded_broker: Broker, registry: SchemaRegistry, client: SchemaRegistryClient, topic: str
) -> None:
    embedded_broker.create_topic(topic, 1)
    write_frames(embedded_broker, topic, [*serialized(client, topic, OLD, [{"id": 0, "gone": "x"}]), None])
    options = source_options(embedded_broker, registry, topic, valueReaderSchema=json.dumps(NEW))
    name = topic.replace("-", "_")
    rows = spark.readStream.format(FORMAT).options(**options).load().select("offset", "value.*")
    query = rows.writeStream.format("memory").queryName(name).start()
    try:
        query.processAllAvailable()
        write_frames(embedded_broker, topic, list(serialized(client, topic, NEW, [{"id": 1, "tail": "N1"}])))
        query.processAllAvailable()
        found = [tuple(row) for row in spark.table(name).orderBy("offset").collect()]
        assert found == [(0, 0, None), (1, None, None), (2, 1, "N1")]
    finally:
        query.stop()


def test_a_record_that_is_no_avro_has_its_offset_or_is_null(
    spark: SparkSession, embedded_broker: Broker, registry: SchemaRegistry, client: SchemaRegistryClient, topic: str
) -> None:
    embedded_broker.create_topic(topic, 1)
    (row,) = serialized(client, topic, NEW, [{"id": 4, "tail": None}])
    write_frames(embedded_broker, topic, [row, b"plain", row])
    options = source_options(embedded_broker, registry, topic)
    read = spark.read.format(FORMAT).options(**options)
    with pytest.raises(Exception, match="RecordError") as raised:
        read.load().collect()
    reason = f"reading topic '{topic}', partition 0 failed at offset 1: column 'value' cannot be decoded"
    assert reason in short_message(str(raised.value))
    found = read.option("mode", "PERMISSIVE").load().collect()
    assert [(each.offset, each.value and each.value.id) for each in found] == [(0, 4), (1, None), (2, 4)]


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"schema.registry.url": ""}, "Avro needs a Schema Registry"),
        ({"valueFormat": "raw"}, "schema.registry.url has no effect: no column is decoded"),
        ({"keyReaderSchema": "int"}, "keyReaderSchema is for Avro, Protobuf and JSON Schema"),
        ({"subscribe": "a,b"}, "valueFormat=avro needs valueReaderSchema for a read of several topics"),
        ({"valueReaderSchema": "nonsense"}, "is not JSON"),
        ({"valueReaderSchema": "missing.avsc"}, "valueReaderSchema: the file 'missing.avsc' cannot be read"),
        ({}, "RegistryError"),
    ],
)
def test_wrong_options_of_a_read_are_errors_on_the_driver(
    spark: SparkSession, embedded_broker: Broker, registry: SchemaRegistry, more: dict[str, str], reason: str
) -> None:
    options = source_options(embedded_broker, registry, "nothing-is-registered-for-it") | more
    with pytest.raises(Exception, match=reason):
        spark.read.format(FORMAT).options(**options).load()


def test_a_type_that_the_schema_does_not_have_is_an_error(
    spark: SparkSession, embedded_broker: Broker, registry: SchemaRegistry, client: SchemaRegistryClient, topic: str
) -> None:
    embedded_broker.create_topic(topic, 1)
    serialized(client, topic, NEW, [{"id": 4, "tail": None}])
    read = (
        spark.read.format(FORMAT)
        .schema("value struct<id: int>")
        .options(**source_options(embedded_broker, registry, topic))
    )
    with pytest.raises(Exception, match="is read as struct<id:bigint,tail:string>"):
        read.load().collect()
