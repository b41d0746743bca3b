"""Schemas that refer to others, and schemas named in headers, in Spark: a real Schema Registry, and one that is played."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from spark_producer import Producer
from spark_producer.schemas import (
    confluent_schema_header,
    from_confluent_avro,
    from_confluent_json_schema,
    from_confluent_protobuf,
    to_confluent_avro,
    to_confluent_json_schema,
    to_confluent_protobuf,
)
from tests.conftest import Broker
from tests.spark.frames import FORMAT, sink_options
from tests.support.schema_registry import SchemaRegistry
from tests.unit.schemas.played_registry import Played

pytestmark = [pytest.mark.spark, pytest.mark.covers("RD19", "COM10")]

CITY = '{"type": "record", "name": "City", "namespace": "geo", "fields": [{"name": "n", "type": "string"}]}'
FLIGHT = """{"type": "record", "name": "Flight", "namespace": "air",
    "fields": [{"name": "at", "type": "geo.City"}, {"name": "to", "type": ["null", "geo.City"], "default": null}]}"""
ROWS = [{"at": {"n": "Zürich"}, "to": None}, {"at": {"n": "Tegel"}, "to": {"n": "Tempelhof"}}]


@pytest.fixture
def client(registry: SchemaRegistry) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": registry.url}) as made:
        yield made


def topic_of(broker: Broker) -> str:
    name = f"refs-{uuid.uuid4().hex}"
    broker.create_topic(name, 1)
    return name


def test_schemas_with_references_go_both_ways(
    spark: SparkSession, embedded_broker: Broker, registry: SchemaRegistry, client: SchemaRegistryClient
) -> None:
    cities = client.register_schema_full_response("refs-cities", Schema(CITY, "AVRO"))
    version = client.lookup_schema("refs-cities", Schema(CITY, "AVRO")).version
    assert cities.guid is None, "Apicurio gives GUIDs now: write headers with it too"
    references = [{"name": "geo.City", "subject": "refs-cities", "version": version}]
    topic = topic_of(embedded_broker)
    schema = Schema(FLIGHT, "AVRO", [SchemaReference("geo.City", "refs-cities", version)])
    serializer: Any = AvroSerializer(client, schema)
    with Producer({"bootstrap.servers": embedded_broker.bootstrap_servers}) as producer:
        for row in ROWS:
            producer.send(topic, serializer(row, SerializationContext(topic, MessageField.VALUE)))
        producer.flush()
    reads = {"kafka.bootstrap.servers": embedded_broker.bootstrap_servers, "subscribe": topic, "valueFormat": "avro"}
    found = spark.read.format(FORMAT).options(**reads, **{"schema.registry.url": registry.url}).load()
    assert [row.value.asDict(recursive=True) for row in found.orderBy("offset").collect()] == ROWS
    written = topic_of(embedded_broker)
    options = sink_options(embedded_broker, topic=written) | {
        "valueFormat": "avro", "schema.registry.url": registry.url, "valueSchema": FLIGHT,
        "valueSchemaReferences": json.dumps(references),
    }  # fmt: skip
    found.select("value").coalesce(1).write.format(FORMAT).options(**options).mode("append").save()
    raw = spark.read.format(FORMAT).options(**(reads | {"subscribe": written, "valueFormat": "raw"})).load()
    reader: Any = AvroDeserializer(client)
    context = SerializationContext(written, MessageField.VALUE)
    assert [reader(bytes(row.value), context) for row in raw.orderBy("offset").collect()] == ROWS
    assert client.get_latest_version(f"{written}-value").schema.references, "it was registered with its references"


def test_schemas_in_headers_go_both_ways(spark: SparkSession, embedded_broker: Broker) -> None:
    guid, schema = str(uuid.uuid4()), FLIGHT.replace('"geo.City"', CITY, 1)
    body = {"subject": "s", "version": 1, "id": 7, "schema": schema, "guid": guid}
    topic = topic_of(embedded_broker)
    with Played() as played:
        played.answer = 200, json.dumps(body).encode()
        played.answers[f"/subjects/{topic}-value/versions"] = played.answer
        options = sink_options(embedded_broker, topic=topic) | {
            "valueFormat": "avro", "schema.registry.url": played.url, "valueSchema": schema,
            "value.schema.id.serializer": "HeaderSchemaIdSerializer",
        }  # fmt: skip
        kind = "value struct<at: struct<n: string>, to: struct<n: string>>"
        frame = spark.createDataFrame([(ROWS[0],), (None,), (ROWS[1],)], kind).coalesce(1)
        frame.write.format(FORMAT).options(**options).mode("append").save()
        del options["value.schema.id.serializer"]
        frame.write.format(FORMAT).options(**options).mode("append").save()
        played.answers[f"/subjects/{topic}-value/versions"] = 200, b"[1]"
        reads = {"kafka.bootstrap.servers": embedded_broker.bootstrap_servers, "subscribe": topic}
        url = {"schema.registry.url": played.url}
        found = spark.read.format(FORMAT).options(**reads, **url, valueFormat="avro").load().orderBy("offset")
        rows = [row.value and row.value.asDict(recursive=True) for row in found.collect()]
        assert rows == [ROWS[0], None, ROWS[1]] * 2
        raw = spark.read.format(FORMAT).options(**reads, includeHeaders="true").load().orderBy("offset")
        decoded = raw.select(
            from_confluent_avro(F.col("value"), url, subject=f"{topic}-value", headers="headers").alias("v")
        )
        assert [row.v and row.v.asDict(recursive=True) for row in decoded.collect()] == rows
        values = [(row.value, row.headers) for row in raw.collect()]
        assert [headers and [(each.key, bytes(each.value)) for each in headers] for _, headers in values] == [
            *([("__value_schema_id", b"\x01" + uuid.UUID(guid).bytes)] if value else None for value, _ in values[:3]),
            None, None, None,
        ]  # fmt: skip


def test_column_functions_write_bare_values_and_their_header(spark: SparkSession, embedded_broker: Broker) -> None:
    """Each format by the GUID of its schema; the functions of the other direction find the header."""
    guid = str(uuid.uuid4())
    proto = 'syntax = "proto3"; message Other {} message Flight { City at = 1; City to = 2; } message City { string n = 1; }'
    topic = topic_of(embedded_broker)
    kind = "value struct<at: struct<n: string>, to: struct<n: string>>"
    frame = spark.createDataFrame([(ROWS[1],), (None,)], kind).coalesce(1)
    schemas = {"avro": FLIGHT.replace('"geo.City"', CITY, 1), "json": "{}", "protobuf": proto}
    written = {
        "avro": (to_confluent_avro("value", guid, schemas["avro"]), confluent_schema_header(guid)),
        "json": (to_confluent_json_schema("value", guid), confluent_schema_header(guid)),
        "protobuf": (
            to_confluent_protobuf("value", guid, proto, message="Flight"),
            confluent_schema_header(guid, schema=proto, message="Flight"),
        ),
    }
    for value, header in written.values():
        rows = frame.select(value.alias("value"), F.array(header).alias("headers"))
        rows.write.format(FORMAT).options(**sink_options(embedded_broker, topic=topic)).mode("append").save()
    reads = {"kafka.bootstrap.servers": embedded_broker.bootstrap_servers, "subscribe": topic, "includeHeaders": "true"}
    raw = spark.read.format(FORMAT).options(**reads).load()
    readers: dict[str, Any] = {
        "avro": lambda url: from_confluent_avro("value", url, schema=schemas["avro"], headers="headers"),
        "json": lambda url: from_confluent_json_schema("value", url, schema=FLIGHT_JSON, headers="headers"),
        "protobuf": lambda url: from_confluent_protobuf(
            "value", url, schema=proto, message="Flight", headers="headers"
        ),
    }
    with Played() as played:
        for number, (form, reader) in enumerate(readers.items()):
            kinds = {"avro": "AVRO", "json": "JSON", "protobuf": "PROTOBUF"}
            body = {"schema": schemas[form], "schemaType": kinds[form], "guid": guid}
            played.answer = 200, json.dumps(body).encode()
            part = raw.where(F.col("offset").between(2 * number, 2 * number + 1)).orderBy("offset")
            found = part.select(reader({"schema.registry.url": played.url}).alias("v")).collect()
            assert [row.v and row.v.asDict(recursive=True) for row in found] == [ROWS[1], None]
    with pytest.raises(ValueError, match="badly formed"):
        to_confluent_json_schema("value", "7")
    with pytest.raises(ValueError, match="badly formed"):
        confluent_schema_header("7")


CITY_JSON = {"type": "object", "properties": {"n": {"type": "string"}}}
FLIGHT_JSON = json.dumps({"type": "object", "properties": {"at": CITY_JSON, "to": CITY_JSON}})
