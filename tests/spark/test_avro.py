"""Avro in the sink, with a real Schema Registry: what confluent-kafka's deserialisers read back."""

from __future__ import annotations

import datetime
import json
import re
import struct
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_producer.cli.entry import main
from spark_producer.schemas import to_confluent_avro
from tests.conftest import Broker
from tests.spark.frames import FORMAT, short_message, sink_options, write
from tests.spark.isolated import REPOSITORY, run_program
from tests.support.read_back import read_topic
from tests.support.schema_registry import SchemaRegistry

pytestmark = pytest.mark.spark


@pytest.fixture
def client(registry: SchemaRegistry) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": registry.url}) as made:
        yield made


def avro(registry: SchemaRegistry, **more: object) -> dict[str, object]:
    return {"valueFormat": "avro", "schema.registry.url": registry.url} | more


def values(broker: Broker, topic: str, client: SchemaRegistryClient, expected: int) -> list[Any]:
    """Return the values that confluent-kafka's deserialiser decodes."""
    read = AvroDeserializer(client)
    context = SerializationContext(topic, MessageField.VALUE)
    records = read_topic(broker.bootstrap_servers, topic, expected=expected)
    return [read(record.value, context) if record.value is not None else None for record in records]


def flights(spark: SparkSession, rows: int = 20) -> DataFrame:
    return spark.range(rows).select(
        F.when(
            F.col("id") % 5 != 4, F.struct("id", F.concat(F.lit("N"), "id").alias("tail"), F.array("id").alias("legs"))
        ).alias("value")
    )


@pytest.mark.covers("COM10")
def test_a_deserialiser_reads_what_the_sink_wrote(
    spark: SparkSession,
    embedded_broker: Broker,
    registry: SchemaRegistry,
    client: SchemaRegistryClient,
    topic: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    embedded_broker.create_topic(topic, 1)
    write(flights(spark).coalesce(1), embedded_broker, topic, avro(registry))
    wanted = [{"id": each, "tail": f"N{each}", "legs": [each]} if each % 5 != 4 else None for each in range(20)]
    assert values(embedded_broker, topic, client, 20) == wanted
    arguments = ["--bootstrap-servers", embedded_broker.bootstrap_servers, "--from-beginning", "--max-records", "1"]
    assert main(["tail", topic, *arguments, "--format", "avro", "--schema-registry-url", registry.url]) == 0
    assert 'value={"id": 0, "tail": "N0", "legs": [0]}' in capsys.readouterr().out
    schema = json.loads(registry.ask("GET", f"/subjects/{topic}-value/versions/latest")["schema"])
    assert [field["name"] for field in schema["fields"]] == ["id", "tail", "legs"]


@pytest.mark.covers("COM10")
def test_a_stream_writes_keys_and_values(
    spark: SparkSession, embedded_broker: Broker, registry: SchemaRegistry, topic: str, tmp_path: Path
) -> None:
    embedded_broker.create_topic(topic, 1)
    for number in range(3):
        (tmp_path / f"{number}.json").write_text(f'{{"value": {number}}}\n')
    rows = spark.readStream.schema("value long").option("maxFilesPerTrigger", 1).json(str(tmp_path))
    frame = rows.select(F.struct("value").alias("key"), F.struct(F.col("value").alias("n")).alias("value"))
    checkpoint = str(tmp_path / "checkpoint")
    options = sink_options(embedded_broker, topic, avro(registry, keyFormat="avro", checkpointLocation=checkpoint))
    before = len(registry.requests())
    query = frame.writeStream.format(FORMAT).options(**options).trigger(availableNow=True).start()
    assert query.awaitTermination(120)
    records = read_topic(embedded_broker.bootstrap_servers, topic, expected=3)
    assert sorted(record.value[5:] for record in records if record.value) == [b"\x02\x00", b"\x02\x02", b"\x02\x04"]
    assert sorted(record.key[5:] for record in records if record.key) == [b"\x02\x00", b"\x02\x02", b"\x02\x04"]
    # Three micro-batches, each with a planner and a commit: the key's schema and the value's, once in each process of Spark's.
    asked = registry.requests()[before:]
    assert {each.rpartition("/subjects/")[2].split("?")[0] for each in asked} == {
        f"{topic}-key/versions", f"{topic}-value/versions"
    }  # fmt: skip
    assert len(asked) <= 4, asked


@pytest.mark.covers("COM13")
def test_a_hundred_tasks_ask_as_little_as_one(
    spark: SparkSession, embedded_broker: Broker, registry: SchemaRegistry, topic: str
) -> None:
    embedded_broker.create_topic(topic, 1)
    before = len(registry.requests())
    write(flights(spark, 200).repartition(100), embedded_broker, topic, avro(registry))
    assert len(registry.requests()) - before <= 3


@pytest.mark.covers("COM12")
def test_an_incompatible_schema_fails_before_any_task_and_a_compatible_one_goes_on(
    spark: SparkSession, embedded_broker: Broker, registry: SchemaRegistry, client: SchemaRegistryClient, topic: str
) -> None:
    embedded_broker.create_topic(topic, 1)
    first = spark.range(2).select(F.struct("id").alias("value")).coalesce(1)
    write(first, embedded_broker, topic, avro(registry))
    more = spark.range(2).select(F.struct("id", F.lit("x").alias("new")).alias("value"))
    with pytest.raises(Exception, match="SchemaIncompatible") as caught:
        write(more, embedded_broker, topic, avro(registry))
    assert f"other versions of subject '{topic}-value'" in short_message(str(caught.value))
    nullable = F.when(F.col("id") >= 0, F.lit("x")).alias("new")
    compatible = spark.range(2).select(F.struct("id", nullable).alias("value")).coalesce(1)
    write(compatible, embedded_broker, topic, avro(registry))
    assert [each.get("new") for each in values(embedded_broker, topic, client, 4)] == [None, None, "x", "x"]


def test_the_latest_version_is_written_and_column_and_schema_that_disagree_name_the_field(
    spark: SparkSession, embedded_broker: Broker, registry: SchemaRegistry, client: SchemaRegistryClient, topic: str
) -> None:
    embedded_broker.create_topic(topic, 1)
    latest = {"use.latest.version": "true"}
    frame = spark.range(1).select(F.struct("id").alias("value"))
    with pytest.raises(Exception, match="40401"):
        write(frame, embedded_broker, topic, avro(registry, **latest))
    fields = [{"name": "id", "type": ["string", "long", "null"]}]
    client.register_schema(
        f"{topic}-value", Schema(json.dumps({"type": "record", "name": "a.B", "fields": fields}), "AVRO")
    )
    write(frame, embedded_broker, topic, avro(registry, **latest))
    assert values(embedded_broker, topic, client, 1) == [{"id": 0}]
    with pytest.raises(Exception, match=r"field 'value\.id' has type bool"):
        write(
            spark.range(1).select(F.struct(F.lit(True).alias("id")).alias("value")),
            embedded_broker,
            topic,
            avro(registry, **latest),
        )


def test_a_latest_schema_with_more_fields_and_unions_of_others_is_written_and_read(
    spark: SparkSession,
    embedded_broker: Broker,
    registry: SchemaRegistry,
    client: SchemaRegistryClient,
    topic: str,
    request: pytest.FixtureRequest,
) -> None:
    embedded_broker.create_topic(topic, 1)
    letters = {"type": "enum", "name": "Letters", "symbols": ["A"]}
    kinds: list[dict[str, Any]] = [
        {"name": "id", "type": ["null", letters, "long"]},
        {"name": "text", "type": ["bytes", "Letters", "string", "null"]},
        {"name": "number", "type": ["int", "double"]},
        {"name": "uuid", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "at", "type": ["null", {"type": "long", "logicalType": "time-micros"}]},
        {"name": "gap", "type": {"type": "fixed", "name": "Gap", "size": 12, "logicalType": "duration"}},
        {"name": "nothing", "type": ["null", "string"]},
        {"name": "added", "type": "string", "default": "x"},
        {"name": "next", "type": ["null", "A"], "default": None},
    ]
    client.register_schema(
        f"{topic}-value", Schema(json.dumps({"type": "record", "name": "A", "fields": kinds}), "AVRO")
    )
    spark.conf.set("spark.sql.timeType.enabled", "true")
    request.addfinalizer(lambda: spark.conf.unset("spark.sql.timeType.enabled"))
    frame = spark.range(2).coalesce(1).select(
        F.expr(
            "struct(id, if(id = 0, 'A', 'word') as text, id * 4294967296 as number, "
            "'123e4567-e89b-12d3-a456-426614174000' as uuid, "
            "make_time(12, 0, 1.5) as at, interval '1 00:00:00.007' day to second as gap, null as nothing) as value"
        )
    )  # fmt: skip
    write(frame, embedded_broker, topic, avro(registry, **{"use.latest.version": "true"}))
    found = values(embedded_broker, topic, client, 2)
    wanted = {"uuid": uuid.UUID("123e4567-e89b-12d3-a456-426614174000"), "at": datetime.time(12, 0, 1, 500_000),
              "gap": struct.pack("<3I", 0, 1, 7), "nothing": None, "added": "x", "next": None}  # fmt: skip
    assert found == [
        {"id": 0, "text": "A", "number": 0} | wanted,
        {"id": 1, "text": "word", "number": 2**32} | wanted,
    ]
    with pytest.raises(Exception, match=r"field 'value\.added' of the schema is not in the column"):
        write(
            frame, embedded_broker, topic, avro(registry, fillMissingFields="false", **{"use.latest.version": "true"})
        )


def test_a_null_that_the_schema_refuses_names_row_and_field(
    spark: SparkSession, embedded_broker: Broker, topic: str
) -> None:
    embedded_broker.create_topic(topic, 1)
    schema = {"type": "record", "name": "A", "fields": [{"name": "n", "type": "long"}]}
    frame = spark.range(9).select(F.struct(F.when(F.col("id") != 6, F.col("id")).alias("n")).alias("value")).coalesce(1)
    options = {"valueFormat": "avro", "valueSchemaId": 7, "valueSchema": json.dumps(schema)}
    with pytest.raises(Exception, match=r"row 6 of the task does not fit its Avro schema: field 'value\.n'"):
        write(frame, embedded_broker, topic, options)


def test_the_function_makes_the_bytes_of_the_sink(spark: SparkSession, embedded_broker: Broker, topic: str) -> None:
    embedded_broker.create_topic(topic, 1)
    frame = flights(spark).coalesce(1)
    schema = json.dumps(
        {
            "type": "record",
            "name": "A",
            "fields": [
                {"name": "id", "type": "long"},
                {"name": "tail", "type": ["null", "string"]},
                {"name": "legs", "type": {"type": "array", "items": "long"}},
            ],
        }
    )
    write(frame, embedded_broker, topic, {"valueFormat": "avro", "valueSchemaId": 300, "valueSchema": schema})
    encoded = frame.select(to_confluent_avro("value", 300, schema).alias("value")).collect()
    wanted = [record.value for record in read_topic(embedded_broker.bootstrap_servers, topic, expected=20)]
    assert [None if row.value is None else bytes(row.value) for row in encoded] == wanted
    assert bytes(wanted[0] or b"").startswith(b"\x00\x00\x00\x01\x2c")


@pytest.mark.covers("COM12")
def test_no_secret_of_the_registry_is_in_an_error_or_a_plan(
    spark: SparkSession, embedded_broker: Broker, topic: str, capfd: pytest.CaptureFixture[str]
) -> None:
    embedded_broker.create_topic(topic, 1)
    options = {
        "valueFormat": "avro",
        "schema.registry.url": "http://127.0.0.1:9",
        "basic.auth.user.info": "ann:k4n4rie",
    }
    with pytest.raises(Exception, match="cannot be reached") as caught:
        write(flights(spark), embedded_broker, topic, options)
    assert "k4n4rie" not in str(caught.value)
    assert not re.search("k4n4rie", "".join(capfd.readouterr()))


@pytest.mark.covers("COM10")
@pytest.mark.parametrize("way", [{}, {"exactlyOnceMaxInlineBytes": 0}], ids=["by the driver", "by the tasks"])
def test_exactly_once_writes_are_there_once_and_can_be_read(
    spark: SparkSession,
    embedded_broker: Broker,
    registry: SchemaRegistry,
    client: SchemaRegistryClient,
    topic: str,
    way: dict[str, object],
) -> None:
    embedded_broker.create_topic(topic, 1)
    before = len(registry.requests())
    for version in (1, 1, 2):
        options = avro(registry, exactlyOnceId=topic, txnVersion=version, **way)
        write(flights(spark, 20).repartition(2), embedded_broker, topic, options)
    read = AvroDeserializer(client)
    records = read_topic(embedded_broker.bootstrap_servers, topic, client="confluent", isolation="read_committed")
    context = SerializationContext(topic, MessageField.VALUE)
    found = [None if record.value is None else read(record.value, context) for record in records]
    legs = [None if each is None else each["id"] for each in found]
    assert sorted(legs, key=str) == sorted(2 * [number if number % 5 != 4 else None for number in range(20)], key=str)
    assert {each["tail"] for each in found if each} == {f"N{number}" for number in range(20) if number % 5 != 4}
    # at most one question of each planner, beside those of the deserialiser
    asked = [each for each in registry.requests()[before:] if each.startswith("POST")]
    assert len(asked) <= 3, asked


@pytest.mark.covers("COM10")
def test_an_exactly_once_stream_writes_avro_and_its_dead_letters(
    spark: SparkSession, embedded_broker: Broker, topic: str, tmp_path: Path
) -> None:
    """A row that its schema refuses commits with the others, as a dead letter."""
    for name in (topic, f"{topic}-dead"):
        embedded_broker.create_topic(name, 1)
    schema = json.dumps({"type": "record", "name": "A", "fields": [{"name": "n", "type": "long"}]})
    options = {
        "valueFormat": "avro", "valueSchemaId": 7, "valueSchema": schema, "exactlyOnceId": topic,
        "deadLetterTopic": f"{topic}-dead", "checkpointLocation": str(tmp_path / "checkpoint"),
    }  # fmt: skip
    for numbers in ((1, None), (2, 3)):
        (tmp_path / f"{numbers[0]}.json").write_text("".join(json.dumps({"n": number}) + "\n" for number in numbers))
        rows = spark.readStream.schema("n long").json(str(tmp_path / "*.json"))
        writer = rows.select(F.struct("n").alias("value")).writeStream.format(FORMAT)
        query = writer.options(**sink_options(embedded_broker, topic, options)).trigger(availableNow=True).start()
        assert query.awaitTermination(120)
    found = {
        name: [record.value for record in read_topic(embedded_broker.bootstrap_servers, name, client="confluent",
                                                     isolation="read_committed")]
        for name in (topic, f"{topic}-dead")
    }  # fmt: skip
    frame = b"\x00\x00\x00\x00\x07"
    assert sorted(found[topic], key=str) == [frame + b"\x02", frame + b"\x04", frame + b"\x06"]
    assert found[f"{topic}-dead"] == [b'{"n":null}']


CONNECT = """
import sys
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

bootstrap, topic, url = sys.argv[1:]
spark = SparkSession.builder.remote("local[2]").getOrCreate()
options = {
    "kafka.bootstrap.servers": bootstrap, "topic": topic, "valueFormat": "avro", "schema.registry.url": url,
    "basic.auth.user.info": "ann:k4n4rie",
}
frame = spark.range(5).coalesce(1).select(F.struct("id").alias("value"))
frame.write.format("pyproducer").options(**options).mode("append").save()
try:
    frame.select(F.struct(F.lit("x").alias("id")).alias("value")).write.format("pyproducer").options(**options).mode(
        "append"
    ).save()
except Exception as error:
    assert "SchemaIncompatible" in str(error), error
    assert "k4n4rie" not in str(error), error
else:
    raise AssertionError("wrote an incompatible schema")
spark.stop()
"""


@pytest.mark.covers("COM10", "COM12")
@pytest.mark.slow
@pytest.mark.nightly
def test_avro_over_spark_connect(
    embedded_broker: Broker, registry: SchemaRegistry, client: SchemaRegistryClient, topic: str, tmp_path: Path
) -> None:
    embedded_broker.create_topic(topic, 1)
    said = run_program(CONNECT, [embedded_broker.bootstrap_servers, topic, registry.url], [REPOSITORY], tmp_path)
    assert values(embedded_broker, topic, client, 5) == [{"id": number} for number in range(5)]
    assert "k4n4rie" not in said


def plans(spark: SparkSession) -> list[str]:
    """The plans of all that this session has run, as the web page shows them."""
    store = spark._jsparkSession.sharedState().statusStore()
    done = store.executionsList()
    return [done.apply(place).physicalPlanDescription() for place in range(done.size())]


@pytest.mark.covers("COM12")
def test_plans_show_no_password(
    spark: SparkSession,
    embedded_broker: Broker,
    registry: SchemaRegistry,
    topic: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    embedded_broker.create_topic(topic, 1)
    secret = {"basic.auth.user.info": "ann:k4n4rie"}
    known = len(plans(spark))
    frame = flights(spark)
    frame.explain(extended=True)
    write(frame, embedded_broker, topic, avro(registry, **secret))
    shown = plans(spark)[known:]
    assert any("PythonMapInArrow" in plan or "WriteToDataSource" in plan or "AppendData" in plan for plan in shown), (
        shown
    )
    (tmp_path / "1.json").write_text('{"n": 1}\n')
    rows = spark.readStream.schema("n long").json(str(tmp_path)).select(F.struct("n").alias("value"))
    options = avro(registry, checkpointLocation=str(tmp_path / "checkpoint"), valueSubject=f"{topic}-other", **secret)
    writer = rows.writeStream.format(FORMAT).options(**sink_options(embedded_broker, topic, options))
    query = writer.trigger(availableNow=True).start()
    assert query.awaitTermination(120)
    query.explain(extended=True)
    reported = capsys.readouterr().out
    assert "named_struct" in reported or "struct" in reported
    for text in (*plans(spark)[known:], reported, str(query.lastProgress)):
        assert "k4n4rie" not in text


def test_the_examples_of_the_page_run(
    spark: SparkSession, embedded_broker: Broker, registry: SchemaRegistry, topic: str
) -> None:
    embedded_broker.create_topic(topic, 1)
    page = (Path(__file__).parents[2] / "docs" / "avro.md").read_text(encoding="utf-8")
    names: dict[str, Any] = {"spark": spark}
    for block in re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL):
        text = block.replace("localhost:9092", embedded_broker.bootstrap_servers).replace('"flights', f'"{topic}')
        exec(text.replace("http://localhost:8081", registry.url), names)
    wanted = [(number, "AA", 3 * number) for number in range(100)]
    assert sorted(tuple(row) for row in names["late"].collect()) == wanted[6:]
    for column in ("decoded", "both"):
        assert sorted(tuple(row.v) for row in names[column].collect()) == wanted
    assert names["encoded"].first().value[:5] == b"\x00\x00\x00\x00\x11"
