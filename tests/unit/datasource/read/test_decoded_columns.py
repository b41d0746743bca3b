"""Columns of a read that are decoded: what the driver asks the registry for, and what a task makes of the rows."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from spark_producer.common.cluster import TopicPartition
from spark_producer.config.source_parsing import parse_source_options
from spark_producer.datasource.read import planning
from spark_producer.datasource.read.columns import check_columns, default_columns
from spark_producer.datasource.read.decoded_columns import column_readers, spark_type
from spark_producer.datasource.read.readers import BatchReader
from spark_producer.datasource.read.stream_readers import StreamReader
from spark_producer.datasource.read.worker.spark_columns import SparkColumns
from spark_producer.datasource.spark_compat import arrow_schema
from spark_producer.errors import ConfigError, RecordError, RegistryError, SchemaError
from spark_producer.schemas import writer_schemas
from spark_producer.schemas.column_reader import ColumnReader, Reader
from tests.unit.schemas.played_registry import Played

pytestmark = pytest.mark.covers("RD19")

OLD = '{"type":"record","name":"R","fields":[{"name":"a","type":"int"}]}'
NEW = '{"type":"record","name":"R","fields":[{"name":"a","type":"long"},{"name":"b","type":["null","string"],"default":null}]}'
OFFSETS = [5, 6, 7]


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> Iterator[Played]:
    monkeypatch.setattr(writer_schemas, "_asked", {})
    with Played() as server:
        server.answer = 404, b'{"error_code": 40401, "message": "Subject not found"}'
        server.answers["/subjects/t-value/versions"] = 200, b"[1, 2]"
        for version, (schema_id, text) in enumerate([(7, OLD), (8, NEW)], start=1):
            body = {"subject": "t-value", "id": schema_id, "version": version, "schema": text}
            server.answers[f"/subjects/t-value/versions/{version}"] = 200, json.dumps(body).encode()
            server.answers["/subjects/t-value/versions/latest"] = 200, json.dumps(body).encode()
        yield server


def options_of(played: Played) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": "a:1", "subscribe": "t", "valueFormat": "avro", "schema.registry.url": played.url,
        "kafka.default.api.timeout.ms": "5000", "kafka.request.timeout.ms": "5000",
    }  # fmt: skip


def readers(played: Played, schema: StructType | None = None, **more: str) -> dict[str, Reader]:
    return column_readers(*parse_source_options(options_of(played) | more), schema)


def schema_of(reader: Reader) -> str:
    assert isinstance(reader, ColumnReader)
    return reader.schema


def frame(schema_id: int, content: bytes) -> bytes:
    return b"\x00" + schema_id.to_bytes(4, "big") + content


def rows(found: dict[str, Reader], values: Sequence[bytes | None], *names: str) -> pa.RecordBatch:
    """The rows of a task for a schema of these columns."""
    _, source, _ = parse_source_options({"kafka.bootstrap.servers": "a:1", "subscribe": "t"})
    types = {name: spark_type(reader) for name, reader in found.items()}
    schema = default_columns(source, types)
    schema = type(schema)([field for field in schema if field.name in names])
    check_columns(schema, source, types)
    columns = SparkColumns(schema, found)
    headers = pa.array([[], [], []], pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])))
    batch = pa.RecordBatch.from_pydict(
        {"offset": pa.array(OFFSETS), "value": pa.array(values, pa.binary()), "headers": headers}
    )
    assert columns.needed == {"offset", "value", "headers"}
    converted = columns.convert(TopicPartition("t", 0), batch)
    assert converted.schema.equals(arrow_schema(schema), check_metadata=True)
    return converted


def test_values_of_all_versions_become_the_latest_schema(played: Played) -> None:
    found = readers(played)
    asked = len(played.asked)
    values = [frame(7, b"\x02"), None, frame(8, b"\x04\x02\x02x")]
    assert rows(found, values, "value", "topic").to_pydict() == {
        "value": [{"a": 1, "b": None}, None, {"a": 2, "b": "x"}], "topic": ["t"] * 3
    }  # fmt: skip
    assert len(played.asked) == asked, "the driver has sent both versions"


def test_a_bad_value_names_its_offset_or_is_null(played: Played) -> None:
    values = [frame(8, b"\x02\x00"), b"plain", frame(8, b"\x04\x00")]
    with pytest.raises(
        RecordError, match=r"reading topic 't', partition 0 failed at offset 6: column 'value' cannot be"
    ):
        rows(readers(played), values, "value")
    found: Any = rows(readers(played, mode="PERMISSIVE"), values, "value").column("value")
    assert [each and each["a"] for each in found.to_pylist()] == [1, None, 2]


def test_a_given_schema_is_read_and_needs_no_subject(played: Played) -> None:
    given = readers(played, valueReaderSchema=OLD)
    assert spark_type(given["value"]).simpleString() == "struct<a:int>"
    played.answers["/schemas/ids/9"] = 200, json.dumps({"schema": OLD}).encode()
    for topics in ("other", "t,u"):
        found = readers(played, valueReaderSchema=OLD, subscribe=topics)
        column: Any = rows(found, [frame(9, b"\x02"), None, None], "value").column("value")
        assert column.to_pylist() == [{"a": 1}, None, None]


def test_a_query_keeps_the_version_of_its_schema(played: Played) -> None:
    schema = StructType().add("value", StructType().add("a", "integer"))
    (found,) = readers(played, schema).values()
    assert schema_of(found) == OLD
    assert rows({"value": found}, [frame(7, b"\x02"), None, None], "value").column("value")[0].as_py() == {"a": 1}
    other = readers(played, StructType().add("value", StructType().add("c", "integer")))["value"]
    assert schema_of(other) == NEW, "the check names its type"
    asked = len(played.asked)
    assert readers(played, StructType().add("offset", "long")) == {}
    assert len(played.asked) == asked


@pytest.mark.parametrize("make", [planning.batch_reader, planning.stream_reader])
def test_batches_and_streams_keep_the_version_of_their_schema(
    played: Played, make: Callable[[dict[str, str], StructType], BatchReader | StreamReader]
) -> None:
    reader = make(options_of(played), StructType().add("value", StructType().add("a", "integer")))
    assert reader.settings.decoded is not None
    assert schema_of(reader.settings.decoded["value"]) == OLD


def test_several_topics_need_a_schema_and_one_needs_its_subject(played: Played) -> None:
    with pytest.raises(ConfigError, match="valueFormat=avro needs valueReaderSchema for a read of several topics"):
        readers(played, subscribe="t,u")
    with pytest.raises(RegistryError, match="latest schema of subject 'other-value'"):
        readers(played, subscribe="other")
    with pytest.raises(RegistryError, match="subject 't-key'"):
        readers(played, keyFormat="avro")
    played.answers["/subjects/t-value/versions/latest"] = 401, b'{"error_code": 40101, "message": "no"}'
    with pytest.raises(RegistryError, match="401"):
        readers(played, valueReaderSchema=OLD)


def test_a_schema_that_spark_cannot_have_is_refused_on_the_driver(played: Played) -> None:
    with pytest.raises(SchemaError, match="is recursive"):
        readers(played, valueReaderSchema='{"type":"record","name":"R","fields":[{"name":"a","type":"R"}]}')
    with pytest.raises(ConfigError, match=r"valueReaderSchema: the file 'missing\.avsc' cannot be read"):
        readers(played, valueReaderSchema="missing.avsc")


def test_protobuf_is_read_by_its_first_message_or_the_one_that_is_named(played: Played) -> None:
    text = 'syntax = "proto3"; message A { int32 a = 1; } message B { string b = 1; }'
    older = 'syntax = "proto3"; message A { string a = 2; }'
    for version, schema in ((1, older), (2, text)):
        body = {"subject": "t-value", "id": 6 + version, "version": version, "schema": schema, "schemaType": "PROTOBUF"}
        played.answers[f"/subjects/t-value/versions/{version}"] = 200, json.dumps(body).encode()
        played.answers["/subjects/t-value/versions/latest"] = 200, json.dumps(body).encode()
    found = readers(played, valueFormat="protobuf")
    assert spark_type(found["value"]).simpleString() == "struct<a:int>"
    decoder = found["value"].decoder()
    rows = pa.array([frame(8, b"\x00\x08\x05"), frame(7, b"\x00"), frame(9, b"\x00"), frame(8, b"\x02\x02")])
    assert decoder.decode(rows).values.to_pylist() == [{"a": 5}, {"a": 0}, None, None]
    named = readers(played, valueFormat="protobuf", valueMessage="B")
    assert spark_type(named["value"]).simpleString() == "struct<b:string>"
    earlier = readers(played, StructType().add("value", StructType().add("a", "string")), valueFormat="protobuf")
    assert spark_type(earlier["value"]).simpleString() == "struct<a:string>"
    with pytest.raises(SchemaError, match="the subject's latest schema has no message 'C'"):
        readers(played, valueFormat="protobuf", valueMessage="C")
    with pytest.raises(ConfigError, match="valueFormat=protobuf needs valueReaderSchema for a read of several topics"):
        readers(played, valueFormat="protobuf", subscribe="t,u")
    with pytest.raises(RegistryError, match="is Protobuf, not Avro"):
        readers(played)


@pytest.mark.parametrize(
    ("form", "schema", "name", "other", "value", "shown"),
    [
        ("avro", '{"type":"record","name":"R","fields":[{"name":"a","type":"A"}]}', "A",
         '{"type":"record","name":"A","fields":[{"name":"n","type":"long"}]}', b"\x08", {"a": {"n": 4}}),
        ("json-schema", '{"type":"object","properties":{"a":{"$ref":"a.json"}}}', "a.json",
         '{"type":"object","properties":{"n":{"type":"integer"}}}', b'{"a":{"n":4}}', {"a": {"n": 4}}),
        ("protobuf", 'syntax = "proto3"; import "a.proto"; message R { A a = 1; }', "a.proto",
         'syntax = "proto3"; message A { int64 n = 1; }', b"\x00\x0a\x02\x08\x04", {"a": {"n": 4}}),
    ],
)  # fmt: skip
def test_a_given_schema_may_refer_to_registered_ones(
    played: Played, form: str, schema: str, name: str, other: str, value: bytes, shown: Any
) -> None:
    kinds = {"avro": "AVRO", "json-schema": "JSON", "protobuf": "PROTOBUF"}
    stored = {"subject": "other", "id": 5, "version": 3, "schema": other, "schemaType": kinds[form]}
    listed = [{"name": name, "subject": "other", "version": 3}]
    whole = {"schema": schema, "schemaType": kinds[form], "references": listed}
    played.answers = {
        "/subjects/other/versions/3": (200, json.dumps(stored).encode()),
        "/schemas/ids/9": (200, json.dumps(whole).encode()),
    }
    given = {"valueFormat": form, "valueReaderSchema": schema, "valueReaderSchemaReferences": json.dumps(listed)}
    column: Any = rows(readers(played, None, **given), [frame(9, value), None, None], "value").column("value")
    assert column.to_pylist() == [shown, None, None]
    with pytest.raises(ConfigError, match="valueReaderSchemaReferences must be a JSON list such as"):
        readers(played, None, **given | {"valueReaderSchemaReferences": "{"})
    with pytest.raises(RegistryError, match="valueReaderSchema refers to"):
        readers(played, None, **given | {"valueReaderSchemaReferences": json.dumps(listed).replace("other", "gone")})
