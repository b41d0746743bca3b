"""Ids of schemas in headers: which header counts, what is decoded by it, and headers that hold no id."""

from __future__ import annotations

import io
import json
import uuid
from collections.abc import Iterator
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import Schema as Registered
from confluent_kafka.schema_registry import header_schema_id_serializer
from confluent_kafka.schema_registry._sync.mock_schema_registry_client import MockSchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext, SerializationError
from google.protobuf import message_factory
from hypothesis import given
from hypothesis import strategies as st

from spark_producer.config.registry_parsing import parse_registry_options
from spark_producer.errors import RecordError, SchemaError
from spark_producer.schemas import writer_schemas
from spark_producer.schemas.column_reader import ColumnReader
from spark_producer.schemas.header_ids import header_ids
from spark_producer.schemas.protobuf.column_reader import ReaderSchema, protobuf_reader
from spark_producer.schemas.protobuf.compiler import ProtobufSchema, compiled, message_of
from spark_producer.schemas.protobuf.frames import frames_of
from spark_producer.schemas.reader_types import TypeRules
from spark_producer.schemas.wire_format import prefix_of
from spark_producer.schemas.writer_schemas import RegistryAccess, WriterSchemas
from tests.unit.schemas.played_registry import Played

Header = tuple[str, bytes | None]

GUID = uuid.UUID("89791762-2336-4186-9674-299b90a802e2")
NAME = "__value_schema_id"
SCHEMA = '{"type":"record","name":"R","fields":[{"name":"a","type":"long"}]}'
OTHER = '{"type":"record","name":"R","fields":[{"name":"b","type":"string"},{"name":"a","type":"int"}]}'
BY_GUID = b"\x01" + GUID.bytes
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
TEXT = """syntax = "proto3"; package air; message Flight { int32 id = 1; message Leg { string from = 1; } } message Other {}"""


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> Iterator[Played]:
    monkeypatch.setattr(writer_schemas, "_asked", {})
    with Played() as server:
        server.answer = 404, b'{"error_code": 40403, "message": "Schema not found"}'
        yield server


def access(played: Played) -> RegistryAccess:
    options, allowed = parse_registry_options({"schema.registry.url": played.url})
    return RegistryAccess(options, allowed, 5.0)


def headers_of(rows: list[list[Header] | None]) -> Any:
    entries = [None if row is None else [{"key": key, "value": value} for key, value in row] for row in rows]
    return pa.array([[{"key": "before", "value": b""}], *entries], HEADERS).slice(1)


def read(
    known: dict[Any, str] | None,
    values: list[bytes | None],
    headers: list[list[Header] | None],
    mode: str = "PERMISSIVE",
    by: RegistryAccess | None = None,
) -> list[Any]:
    reader = ColumnReader("value", SCHEMA, TypeRules(), mode, WriterSchemas(known or {}, by))
    column: Any = pa.array([b"x", *values], pa.binary()).slice(1)
    ids = header_ids(headers_of(headers), "value")
    found: Any = reader.decode(reader.decoder(), column, lambda row: f"row {row}", ids)
    found.validate(full=True)
    rows: list[Any] = found.to_pylist()
    return rows


def test_frames_of_both_kinds_are_decoded_each_by_its_own_schema() -> None:
    known = {str(GUID): OTHER, 7: SCHEMA, 8: OTHER}
    values = [b"\x02x\x06", prefix_of(7) + b"\x08", None, b"\x02x\x0a", b"\x0c", prefix_of(8) + b"\x02x\x0e", b""]
    headers: list[list[Header] | None] = [
        [(NAME, BY_GUID)], None, [(NAME, BY_GUID)], [("a", b"1"), (NAME, prefix_of(8)), ("b", None)], [(NAME, prefix_of(7))],
        [("__key_schema_id", BY_GUID), (NAME, None)], [(NAME, BY_GUID)],
    ]  # fmt: skip
    found = read(known, values, headers)
    assert [each and each["a"] for each in found] == [3, 4, None, 5, 6, 7, None]
    assert found[6] is None, "no bytes are no record of two fields"


def test_of_several_headers_the_last_one_counts() -> None:
    headers: list[list[Header] | None] = [[(NAME, BY_GUID), ("x", b""), (NAME, prefix_of(7))]]
    assert read({7: SCHEMA, str(GUID): OTHER}, [b"\x08"], headers) == [{"a": 4}]


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"\x00",
        b"\x01",
        BY_GUID[:-1],
        BY_GUID + b"\x00",
        prefix_of(7)[:-1],
        prefix_of(7, (0,)),
        b"\x02" + GUID.bytes,
    ],
)
def test_a_header_that_holds_no_id_is_an_error_or_null(header: bytes) -> None:
    known = {7: SCHEMA, str(GUID): SCHEMA}
    values: list[bytes | None] = [prefix_of(7) + b"\x02", prefix_of(7) + b"\x04", None]
    headers: list[list[Header] | None] = [None, [(NAME, header)], [(NAME, header)]]
    assert read(known, values, headers) == [{"a": 1}, None, None]
    with pytest.raises(
        RecordError, match="row 1: column 'value' cannot be decoded as Avro: its header __value_schema_id is not"
    ):
        read(known, values, headers, mode="FAILFAST")


def test_a_guid_is_asked_for_once_and_an_unknown_one_is_named(played: Played) -> None:
    played.answers[f"/schemas/guids/{GUID}"] = 200, json.dumps({"guid": str(GUID), "schema": OTHER}).encode()
    headers: list[list[Header] | None] = [[(NAME, BY_GUID)]] * 2
    assert read(None, [b"\x02x\x06", b"\x02x\x08"], headers, by=access(played)) == [{"a": 3}, {"a": 4}]
    assert [path.partition("?")[0] for path, _ in played.asked] == [f"/schemas/guids/{GUID}"]
    other = uuid.uuid4()
    headers = [[(NAME, b"\x01" + other.bytes)]]
    assert read(None, [b"\x02x\x06"], headers, by=access(played)) == [None]
    with pytest.raises(RecordError, match=f"could not get schema {other}: the Schema Registry at .* does not have it"):
        read(None, [b"\x02x\x06"], headers, mode="FAILFAST", by=access(played))


@pytest.mark.parametrize("kind", [pa.list_(pa.int32()), pa.list_(pa.struct([("k", pa.string())])), pa.string()])
def test_a_column_that_holds_no_headers_is_named(kind: pa.DataType) -> None:
    with pytest.raises(SchemaError, match="column 'headers'"):
        header_ids(pa.array([None], kind), "value")


def test_headers_may_be_a_map_and_their_keys_a_dictionary() -> None:
    entries: Any = pa.array([[(NAME, BY_GUID)], [("other", b"")]], pa.map_(pa.string(), pa.binary()))
    found = header_ids(entries, "value")
    assert found is not None
    assert (found.rows.tolist(), found.keys) == ([0], [str(GUID)])
    keys: Any = pa.array(["other", NAME]).dictionary_encode()
    struct = pa.StructArray.from_arrays([keys, pa.array([b"", BY_GUID])], ["key", "value"])
    found = header_ids(pa.ListArray.from_arrays([0, 1, 2], struct), "value")
    assert found is not None
    assert (found.rows.tolist(), found.keys) == ([1], [str(GUID)])
    assert header_ids(pa.nulls(3), "value") is None
    assert header_ids(headers_of([None, []]), "value") is None


_HEADERS = st.lists(
    st.tuples(
        st.sampled_from([NAME, "__key_schema_id", "other", ""]),
        st.none()
        | st.binary(max_size=18)
        | st.sampled_from([BY_GUID, b"\x01" + bytes(16), prefix_of(7), prefix_of(8)]),
    ),
    max_size=3,
)
_VALUES = st.none() | st.binary(max_size=8) | st.sampled_from([b"\x08", prefix_of(7) + b"\x08", prefix_of(9) + b"\x08"])


@given(st.lists(st.tuples(_VALUES, st.none() | _HEADERS), max_size=8))
def test_rows_follow_the_rules_of_headers(rows: list[tuple[bytes | None, list[Header] | None]]) -> None:
    """As Confluent's clients for Java; that for Python takes the first of several headers, and ignores bytes after an id."""
    known: dict[Any, str] = {str(GUID): SCHEMA, 7: SCHEMA, 8: SCHEMA}
    found = read(known, [value for value, _ in rows], [headers for _, headers in rows])
    for (value, headers), each in zip(rows, found, strict=True):
        own = [content for key, content in headers or () if key == NAME][-1:]
        content = own[0] if own else None
        wanted = None
        if value is not None:
            frame = value if content is None else content
            size = 17 if frame[:1] == b"\x01" and content is not None else 5
            key: Any = (
                str(uuid.UUID(bytes=frame[1:17]))
                if size == 17 and len(frame) >= 17
                else int.from_bytes(frame[1:5], "big")
            )
            fits = len(frame) == size if content is not None else len(frame) >= size
            payload = value[size:] if content is None else value
            if fits and frame[:1] in (b"\x00", b"\x01"[: content is not None]) and key in known:
                wanted = _plain(payload)
        assert each == wanted


def _plain(payload: bytes) -> Any:
    out = io.BytesIO(payload)
    try:
        found = fastavro.schemaless_reader(out, fastavro.parse_schema(json.loads(SCHEMA)), None)
    except (EOFError, IndexError, OverflowError, ValueError):
        return None
    return found if not out.read() and found["a"] in range(-(2**63), 2**63) else None


def test_confluents_serialiser_is_read_by_its_guid(played: Played) -> None:
    with MockSchemaRegistryClient({"url": "mock://headers"}) as client:
        serializer = AvroSerializer(client, OTHER, conf={"schema.id.serializer": header_schema_id_serializer})
        headers_written: list[Any] = []
        context = SerializationContext("flights", MessageField.VALUE, headers_written)
        row = serializer({"b": "x" * 9, "a": 3}, context)  # theirs takes no bare value of less than six bytes
        assert row == b"\x12" + b"x" * 9 + b"\x06"
        ((name, content),) = headers_written
        guid = str(uuid.UUID(bytes=content[1:]))
        played.answers[f"/schemas/guids/{guid}"] = 200, json.dumps({"guid": guid, "schema": OTHER}).encode()
        assert read(None, [row], [[(name, content)]], by=access(played)) == [{"a": 3}]
        assert AvroDeserializer(client)(row, context) == {"b": "x" * 9, "a": 3}
        context = SerializationContext("flights", MessageField.VALUE, [(NAME, b"\x02")])
        with pytest.raises(SerializationError, match="Invalid magic byte"):
            AvroDeserializer(client)(row, context)
        assert client.get_schema_by_guid(guid) == Registered(OTHER, "AVRO")


def test_protobuf_of_confluents_serialiser_is_read_by_its_guid() -> None:
    message = message_of(compiled(ProtobufSchema(TEXT), "it"), "Flight.Leg", "it")
    value = message_factory.GetMessageClass(message)(**{"from": "TXL"})
    with MockSchemaRegistryClient({"url": "mock://protobuf-headers"}) as client:
        conf: Any = {"use.deprecated.format": False, "schema.id.serializer": header_schema_id_serializer}
        serializer = ProtobufSerializer(type(value), client, conf)
        headers_written: list[Any] = []
        context = SerializationContext("flights", MessageField.VALUE, headers_written)
        row = serializer(value, context)
        ((name, content),) = headers_written
    registered = json.dumps({"schema": TEXT, "references": {}})
    known: dict[Any, str] = {str(uuid.UUID(bytes=content[1:17])): registered, 7: registered}
    wanted = ReaderSchema(TEXT, "Flight.Leg")
    headers: list[list[Header] | None] = [
        [(name, content)], None, [(NAME, content[:17] + b"\x00")], [(NAME, content[:17])], [(NAME, content + b"\x00")], None,
        [(NAME, prefix_of(7, (0, 0)))], [(NAME, b"\x01" + bytes(16) + content[17:])],
    ]  # fmt: skip
    values = [row, prefix_of(7, (0, 0)) + row, row, row, row, row, row, row]
    reader = protobuf_reader("value", wanted, "PERMISSIVE", known, None)
    ids = header_ids(headers_of(headers), "value")
    column: Any = pa.array(values, pa.binary())
    found: Any = reader.decode(reader.decoder(), column, lambda row: f"row {row}", ids)
    read_rows = [each and each["from"] for each in found.to_pylist()]
    assert read_rows == ["TXL", "TXL", None, None, None, None, "TXL", None]
    reasons = {int(row): reason for rows, reason in frames_of(column, ids).bad for row in rows}
    assert "is not the GUID of a schema, a one and 16 bytes and the indexes of a message" in reasons[3]
    assert sorted(reasons) == [3, 4, 5]


@given(
    st.lists(
        st.tuples(st.booleans(), st.lists(st.integers(0, 300), min_size=1, max_size=4), st.binary(max_size=5)),
        min_size=1,
    )
)
def test_paths_of_headers_and_of_prefixes_are_kept_apart(rows: list[tuple[bool, list[int], bytes]]) -> None:
    heads = [prefix_of(7, tuple(path)) for _, path, _ in rows]
    values = [
        content if headed else head + content + b"." for (headed, _, content), head in zip(rows, heads, strict=True)
    ]
    headers: list[list[Header] | None] = [
        [(NAME, BY_GUID + head[5:])] if headed else [] for (headed, _, _), head in zip(rows, heads, strict=True)
    ]
    found = frames_of(pa.array(values, pa.binary()), header_ids(headers_of(headers), "value"))
    assert found.rows.tolist() == list(range(len(rows)))
    for row, (headed, path, content) in enumerate(rows):
        assert found.pairs[found.sources[row]] == (str(GUID) if headed else 7, tuple(path))
        assert found.data[found.starts[row] : found.ends[row]].tobytes() == (content if headed else content + b".")
        assert found.heads[row] == (0 if headed else len(heads[row]))
