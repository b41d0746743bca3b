"""Protobuf read: the column function with a real Schema Registry and the frames of confluent-kafka's serialiser."""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pool, message_factory
from pyspark.sql import DataFrame, SparkSession

from spark_producer import Producer
from spark_producer.errors import ConfigError, RegistryError, SchemaError
from spark_producer.schemas import from_confluent_protobuf
from spark_producer.schemas.protobuf.compiler import ProtobufSchema, compiled, message_of
from spark_producer.schemas.wire_format import prefix_of
from tests.conftest import Broker
from tests.support.schema_registry import SchemaRegistry

pytestmark = [pytest.mark.spark, pytest.mark.covers("RD22")]

CARRIER = 'syntax = "proto3"; package air; message Carrier { string code = 1; }'
FLIGHT = """
syntax = "proto3";
package air;
import "google/protobuf/timestamp.proto";
import "carrier.proto";
message Flight {
  int32 id = 1;
  Carrier carrier = 2;
  google.protobuf.Timestamp at = 3;
  map<string, double> fares = 4;
  oneof way { string gate = 5; uint64 stand = 6; }
}
message Gone { int32 id = 1; }
"""
REFERENCES = {"carrier.proto": CARRIER}


@pytest.fixture
def client(registry: SchemaRegistry) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": registry.url}) as made:
        yield made


def message_class(name: str, text: str = FLIGHT, references: dict[str, str] = REFERENCES) -> Any:
    return message_factory.GetMessageClass(message_of(compiled(ProtobufSchema(text, references), "it"), name, "it"))


def registered(registry: SchemaRegistry, subject: str, text: str, *, refer: bool = True) -> int:
    """Register the text of a schema, as a user of the registry does, and return its id."""
    references = []
    if refer:
        carrier = f"{subject}-carrier"
        registry.ask("POST", f"/subjects/{carrier}/versions", {"schema": CARRIER, "schemaType": "PROTOBUF"})
        references.append({"name": "carrier.proto", "subject": carrier, "version": 1})
    body = {"schema": text, "schemaType": "PROTOBUF", "references": references}
    found: int = registry.ask("POST", f"/subjects/{subject}/versions", body)["id"]
    return found


def frames(spark: SparkSession, rows: list[bytes | None]) -> DataFrame:
    return spark.createDataFrame([(number, row) for number, row in enumerate(rows)], "n int, value binary").coalesce(1)


def test_frames_of_confluents_serialiser_are_read_through_a_registry(
    spark: SparkSession, registry: SchemaRegistry, client: SchemaRegistryClient, topic: str
) -> None:
    """The serialiser registers descriptors, and those that they import, under subjects of their own."""
    kind = message_class("Flight")
    serializer = ProtobufSerializer(kind, client, {"use.deprecated.format": False})
    context = SerializationContext(topic, MessageField.VALUE)
    values = [kind(id=number, gate="A1") for number in range(2)] + [kind(id=7, stand=2**64 - 1, fares={"Y": 1.5})]
    values[1].carrier.code = "AA"
    values[2].at.seconds = 60
    rows = [bytes(serializer(each, context) or b"") for each in values]
    found = from_confluent_protobuf("value", {"schema.registry.url": registry.url}, subject=f"{topic}-value").alias("v")
    frame = frames(spark, [*rows, None]).select(found)
    assert frame.schema["v"].dataType.simpleString() == (
        "struct<id:int,carrier:struct<code:string>,at:timestamp,fares:map<string,double>,gate:string,stand:decimal(20,0)>"
    )
    one, two, three, none = (row.v for row in frame.collect())
    assert (one.id, one.carrier, one.at, one.fares, one.gate, one.stand) == (0, None, None, {}, "A1", None)
    assert (two.id, two.carrier.code) == (1, "AA")
    assert (int(three.stand), three.fares, three.gate) == (2**64 - 1, {"Y": 1.5}, None)
    assert three.at.astimezone(datetime.UTC) == datetime.datetime(1970, 1, 1, 0, 1, tzinfo=datetime.UTC)
    assert none is None


def test_a_text_with_references_is_read_and_tasks_ask_for_other_ids(
    spark: SparkSession, registry: SchemaRegistry, topic: str
) -> None:
    schema_id = registered(registry, f"{topic}-value", FLIGHT)
    other = registered(
        registry, f"{topic}-other", 'syntax = "proto3"; package air; message Flight { int32 id = 1; }', refer=False
    )
    kind = message_class("Flight")
    row = kind(id=5).SerializeToString()
    rows = [prefix_of(schema_id, (0,)) + row, prefix_of(other, (0,)) + row]
    options = {"schema.registry.url": registry.url}
    before = len(registry.requests())
    found = from_confluent_protobuf("value", options, subject=f"{topic}-value", message="air.Flight").alias("v")
    assert [each.v.id for each in frames(spark, list(rows)).select(found).collect()] == [5, 5]
    asked = [each for each in registry.requests()[before:] if "/schemas/ids/" in each]
    assert len(asked) == 1, "only for the id that the driver does not know"
    gone = prefix_of(schema_id, (1,)) + row
    frame = frames(spark, [rows[0], gone, b"plain"])
    permissive = from_confluent_protobuf("value", options, subject=f"{topic}-value", mode="permissive").alias("v")
    assert [each.v is None for each in frame.select(permissive).collect()] == [False, True, True]
    with pytest.raises(Exception, match="RecordError") as raised:
        frame.select(from_confluent_protobuf("value", options, subject=f"{topic}-value")).collect()
    assert "row 1 of a batch: column 'value' cannot be decoded as Protobuf: it is the message air.Gone" in str(
        raised.value
    )


def test_what_the_driver_refuses(spark: SparkSession, registry: SchemaRegistry, topic: str) -> None:
    options = {"schema.registry.url": registry.url}
    with pytest.raises(ConfigError, match="Schema Registry"):
        from_confluent_protobuf("value")
    with pytest.raises(RegistryError, match="404"):
        from_confluent_protobuf("value", options, subject=f"{topic}-value")
    with pytest.raises(SchemaError, match="the reader's schema has no message 'Flug'"):
        from_confluent_protobuf("value", schema=CARRIER, message="Flug")
    registry.ask("POST", f"/subjects/{topic}-avro/versions", {"schema": '"int"'})
    with pytest.raises(RegistryError, match="is Avro, not Protobuf"):
        from_confluent_protobuf("value", options, subject=f"{topic}-avro")


def test_the_examples_of_the_page_run(
    spark: SparkSession, embedded_broker: Broker, registry: SchemaRegistry, topic: str
) -> None:
    page = (Path(__file__).parents[2] / "docs" / "protobuf.md").read_text(encoding="utf-8")
    embedded_broker.create_topic(topic, 1)
    names: dict[str, Any] = {"spark": spark}
    for block in re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL):
        code = block.replace("localhost:9092", embedded_broker.bootstrap_servers).replace('"flights', f'"{topic}')
        exec(code.replace("http://localhost:8081", registry.url), names)
    wanted = [(number, "AA", 3 * number) for number in range(10)]
    assert sorted(tuple(row) for row in names["late"].collect()) == wanted[6:]
    assert sorted(tuple(row.v) for row in names["decoded"].collect()) == wanted
    kind = message_class("Flight", names["schema"], {})
    found = [kind.FromString(bytes(row.value)[6:]) for row in names["encoded"].collect()]
    assert sorted((each.id, each.carrier, each.delay) for each in found) == wanted


def test_a_stream_reads_structs_of_values_and_keys(
    spark: SparkSession, embedded_broker: Broker, registry: SchemaRegistry, topic: str, tmp_path: Path
) -> None:
    value_id = registered(registry, f"{topic}-value", FLIGHT)
    key_id = registered(registry, f"{topic}-key", CARRIER, refer=False)
    kind, key = message_class("Flight"), message_class("Carrier", CARRIER, {})(code="AA").SerializeToString()
    embedded_broker.create_topic(topic, 1)
    with Producer({"bootstrap.servers": embedded_broker.bootstrap_servers}) as producer:
        for number in range(3):
            row = prefix_of(value_id, (0,)) + kind(id=number).SerializeToString()
            producer.send(topic, row, key=prefix_of(key_id, (0,)) + key)
        producer.send(topic, b"plain", key=None)
        producer.flush()
    options = {
        "kafka.bootstrap.servers": embedded_broker.bootstrap_servers, "subscribe": topic, "valueFormat": "protobuf",
        "keyFormat": "protobuf", "schema.registry.url": registry.url, "mode": "permissive", "valueMessage": "Flight",
        "startingOffsets": "earliest",
    }  # fmt: skip
    stream = spark.readStream.format("pyproducer").options(**options).load()
    name = f"stream_{topic.replace('-', '_')}"
    query = stream.writeStream.format("memory").queryName(name).option("checkpointLocation", str(tmp_path))
    started = query.trigger(availableNow=True).start()
    assert started.awaitTermination(120)
    rows = spark.table(name).orderBy("offset").collect()
    spark.catalog.dropTempView(name)
    assert [(row.key and row.key.code, row.value and row.value.id) for row in rows] == [
        ("AA", 0), ("AA", 1), ("AA", 2), (None, None)
    ]  # fmt: skip
    batch = spark.read.format("pyproducer").options(**options | {"mode": "failfast"}).load()
    with pytest.raises(Exception, match="RecordError") as raised:
        batch.collect()
    assert "failed at offset 3: column 'value' cannot be decoded as Protobuf: it is not in Confluent's" in str(
        raised.value
    )


def test_a_descriptor_of_the_default_pool_is_not_touched() -> None:
    """Schemas of registries stay out of the pool in which a program has its own messages."""
    message_class("Flight")
    with pytest.raises(KeyError):
        descriptor_pool.Default().FindMessageTypeByName("air.Flight")
