"""Protobuf in the sink, with a real Schema Registry: what confluent-kafka's deserialiser reads back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import message_factory
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_producer.schemas import to_confluent_protobuf
from tests.conftest import Broker
from tests.spark.frames import FORMAT, short_message, sink_options, write
from tests.support.read_back import read_topic
from tests.support.schema_registry import SchemaRegistry
from tests.unit.schemas.protobuf.encoding import message

pytestmark = pytest.mark.spark

FLIGHT = """
syntax = "proto3";
package air;
import "google/protobuf/timestamp.proto";
message Gone { int32 id = 1; }
message Flight {
  int64 id = 1;
  string tail = 2;
  repeated Leg legs = 3;
  google.protobuf.Timestamp at = 4;
  optional int32 delay = 5;
  message Leg { string to = 1; }
}
"""


@pytest.fixture
def client(registry: SchemaRegistry) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": registry.url}) as made:
        yield made


def protobuf(registry: SchemaRegistry, **more: object) -> dict[str, object]:
    return {"valueFormat": "protobuf", "schema.registry.url": registry.url} | more


def values(broker: Broker, topic: str, kind: Any, expected: int) -> list[Any]:
    """Return the values that confluent-kafka's deserialiser decodes."""
    read = ProtobufDeserializer(kind, {"use.deprecated.format": False})
    context = SerializationContext(topic, MessageField.VALUE)
    records = read_topic(broker.bootstrap_servers, topic, expected=expected)
    return [None if record.value is None else read(record.value, context) for record in records]


def message_class(text: str, name: str | None = None) -> Any:
    return message_factory.GetMessageClass(message(text, name))


def flights(spark: SparkSession, rows: int = 20) -> DataFrame:
    legs = F.array(F.struct(F.concat(F.lit("N"), "id").alias("to")))
    columns = F.struct("id", F.lit("é").alias("tail"), legs.alias("legs"), F.timestamp_seconds("id").alias("at"))
    return spark.range(rows).select(F.when(F.col("id") % 5 != 4, columns).alias("value")).coalesce(1)


def latest(registry: SchemaRegistry, topic: str) -> str:
    found: str = registry.ask("GET", f"/subjects/{topic}-value/versions/latest")["schema"]
    return found


@pytest.mark.covers("COM11")
def test_a_deserialiser_reads_what_the_sink_wrote_with_a_schema_of_its_own(
    spark: SparkSession, embedded_broker: Broker, registry: SchemaRegistry, topic: str
) -> None:
    embedded_broker.create_topic(topic, 1)
    write(flights(spark), embedded_broker, topic, protobuf(registry))
    kind = message_class(latest(registry, topic))
    found = values(embedded_broker, topic, kind, 20)
    assert [each is None for each in found] == [number % 5 == 4 for number in range(20)]
    for number, each in enumerate(found):
        if each is not None:
            assert (each.id, each.tail, [leg.to for leg in each.legs]) == (number, "é", [f"N{number}"])
            assert each.at.seconds == number
    more = spark.range(1).select(F.struct(F.lit("x").alias("id")).alias("value"))
    registry.ask("PUT", f"/config/{topic}-value", {"compatibility": "FULL"})
    with pytest.raises(Exception, match="SchemaIncompatible") as caught:
        write(more, embedded_broker, topic, protobuf(registry))
    assert f"other versions of subject '{topic}-value'" in short_message(str(caught.value))


@pytest.mark.covers("COM11")
def test_a_given_schema_is_registered_under_the_name_of_its_message_and_read_back(
    spark: SparkSession, embedded_broker: Broker, registry: SchemaRegistry, topic: str, tmp_path: Path
) -> None:
    embedded_broker.create_topic(topic, 1)
    file = tmp_path / "flight.proto"
    file.write_text(FLIGHT)
    options = protobuf(
        registry, valueSchema=str(file), valueMessage="Flight", fillMissingFields="true",
        **{"value.subject.name.strategy": "TopicRecordNameStrategy"},
    )  # fmt: skip
    write(flights(spark), embedded_broker, topic, options)
    found = values(embedded_broker, topic, message_class(FLIGHT, "Flight"), 20)
    assert [each and each.id for each in found] == [number if number % 5 != 4 else None for number in range(20)]
    assert registry.ask("GET", f"/subjects/{topic}-air.Flight/versions") == [1]
    record = read_topic(embedded_broker.bootstrap_servers, topic, expected=20)[0].value or b""
    assert record[5:7] == b"\x02\x02", "the second message of the file"
    read = spark.read.format(FORMAT).options(**{
        "kafka.bootstrap.servers": embedded_broker.bootstrap_servers, "subscribe": topic, "valueFormat": "protobuf",
        "schema.registry.url": registry.url, "valueReaderSchema": FLIGHT, "valueMessage": "Flight",
    }).load()  # fmt: skip
    rows = read.orderBy("offset").select("value.*").collect()
    assert [row.legs and row.legs[0].to for row in rows[:5]] == ["N0", "N1", "N2", "N3", None]


def test_the_latest_version_is_written_also_one_that_a_serialiser_registered(
    spark: SparkSession, embedded_broker: Broker, registry: SchemaRegistry, client: SchemaRegistryClient, topic: str
) -> None:
    embedded_broker.create_topic(topic, 1)
    kind = message_class(FLIGHT, "Flight")
    options = protobuf(registry, valueMessage="air.Flight", **{"use.latest.version": "true"})
    with pytest.raises(Exception, match="40401"):
        write(flights(spark), embedded_broker, topic, options)
    serializer = ProtobufSerializer(kind, client, {"use.deprecated.format": False})
    wanted = bytes(serializer(kind(id=0, tail="é"), SerializationContext(topic, MessageField.VALUE)) or b"")
    frame = spark.range(1).select(F.struct("id", F.lit("é").alias("tail")).alias("value"))
    write(frame, embedded_broker, topic, options)
    assert [record.value for record in read_topic(embedded_broker.bootstrap_servers, topic, expected=1)] == [wanted]
    with pytest.raises(Exception, match=r"field 'value\.tail' has type int32, but the schema has string"):
        write(
            frame.select(F.struct("value.id", F.lit(1).alias("tail")).alias("value")), embedded_broker, topic, options
        )
    client.register_schema(f"{topic}-other", Schema('"int"', "AVRO"))
    with pytest.raises(Exception, match="is Avro, not Protobuf"):
        write(frame, embedded_broker, topic, options | {"valueSubject": f"{topic}-other"})


@pytest.mark.covers("COM11")
def test_a_stream_writes_keys_and_values_and_dead_letters(
    spark: SparkSession, embedded_broker: Broker, registry: SchemaRegistry, topic: str, tmp_path: Path
) -> None:
    for name in (topic, f"{topic}-dead"):
        embedded_broker.create_topic(name, 1)
    for number in (1, -1, 2):
        (tmp_path / f"{number}.json").write_text(json.dumps({"n": number}) + "\n")
    rows = spark.readStream.schema("n long").option("maxFilesPerTrigger", 1).json(str(tmp_path / "*.json"))
    frame = rows.select(F.struct(F.abs("n").alias("k")).alias("key"), F.struct("n").alias("value"))
    schema = 'syntax = "proto3"; message M { uint32 n = 1; }'
    options = protobuf(
        registry, keyFormat="protobuf", valueSchema=schema, deadLetterTopic=f"{topic}-dead",
        checkpointLocation=str(tmp_path / "checkpoint"),
    )  # fmt: skip
    query = frame.writeStream.format(FORMAT).options(**sink_options(embedded_broker, topic, options))
    assert query.trigger(availableNow=True).start().awaitTermination(120)
    records = read_topic(embedded_broker.bootstrap_servers, topic, expected=2)
    assert sorted((record.key or b"")[5:] + (record.value or b"")[5:] for record in records) == [
        b"\x00\x08\x01\x00\x08\x01", b"\x00\x08\x02\x00\x08\x02"
    ]  # fmt: skip
    (dead,) = read_topic(embedded_broker.bootstrap_servers, f"{topic}-dead", expected=1)
    assert (dead.value, (dead.key or b"")[5:]) == (b'{"n":-1}', b"\x00\x08\x01")


def test_a_row_that_does_not_fit_names_row_field_and_format(
    spark: SparkSession, embedded_broker: Broker, topic: str
) -> None:
    embedded_broker.create_topic(topic, 1)
    frame = spark.range(9).select(F.struct((F.col("id") * 1000).alias("n")).alias("value")).coalesce(1)
    schema = 'syntax = "proto3"; message M { E n = 1; } enum E { option allow_alias = true; A = 0; B = 0; }'
    options = {"valueFormat": "protobuf", "valueSchemaId": 7, "valueSchema": schema}
    write(frame, embedded_broker, topic, options)
    frame = frame.select(F.struct(F.lit("C").alias("n")).alias("value"))
    with pytest.raises(
        Exception, match=r"row 0 of the task does not fit its Protobuf schema: field 'value\.n': the enum"
    ):
        write(frame, embedded_broker, topic, options)


def test_the_function_makes_the_bytes_of_the_sink(spark: SparkSession, embedded_broker: Broker, topic: str) -> None:
    embedded_broker.create_topic(topic, 1)
    frame = flights(spark)
    options = {"valueFormat": "protobuf", "valueSchemaId": 300, "valueSchema": FLIGHT, "valueMessage": "Flight"}
    write(frame, embedded_broker, topic, options | {"fillMissingFields": "true"})
    column = to_confluent_protobuf("value", 300, FLIGHT, message="Flight", fill_missing_fields=True)
    encoded = frame.select(column.alias("value")).collect()
    wanted = [record.value for record in read_topic(embedded_broker.bootstrap_servers, topic, expected=20)]
    assert [None if row.value is None else bytes(row.value) for row in encoded] == wanted
    assert bytes(wanted[0] or b"").startswith(b"\x00\x00\x00\x01\x2c\x02\x02")
    with pytest.raises(ValueError, match="schema_id must lie between"):
        to_confluent_protobuf("value", -1, FLIGHT)
    with pytest.raises(Exception, match=r"field 'value\.delay' of the message is not in the column"):
        frame.select(to_confluent_protobuf("value", 300, FLIGHT, message="Flight")).collect()
