"""What the values of a schema become: types, nullable unions, references, and JSON text where no type fits."""

from __future__ import annotations

import json
from typing import Any

import pytest

from spark_producer.errors import ConfigError, SchemaError
from spark_producer.schemas.json_schema.column_reader import json_schema_reader
from spark_producer.schemas.json_schema.column_types import MAX_DEPTH, column_type
from spark_producer.schemas.json_schema.documents import SchemaDocument
from tests.unit.schemas.json_schema.judging import of

pytestmark = pytest.mark.covers("JS1")

NULL: Any = {"type": "null"}


def kind_of(schema: Any) -> str:
    """The Arrow type of the only field of an object."""
    found = column_type(
        SchemaDocument(json.dumps(of(a=schema) if isinstance(schema, bool) or "a" not in schema else schema), "it"),
        "value",
    )
    return str(found.kind)[len("struct<a: ") : -1]


@pytest.mark.parametrize(
    ("schema", "kind"),
    [
        ({"type": "boolean"}, "bool"),
        ({"type": "integer"}, "int64"),
        ({"type": "integer", "connect.type": "int8"}, "int8"),
        ({"type": "integer", "connect.type": "int32"}, "int32"),
        ({"type": "integer", "connect.type": ["int32"]}, "int64"),
        ({"type": "integer", "minimum": 0, "maximum": 2**64 - 1}, "decimal128(38, 0)"),
        ({"type": "number"}, "double"),
        ({"type": "number", "connect.type": "float32"}, "float"),
        ({"type": ["integer", "number"]}, "double"),
        ({"type": "string"}, "string"),
        ({"type": "string", "format": "date"}, "date32[day]"),
        ({"type": "string", "format": "date-time"}, "timestamp[us, tz=UTC]"),
        ({"type": "string", "format": "date-time-local"}, "timestamp[us]"),
        ({"type": "string", "format": "uuid"}, "string"),
        ({"type": "string", "contentEncoding": "base64"}, "binary"),
        ({"enum": ["x", "y"]}, "string"),
        ({"enum": ["x", None]}, "string"),
        ({"enum": [1, 2]}, "int64"),
        ({"enum": [1, "x"]}, "string"),
        ({"const": True}, "bool"),
        ({"type": ["null", "integer"]}, "int64"),
        ({"oneOf": [NULL, {"type": "integer"}]}, "int64"),
        ({"anyOf": [{"type": "string", "format": "date"}, NULL]}, "date32[day]"),
        ({"oneOf": [{"type": "integer"}, {"type": "number"}]}, "double"),
        ({"oneOf": [{"type": "integer"}, {"type": "string"}]}, "string"),
        ({"oneOf": [NULL]}, "string"),
        (NULL, "string"),
        (True, "string"),
        ({}, "string"),
        ({"type": ["string", "integer"]}, "string"),
        ({"type": "array", "items": {"type": "integer"}}, "list<element: int64>"),
        ({"type": "array"}, "string"),
        ({"type": "array", "items": [{"type": "integer"}]}, "string"),
        ({"type": "array", "prefixItems": [{}], "items": {"type": "integer"}}, "string"),
        ({"items": {"type": "integer"}}, "list<element: int64>"),
        ({"type": "object"}, "string"),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, "map<string, int64>"),
        ({"properties": {"b": {"type": "integer"}}}, "struct<b: int64>"),
        ({"type": "object", "properties": {"b": {"type": "integer"}}, "additionalProperties": {}}, "struct<b: int64>"),
        ({"allOf": [{"type": "integer"}]}, "int64"),
        ({"allOf": [of(b={"type": "integer"}), of(c={"type": "string"})]}, "struct<b: int64, c: string>"),
        (
            {"allOf": [of(b={"type": "integer"})], "properties": {"c": {"type": "string"}}},
            "struct<b: int64, c: string>",
        ),
        ({"allOf": [{"type": "integer"}, {"minimum": 3}]}, "int64"),
        ({"allOf": [{"type": "integer"}, {"type": "string"}]}, "string"),
        (of(b={"type": "integer"}) | {"anyOf": [{"required": ["b"]}, {"not": {}}]}, "struct<b: int64>"),
        (of(b={"type": "integer"}) | {"anyOf": [{"required": ["b"]}, {"type": "string"}]}, "string"),
    ],
    ids=lambda each: json.dumps(each)[:50] if not isinstance(each, str) else "",
)
def test_types(schema: Any, kind: str) -> None:
    assert kind_of(schema) == kind


def test_references_inside_are_followed_and_types_within_themselves_become_text() -> None:
    schema = of(a={"$ref": "#/$defs/odd~1na~0me"}) | {
        "$defs": {
            "odd/na~me": {"oneOf": [NULL, {"$ref": "#/definitions/tree"}]},
        },
        "definitions": {
            "tree": of(n={"type": "integer"}, more={"type": "array", "items": {"$ref": "#/definitions/tree"}})
        },
    }
    found = column_type(SchemaDocument(json.dumps(schema), "it"), "value")
    assert str(found.kind) == "struct<a: struct<n: int64, more: list<element: string>>>"


DECIMAL = {"type": "number", "title": "org.apache.kafka.connect.data.Decimal"}


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ("{", "the reader's schema is not JSON"),
        ('"string"', "the reader's schema is not a JSON Schema: it is str, not an object or a boolean"),
        ("[" * 100_000, "the reader's schema is nested too deeply"),
        (of(a={"$ref": "other.json"}), "field 'value.a': the reader's schema refers to 'other.json', which is not inside it"),
        (of(a={"$ref": "#/$defs/x"}), "field 'value.a': the reader's schema refers to '#/$defs/x', which it does not define"),
        (of(a={"$ref": "#/$defs/x"}) | {"$defs": {"x": {"$ref": "#/$defs/x"}}}, "has circular references"),
        (of(a=5), "field 'value.a': the schema has int in place of a schema"),
        (of(a={"type": "text"}), "field 'value.a': the schema has the unknown type text"),
        (of(a={"oneOf": []}), "field 'value.a': oneOf of the schema is not a list"),
        (of(a={"allOf": 1}), "field 'value.a': allOf of the schema is not a list"),
        ({"properties": [1]}, "field 'value': properties of the schema is not an object"),
        (of(**{"a\n": {}}), "without a printable name"),
        (of(a={"type": "number", "title": "org.apache.kafka.connect.data.Decimal"}), "no scale within 38 digits"),
        *(
            (of(a=DECIMAL | {"connect.parameters": given}), "no scale within 38 digits")
            for given in ({"scale": 1e999}, {"scale": 10**20}, {"scale": 2, "connect.decimal.precision": 10**20})
        ),
    ],
    ids=lambda each: str(each)[:40],
)  # fmt: skip
def test_schemas_that_are_refused(schema: Any, reason: str) -> None:
    text = schema if isinstance(schema, str) else json.dumps(schema)
    with pytest.raises(SchemaError) as raised:
        json_schema_reader("value", text, "FAILFAST", {}, None)
    assert reason in str(raised.value)


def test_bounds_of_schemas() -> None:
    schema: Any = {"type": "integer"}
    for _ in range(MAX_DEPTH + 1):
        schema = of(a=schema)
    with pytest.raises(SchemaError, match="is nested too deeply: the maximum is 64"):
        json_schema_reader("value", json.dumps(schema), "FAILFAST", {}, None)
    many: Any = {"$defs": {"0": {"type": "integer"}}, **of(a={"$ref": "#/$defs/20"})}
    for number in range(1, 21):
        below = {"$ref": f"#/$defs/{number - 1}"}
        many["$defs"][str(number)] = of(a=below, b=below)
    with pytest.raises(SchemaError, match="more than 20000 fields"):
        json_schema_reader("value", json.dumps(many), "FAILFAST", {}, None)


def test_a_schema_is_needed() -> None:
    with pytest.raises(ConfigError, match="the reader's schema is missing"):
        json_schema_reader("value", None, "FAILFAST", {}, None)
