"""Schemas as registries store them: texts and descriptors, with the schemas that they import."""

from __future__ import annotations

import base64
import builtins
import importlib.util
from typing import Any

import pytest

from spark_producer.errors import ConfigError, SchemaError
from spark_producer.schemas.protobuf import compiler
from spark_producer.schemas.protobuf.compiler import ProtobufSchema, compiled, message_at, message_names, message_of
from spark_producer.schemas.protobuf.message_types import program_of

pytestmark = pytest.mark.covers("RD22")

FLIGHT = """
syntax = "proto3";
package air.v1;
import "google/protobuf/timestamp.proto";
import "air/carrier.proto";
message Flight {
  map<string, int32> seats = 1;
  air.Carrier carrier = 2;
  google.protobuf.Timestamp at = 3;
  message Leg { string from = 1; }
  message Crew { string name = 1; }
  repeated Leg legs = 4;
}
message Airport { string code = 1; }
"""
CARRIER = 'syntax = "proto2"; package air; message Carrier { required string code = 1; }'
TYPE = (
    "struct<seats: map<string, int32> not null, carrier: struct<code: string not null>, at: timestamp[us, tz=UTC], "
    "legs: list<element: struct<from: string not null> not null> not null>"
)


def kind(schema: ProtobufSchema, message: str | None = None) -> str:
    return str(
        program_of(message_of(compiled(schema, "the schema"), message, "the schema"), "value", 0).columns[0].kind
    )


def descriptor(text: str, references: dict[str, str] | None = None) -> str:
    """The base64 of a compiled text, as confluent-kafka's serialiser registers it."""
    file = compiled(ProtobufSchema(text, references or {}), "the schema")
    return base64.b64encode(file.serialized_pb).decode()


def test_a_text_with_a_reference_and_a_descriptor_with_one() -> None:
    references = {"air/carrier.proto": CARRIER}
    assert kind(ProtobufSchema(FLIGHT, references)) == TYPE
    whole = descriptor(FLIGHT, references)
    for texts in (references, {"air/carrier.proto": descriptor(CARRIER)}):
        assert kind(ProtobufSchema(whole, texts)) == TYPE
        assert kind(ProtobufSchema(FLIGHT, texts)) == TYPE


def test_messages_are_found_by_their_names_and_paths() -> None:
    file = compiled(ProtobufSchema(FLIGHT, {"air/carrier.proto": CARRIER}), "the schema")
    assert message_of(file, None, "it").full_name == "air.v1.Flight"
    for name in ("Flight.Crew", "air.v1.Flight.Crew"):
        assert message_of(file, name, "it").full_name == "air.v1.Flight.Crew"
    with pytest.raises(SchemaError, match=r"it has no message 'Flug'. It has: air\.v1\.Flight, air\.v1\.Airport, "):
        message_of(file, "Flug", "it")
    with pytest.raises(SchemaError, match="it has no message"):
        message_of(compiled(ProtobufSchema('syntax = "proto3";'), "it"), None, "it")
    names = message_names(file)
    assert names[0,] == ("air.v1.Flight",)
    assert names[1,] == ("air.v1.Airport",)
    assert set(names[0, 1]) == {"air.v1.Flight.Leg", "air.v1.Flight.Crew"}, "with and without the entry of the map"
    assert (0, 3) not in names


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        (ProtobufSchema("message M {"), "it is not a valid Protobuf schema: .*line 1:12"),
        (ProtobufSchema(""), "it has no message"),
        (ProtobufSchema("AAAA"), "it is not a valid Protobuf schema"),
        (ProtobufSchema('import "a.proto"; message M {}'), r"a\.proto: File not found"),
        (
            ProtobufSchema('import "a.proto"; message M {}', {"a.proto": 'import "b.proto";'}),
            r"b\.proto: File not found",
        ),
        (ProtobufSchema('syntax = "proto3"; message M { Missing a = 1; }'), '"Missing" is not defined'),
        (ProtobufSchema('syntax = "proto3"; message M { int32 a = 1; int32 b = 1; }'), "already been used"),
        (ProtobufSchema("message M {}", {"../a.proto": ""}), "it refers to a file with an invalid name: '../a.proto'"),
        (ProtobufSchema("message M {}", {"/a.proto": ""}), "it refers to a file with an invalid name: '/a.proto'"),
        (ProtobufSchema("message M {}", {"a": "x" * (17 << 20)}), "it is too large"),
        (
            ProtobufSchema('syntax = "proto3"; message M { M m = 1; }'),
            "field 'value.m': the message M is recursive",
        ),
    ],
)
def test_a_schema_that_is_not_valid_is_one_error(schema: ProtobufSchema, reason: str) -> None:
    with pytest.raises(SchemaError, match=reason):
        program_of(message_of(compiled(schema, "it"), None, "it"), "value", 0)


def test_a_message_has_two_paths_at_most_however_deep_it_is() -> None:
    """A client counts the entries of maps at every level or at none: mixed paths would double with each level."""
    depth = 30
    text = (
        "message M0 {"
        + "".join(f"map<string, string> f = 1; message M{level} {{" for level in range(1, depth))
        + "}" * depth
    )
    file = compiled(ProtobufSchema(f'syntax = "proto3"; {text}'), "the schema")
    names = message_names(file)
    assert len(names) == 2 * depth - 1
    innermost = ".".join(f"M{level}" for level in range(depth))
    assert names[0, *[0] * (depth - 1)] == names[0, *[1] * (depth - 1)] == (innermost,)
    assert message_at(file, (0, *[1] * (depth - 1))).full_name == innermost


def test_a_compilation_without_end_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler, "SECONDS", 0.001)
    with pytest.raises(SchemaError, match=r"it cannot be compiled within 0\.001 s"):
        compiled(ProtobufSchema("message M {}"), "it")


def test_without_the_extra_the_command_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(
        ConfigError, match=r"is not installed\. Run pip install 'pyproducer\[protobuf\]', or .*grpcio-tools"
    ):
        compiled(ProtobufSchema("message M {}"), "it")
    real = builtins.__import__

    def without(name: str, *arguments: Any, **named: Any) -> Any:
        if name == "google.protobuf":
            raise ModuleNotFoundError("No module named 'google'")
        return real(name, *arguments, **named)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(
        ConfigError, match=r"Protobuf's library is not installed: No module named 'google'\. Run pip install"
    ):
        compiled(ProtobufSchema("message M {}"), "it")
