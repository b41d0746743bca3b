"""Schemas named in headers of what is written: the headers of each row, and Confluent's deserialiser as the judge."""

from __future__ import annotations

import contextlib
import json
import uuid
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext
from hypothesis import given
from hypothesis import strategies as st

from spark_producer.config import parse_sink_options
from spark_producer.config.registry_table import column_options
from spark_producer.datasource.write.column_formats import encode_piece
from spark_producer.errors import RegistryError
from spark_producer.schemas.column_format import ColumnFormat, Formats
from spark_producer.schemas.header_ids import header_ids
from spark_producer.schemas.header_writing import SchemaHeader, with_schema_headers
from spark_producer.schemas.protobuf.column_reader import ReaderSchema, protobuf_reader
from spark_producer.schemas.references import with_references
from spark_producer.schemas.registry import RegisteredSchema, Registry
from spark_producer.schemas.schema_lookup import SchemaLookup, query_registry
from spark_producer.schemas.schema_selection import column_format
from tests.unit.config.options import SERVERS
from tests.unit.schemas.played_registry import Played

GUID = uuid.UUID("89791762-2336-4186-9674-299b90a802e2")
VALUE = SchemaHeader("__value_schema_id", b"\x01" + GUID.bytes)
KEY = SchemaHeader("__key_schema_id", b"\x01" + bytes(16))
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
BY_HEADER = "io.confluent.kafka.serializers.schema.id.HeaderSchemaIdSerializer"
OPTIONS = SERVERS | {"valueFormat": "avro", "topic": "t", "value.schema.id.serializer": BY_HEADER}
SCHEMA = '{"type":"record","name":"R","fields":[{"name":"a","type":"string"}]}'
COLUMN: Any = pa.array([{"a": "x" * 9}, None, {"a": "y" * 9}], pa.struct([pa.field("a", pa.string(), nullable=False)]))

_ROWS = st.none() | st.lists(
    st.tuples(st.sampled_from([VALUE.name, KEY.name, "other", ""]), st.none() | st.binary(max_size=3)), max_size=3
)


@given(st.lists(st.tuples(_ROWS, st.booleans(), st.booleans()), max_size=6), st.booleans())
def test_headers_are_added_where_the_masks_say_and_replace_their_own(rows: list[Any], both: bool) -> None:
    entries = [None if own is None else [{"key": key, "value": value} for key, value in own] for own, _, _ in rows]
    column: Any = pa.array([[{"key": "before", "value": b""}], *entries], HEADERS).slice(1)
    added = [(VALUE, np.array([each[1] for each in rows], np.bool_))]
    added += [(KEY, np.array([each[2] for each in rows], np.bool_))] * both
    found: Any = with_schema_headers(column, len(rows), added)
    found.validate(full=True)
    for got, (own, value, key) in zip(found.to_pylist(), rows, strict=True):
        new = [header for header, wanted in ((VALUE, value), (KEY, key and both)) if wanted]
        kept = [pair for pair in own or () if pair[0] not in [header.name for header in new]]
        assert [(each["key"].decode(), each["value"]) for each in got] == [*kept, *new]


def test_without_headers_of_their_own_rows_get_them_too() -> None:
    mask = np.array([True, False, True])
    for headers in (None, pa.nulls(3), pa.array([[], None, []], HEADERS)):
        found: Any = with_schema_headers(headers, 3, [(VALUE, mask)])
        assert found.to_pylist() == [
            [{"key": VALUE.name.encode(), "value": VALUE.value}],
            [],
            [{"key": VALUE.name.encode(), "value": VALUE.value}],
        ]
        ids = header_ids(found, "value")
        assert ids is not None
        assert (ids.rows.tolist(), ids.keys) == ([0, 2], [str(GUID)])


@pytest.fixture
def played() -> Iterator[Played]:
    with Played() as server:
        server.answer = 404, b'{"error_code": 40403, "message": "not found"}'
        yield server


def format_of(played: Played, kind: Any = COLUMN.type, **more: Any) -> ColumnFormat:
    _, sink, registry = parse_sink_options(OPTIONS | {"schema.registry.url": played.url} | more)

    def find(lookup: SchemaLookup) -> RegisteredSchema:
        made = Registry(registry, lambda _, secret: secret.reveal(), 10.0, lookup.kind)
        with contextlib.closing(made):
            return query_registry(made, lookup)

    found = column_format(column_options(sink, registry)[0], kind, "t", registry, find)
    assert found is not None
    return found


def answer(**more: str) -> tuple[int, bytes]:
    return 200, json.dumps(
        {"subject": "t-value", "version": 1, "id": 7, "schema": SCHEMA, "guid": str(GUID)} | more
    ).encode()


@pytest.mark.parametrize(
    ("path", "options"),
    [
        ("/subjects/t-value/versions", {}),
        ("/subjects/t-value", {"auto.register.schemas": "false"}),
        ("/subjects/t-value/versions/latest", {"use.latest.version": "true"}),
    ],
)
def test_confluents_deserialiser_reads_values_by_their_header(
    played: Played, path: str, options: dict[str, str]
) -> None:
    played.answers = {path: answer(), f"/schemas/guids/{GUID}": answer()}
    form = format_of(played, **options)
    piece = pa.RecordBatch.from_pydict(
        {"value": COLUMN, "headers": pa.array([[], None, [{"key": "a", "value": b"1"}]], HEADERS)}
    )
    batch, unfit = encode_piece(piece, Formats(form))
    assert unfit is None
    columns: Any = batch.to_pydict()
    assert [len(each) for each in columns["headers"]] == [1, 0, 2]
    assert columns["value"][1] is None, "a tombstone has no schema"
    with SchemaRegistryClient({"url": played.url}) as client:
        reader = AvroDeserializer(client)
        for value, headers in zip(columns["value"], columns["headers"], strict=True):
            named: Any = [(each["key"].decode(), each["value"]) for each in headers]
            found = reader(value, SerializationContext("t", MessageField.VALUE, named))
            assert found == (None if value is None else {"a": value[1:].decode()})


def test_rows_that_do_not_fit_have_no_header(played: Played) -> None:
    schema = (
        '{"type":"record","name":"R","fields":[{"name":"a","type":{"type":"enum","name":"E","symbols":["'
        + "x" * 9
        + '"]}}]}'
    )
    played.answers["/subjects/t-value/versions"] = answer()
    batch, unfit = encode_piece(
        pa.RecordBatch.from_pydict({"value": COLUMN}), Formats(format_of(played, valueSchema=schema))
    )
    assert unfit is not None
    columns: Any = batch.to_pydict()
    assert [len(each) for each in columns["headers"]] == [1, 0, 0]


def test_a_registry_without_guids_is_an_error(played: Played) -> None:
    played.answers["/subjects/t-value/versions"] = 200, b'{"id": 7}'
    with pytest.raises(RegistryError, match=r"the registry gives no GUIDs, which value\.schema\.id\.serializer=Header"):
        format_of(played)
    played.answers["/subjects/t-value/versions"] = answer(guid="xyz")
    with pytest.raises(RegistryError, match="sent an invalid response"):
        format_of(played)


def test_protobuf_is_read_by_its_header_and_may_refer_to_others(played: Played) -> None:
    text = 'syntax = "proto3"; import "c.proto"; message Flight { City a = 1; }'
    city = 'syntax = "proto3"; message City { string n = 1; }'
    references = json.dumps([{"name": "c.proto", "subject": "cities", "version": 1}])
    column: Any = pa.array([{"a": {"n": "TXL"}}, None], pa.struct([("a", pa.struct([("n", pa.string())]))]))
    played.answers = {
        "/subjects/cities/versions/1": answer(schema=city, schemaType="PROTOBUF", guid=str(uuid.uuid4())),
        "/subjects/t-value/versions": answer(schema=text, schemaType="PROTOBUF"),
    }
    options = {"valueFormat": "protobuf", "valueSchema": text, "valueSchemaReferences": references}
    batch, _ = encode_piece(
        pa.RecordBatch.from_pydict({"value": column}), Formats(format_of(played, column.type, **options))
    )
    assert json.loads(played.bodies[-1])["references"] == json.loads(references)
    columns: Any = batch.to_pydict()
    header = {"key": VALUE.name.encode(), "value": VALUE.value + b"\x00"}
    assert columns == {"value": [b"\x0a\x05\x0a\x03TXL", None], "headers": [[header], []]}
    known: dict[Any, str] = {str(GUID): with_references(text, {"c.proto": city})}
    reader = protobuf_reader("value", ReaderSchema(None, None), "FAILFAST", known, None, known[str(GUID)])
    ids = header_ids(batch.column("headers"), "value")
    found: Any = reader.decode(reader.decoder(), batch.column("value"), str, ids)
    assert found.to_pylist() == column.to_pylist()


def test_json_is_read_by_its_header_by_confluents_deserialiser(played: Played) -> None:
    schema = '{"type":"object","properties":{"a":{"type":"string"}}}'
    found = answer(schema=schema, schemaType="JSON")
    played.answers = {"/subjects/t-value/versions": found, f"/schemas/guids/{GUID}": found}
    form = format_of(played, valueFormat="json-schema")
    batch, unfit = encode_piece(pa.RecordBatch.from_pydict({"value": COLUMN}), Formats(form))
    assert unfit is None
    columns: Any = batch.to_pydict()
    assert columns["value"] == [b'{"a":"xxxxxxxxx"}', None, b'{"a":"yyyyyyyyy"}']
    with SchemaRegistryClient({"url": played.url}) as client:
        reader = JSONDeserializer(None, schema_registry_client=client)
        for value, headers, row in zip(columns["value"], columns["headers"], COLUMN.to_pylist(), strict=True):
            named: Any = [(each["key"].decode(), each["value"]) for each in headers]
            assert len(named) == (value is not None)
            assert reader(value, SerializationContext("t", MessageField.VALUE, named)) == row
