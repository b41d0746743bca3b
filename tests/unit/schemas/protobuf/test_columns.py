"""Columns of frames: which message each row has, by whom it was written, and what its types become."""

from __future__ import annotations

import datetime
import json
import pickle
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry._sync.mock_schema_registry_client import MockSchemaRegistryClient
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import message_factory, struct_pb2, timestamp_pb2
from hypothesis import given
from hypothesis import strategies as st

from spark_producer.config.registry_parsing import parse_registry_options
from spark_producer.errors import ConfigError, RecordError, SchemaError
from spark_producer.kernel.varint import encode_varint
from spark_producer.schemas import writer_schemas
from spark_producer.schemas.column_reader import subject_schemas
from spark_producer.schemas.protobuf.column_reader import ProtobufReader, ReaderSchema, protobuf_reader
from spark_producer.schemas.protobuf.compiler import ProtobufSchema, compiled, message_of
from spark_producer.schemas.protobuf.frames import NO_FRAME, frames_of
from spark_producer.schemas.protobuf.message_types import program_of
from spark_producer.schemas.registry import PROTOBUF
from spark_producer.schemas.wire_format import prefix_of
from spark_producer.schemas.writer_schemas import RegistryAccess
from tests.unit.schemas.played_registry import Played
from tests.unit.schemas.protobuf.judging import decode, expected

pytestmark = pytest.mark.covers("RD22")

TEXT = """
syntax = "proto3";
package air;
message Flight { int32 id = 1; message Leg { string from = 1; } repeated Leg legs = 2; }
message Airport { int32 id = 1; }
"""
FLIGHT = b"\x08\x05"


def registered(text: str, **references: str) -> str:
    return json.dumps({"schema": text, "references": references})


def reader(known: dict[int, str] | None = None, mode: str = "PERMISSIVE", message: str | None = None) -> ProtobufReader:
    made = protobuf_reader("value", ReaderSchema(TEXT, message), mode, known or {}, None)
    return pickle.loads(pickle.dumps(made))  # type: ignore[no-any-return]


def read(chosen: ProtobufReader, rows: list[bytes | None]) -> list[Any]:
    array: Any = chosen.decode(chosen.decoder(), pa.array(rows, pa.large_binary()), lambda row: f"row {row}")
    array.validate(full=True)
    found: list[Any] = array.to_pylist()
    return found


@given(
    st.lists(
        st.none()
        | st.binary(max_size=8)
        | st.tuples(st.integers(0, 2**31 - 1), st.lists(st.integers(0, 300), max_size=4))
    )
)
def test_paths_are_read_as_they_are_written(rows: list[Any]) -> None:
    given_frames = [
        (prefix_of(each[0], tuple(each[1])) + (b"" if each[1] else b"\x00") + b"xyz")
        if isinstance(each, tuple)
        else each
        for each in rows
    ]
    found = frames_of(pa.array([b"", *given_frames], pa.binary()).slice(1))
    seen = {}
    for row, source, start, end in zip(found.rows, found.sources, found.starts, found.ends, strict=True):
        seen[int(row)] = (*found.pairs[source], found.data[start:end].tobytes())
    for row, each in enumerate(rows):
        if isinstance(each, tuple):
            assert seen.pop(row) == (each[0], tuple(each[1]) or (0,), b"xyz")
    framed = [row for row, each in enumerate(rows) if each is not None and not isinstance(each, tuple)]
    assert set(seen) <= set(framed)
    assert sorted([*(row for rows, _ in found.bad for row in rows.tolist()), *seen]) == framed


@pytest.mark.parametrize(
    "head",
    [
        b"", b"\x00\x00\x00\x00\x07", b"\x00\x00\x00\x00\x07\x02", b"\x00\x00\x00\x00\x07\x80", b"\x01\x00\x00\x00\x07\x00",
        b"\x00\x00\x00\x00\x07" + encode_varint(-1), b"\x00\x00\x00\x00\x07" + encode_varint(65) + bytes(80),
        b"\x00\x00\x00\x00\x07" + encode_varint(1) + encode_varint(-1), b"\x00\x00\x00\x00\x07" + b"\x80" * 6 + b"\x01",
        b"plain text",
    ],
)  # fmt: skip
def test_bytes_that_are_no_frame(head: bytes) -> None:
    rows = read(reader(), [prefix_of(7, (0,)) + FLIGHT, head, None, prefix_of(7, (0,))])
    assert rows == [{"id": 5, "legs": []}, None, None, {"id": 0, "legs": []}]
    with pytest.raises(
        RecordError, match="row 1: column 'value' cannot be decoded as Protobuf: it is not in Confluent's"
    ) as raised:
        read(reader(mode="FAILFAST"), [prefix_of(7, (0,)), head])
    assert NO_FRAME in str(raised.value)


def test_values_of_another_message_are_not_taken_for_this_one() -> None:
    known = {7: registered(TEXT), 8: registered("message {")}
    rows = [prefix_of(7, path) + FLIGHT for path in ((0,), (1,), (0, 0), (5,))] + [prefix_of(8, (0,)) + FLIGHT]
    rows += [prefix_of(9, (0,)) + FLIGHT]
    assert [row is None for row in read(reader(known), list(rows))] == [False, True, True, True, True, True]
    for row, reason in (
        (1, r"it is the message air\.Airport, not air\.Flight"),
        (2, r"it is the message air\.Flight\.Leg, not air\.Flight"),
        (3, r"schema 7 has no message with the indexes \[5\]"),
        (4, "schema 8 is not among those given"),
        (5, "schema 9 is not among those given"),
    ):
        with pytest.raises(RecordError, match=reason):
            read(reader(known, "FAILFAST"), [rows[0], rows[row]])
    assert read(reader(known, message="Airport"), [rows[1]]) == [{"id": 5}]


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> Iterator[Played]:
    monkeypatch.setattr(writer_schemas, "_asked", {})
    with Played() as server:
        server.answer = (404, b'{"error_code": 40403, "message": "Schema not found"}')
        yield server


def access(played: Played) -> RegistryAccess:
    options, allowed = parse_registry_options({"schema.registry.url": played.url})
    return RegistryAccess(options, allowed, 5.0, PROTOBUF)


def stored(text: str, version: int = 1, kind: str = "PROTOBUF", **references: str) -> tuple[int, bytes]:
    named = [{"name": name, "subject": subject, "version": 1} for name, subject in references.items()]
    body = {
        "subject": "s",
        "version": version,
        "id": 10 + version,
        "schema": text,
        "schemaType": kind,
        "references": named,
    }
    return 200, json.dumps(body).encode()


def test_a_subject_is_got_with_all_that_its_schema_refers_to(played: Played) -> None:
    played.answers = {
        "/subjects/f/versions/latest": stored('syntax = "proto3"; import "a"; message F { A a = 1; }', 2, a="sa"),
        "/subjects/f/versions": (200, b"[1, 2]"),
        "/subjects/f/versions/1": stored("message F {}", 1, kind="AVRO"),
        "/subjects/f/versions/2": stored('syntax = "proto3"; import "a"; message F { A a = 1; }', 2, a="sa"),
        "/subjects/sa/versions/1": stored('syntax = "proto3"; import "b"; message A { B b = 1; }', b="sb"),
        "/subjects/sb/versions/1": stored('syntax = "proto3"; message B { bool c = 1; }'),
        "/schemas/ids/77": stored('syntax = "proto3"; message G {} message F {}'),
    }
    latest, known = subject_schemas(access(played), "f")
    assert set(known) == {12}
    assert set(json.loads(latest)["references"]) == {"a", "b"}
    made = protobuf_reader("value", ReaderSchema(None, None), "PERMISSIVE", known, access(played), latest)
    rows = [
        prefix_of(12, (0,)) + b"\x0a\x04\x0a\x02\x08\x01",
        prefix_of(77, (1,)),
        prefix_of(77, (0,)),
        prefix_of(78, (0,)),
    ]
    assert read(made, list(rows)) == [{"a": {"b": {"c": True}}}, {"a": None}, None, None]


def test_a_schema_of_another_format_is_named(played: Played) -> None:
    played.answers["/schemas/ids/77"] = 200, b'{"schema": "{}"}'
    made = protobuf_reader("value", ReaderSchema(TEXT, None), "FAILFAST", {}, access(played))
    with pytest.raises(RecordError, match="schema 77 is Avro, not Protobuf"):
        read(made, [prefix_of(77, (0,))])


def test_without_a_schema_there_is_no_reader() -> None:
    with pytest.raises(ConfigError, match="the reader's schema is missing"):
        protobuf_reader("value", ReaderSchema(None, None), "FAILFAST", {}, None)


def test_a_column_must_be_binary() -> None:
    with pytest.raises(
        SchemaError, match="column 'value' is string, but Protobuf in Confluent's wire format is binary"
    ):
        reader().decoder().decode(pa.array(["a"]))


def test_confluents_serialiser_is_read() -> None:
    """It registers descriptors and not texts, and counts the entries of maps among messages."""
    text = """syntax = "proto3"; import "google/protobuf/timestamp.proto";
    message Other { map<string, int32> m = 1; message Mine { google.protobuf.Timestamp at = 1; string t = 2; } }"""
    message = message_of(compiled(ProtobufSchema(text), "it"), "Other.Mine", "it")
    value = message_factory.GetMessageClass(message)(t="é")
    value.at.seconds = 3
    with MockSchemaRegistryClient({"url": "mock://protobuf"}) as client:
        serializer = ProtobufSerializer(type(value), client, {"use.deprecated.format": False})
        row = serializer(value, SerializationContext("flights", MessageField.VALUE))
        assert row is not None
        schema_id = int.from_bytes(row[1:5], "big")
        schema = client.get_schema(schema_id).schema_str
    assert schema is not None
    made = protobuf_reader("value", ReaderSchema(text, "Other.Mine"), "FAILFAST", {schema_id: registered(schema)}, None)
    at = datetime.datetime(1970, 1, 1, 0, 0, 3, tzinfo=datetime.UTC)
    assert read(made, [row]) == [{"at": at, "t": "é"}]


def test_messages_within_themselves_are_read_to_a_depth() -> None:
    value = struct_pb2.Value()
    value.list_value.values.add().number_value = 1.5
    value.list_value.values.add().string_value = "deep"
    with pytest.raises(
        SchemaError, match=r"google\.protobuf\.Struct is recursive|google\.protobuf\.Value is recursive"
    ):
        program_of(struct_pb2.Value.DESCRIPTOR, "value", 0)
    found = decode(struct_pb2.Value.DESCRIPTOR, [value.SerializeToString()], recursion=2)
    inner = found.rows[0]["list_value"]["values"]
    assert [(each["number_value"], each["string_value"]) for each in inner] == [("1.5", None), (None, "deep")]
    assert decode(struct_pb2.Value.DESCRIPTOR, [value.SerializeToString()], recursion=1).rows[0]["list_value"] == {}


def test_a_required_field_that_is_missing_is_named() -> None:
    text = 'syntax = "proto2"; message M { optional I i = 1; message I { required int32 n = 1; } repeated I l = 2; }'
    message = message_of(compiled(ProtobufSchema(text), "it"), None, "it")
    rows = [b"", b"\x0a\x02\x08\x01", b"\x0a\x00", b"\x12\x02\x08\x01\x12\x00"]
    found = decode(message, list(rows))
    assert found.rows == [{"i": None, "l": []}, {"i": {"n": 1}, "l": []}, None, None]
    assert found.first == (2, "field 'value.i.n': it is required, but missing")


def test_times_that_64_bits_do_not_hold() -> None:
    rows = [timestamp_pb2.Timestamp(seconds=each).SerializeToString() for each in (2**63 - 1, -(2**63), 1)]
    found = decode(timestamp_pb2.Timestamp.DESCRIPTOR, list(rows))
    assert found.bad == 2
    assert found.first == (0, "field 'value': its microseconds do not fit into 64 bits")


def test_editions_have_their_own_presence_and_enums() -> None:
    text = """edition = "2023"; message M { int32 a = 1; int32 b = 2 [features.field_presence = IMPLICIT]; Open o = 3;
    Closed c = 4; M2 g = 5 [features.message_encoding = DELIMITED]; } enum Open { A = 0; }
    enum Closed { option features.enum_type = CLOSED; B = 0; } message M2 { int32 n = 1; }"""
    message = message_of(compiled(ProtobufSchema(text), "it"), None, "it")
    found = decode(message, [b"", b"\x18\x07\x20\x07\x2b\x08\x09\x2c"])
    assert found.rows == [
        {"a": None, "b": 0, "o": None, "c": None, "g": None},
        {"a": None, "b": 0, "o": "7", "c": None, "g": {"n": 9}},
    ]


def test_closed_enums_in_maps_leave_their_entries_out() -> None:
    text = 'syntax = "proto2"; message M { map<int32, E> m = 1; repeated E l = 2; } enum E { A = 0; B = 4; }'
    message = message_of(compiled(ProtobufSchema(text), "it"), None, "it")
    row = b"\x0a\x04\x08\x01\x10\x04" + b"\x0a\x04\x08\x02\x10\x05" + b"\x0a\x02\x08\x03" + b"\x12\x03\x04\x05\x00"
    kind = message_factory.GetMessageClass(message)
    assert dict(kind.FromString(row).m) == {1: 4, 3: 0}
    assert decode(message, [row]).rows == [{"m": [(1, "B"), (3, "A")], "l": ["B", "A"]}]


def test_the_last_entry_of_a_key_counts() -> None:
    text = 'syntax = "proto3"; message M { map<string, int32> a = 1; map<uint64, string> b = 2; map<bool, N> c = 3; }'
    text += " message N { int32 n = 1; }"
    message = message_of(compiled(ProtobufSchema(text), "it"), None, "it")
    kind = message_factory.GetMessageClass(message)
    one, two = kind(a={"x": 1, "y": 2}, b={7: "old", 8: ""}), kind(a={"x": 3}, b={7: "new", 2**64 - 1: "top"})
    one.c[True].n, two.c[True].n, two.c[False].n = 1, 2, 3
    rows = [one.SerializeToString() + two.SerializeToString(), two.SerializeToString() + one.SerializeToString(), b""]
    assert decode(message, list(rows)).rows == [expected(kind.FromString(row)) for row in rows]
    assert decode(message, [rows[0]]).rows[0]["a"] == [("x", 3), ("y", 2)]


def test_a_member_of_a_oneof_clears_the_others() -> None:
    text = """syntax = "proto3"; message M { oneof o { int32 i = 1; string s = 2; N n = 3; bool b = 4; double d = 5; } }
    message N { string t = 1; repeated int32 l = 2; map<string, N2> m = 3; oneof p { int32 x = 4; N2 y = 5; } }
    message N2 { bytes z = 1; }"""
    message = message_of(compiled(ProtobufSchema(text), "it"), None, "it")
    kind = message_factory.GetMessageClass(message)
    whole = kind()
    whole.n.t, whole.n.y.z = "é", b"\xff"
    whole.n.l.extend([1, 2])
    whole.n.m["k"].z = b"z"
    parts = [kind(i=0), kind(s="text"), whole, kind(b=True), kind(d=1.5), kind(n={"x": 7}), kind(n={"l": [3]})]
    rows = [
        one.SerializeToString() + two.SerializeToString() + whole.SerializeToString() for one in parts for two in parts
    ]
    rows += [one.SerializeToString() + two.SerializeToString() for one in parts for two in parts]
    assert decode(message, list(rows)).rows == [expected(kind.FromString(row)) for row in rows]


def test_an_unknown_number_of_a_closed_enum_leaves_its_message_alone() -> None:
    """The message has two fields, as an entry of a map has, but it is none."""
    text = 'syntax = "proto2"; message M { optional N n = 1; repeated N l = 2; } enum E { A = 0; B = 4; }'
    text += " message N { optional E e = 1; optional int32 i = 2; }"
    message = message_of(compiled(ProtobufSchema(text), "it"), None, "it")
    inner = b"\x04\x08\x05\x10\x07"
    row = b"\x0a" + inner + b"\x12" + inner
    kind = message_factory.GetMessageClass(message)
    assert decode(message, [row, row]).rows == [expected(kind.FromString(row))] * 2


def test_members_of_a_oneof_that_take_turns_cost_no_more_than_their_bytes() -> None:
    """Each turn clears all columns of the other message: a row of a few bytes must not cost the time of a large one."""
    fields = " ".join(f"int32 f{number} = {number};" for number in range(1, 1001))
    text = f'syntax = "proto3"; message M {{ oneof o {{ A a = 1; B b = 2; }} }} message A {{ {fields} }} message B {{ {fields} }}'
    message = message_of(compiled(ProtobufSchema(text), "it"), None, "it")
    turn = b"\x0a\x00\x12\x00"
    found = decode(message, [turn * 5, turn * 1000, turn])
    assert [row is None for row in found.rows] == [False, True, False]
    assert found.first is not None
    assert "its items, or the members of a oneof, have too many fields for so few bytes" in found.first[1]
