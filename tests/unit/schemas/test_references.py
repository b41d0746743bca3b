"""Schemas that refer to others: what is asked for, the one schema that becomes of them, and references that are wrong."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from typing import Any

import fastavro
import jsonschema
import pytest
from fastavro.schema import to_parsing_canonical_form
from hypothesis import given
from hypothesis import strategies as st
from referencing import Registry as Documents
from referencing.jsonschema import DRAFT7

from spark_producer.config import RegistryOptions
from spark_producer.errors import ConfigError, RegistryError, SchemaError
from spark_producer.schemas import registry
from spark_producer.schemas.avro_references import complete_avro_schema
from spark_producer.schemas.json_references import complete_json_schema
from spark_producer.schemas.plan import parse_schema
from spark_producer.schemas.references import (
    MAX_REFERENCES,
    ReferredSchema,
    SchemaReference,
    UnknownSchema,
    parse_references,
    referred_schemas,
)
from spark_producer.schemas.registry import AVRO, JSON, Registry
from spark_producer.schemas.types import Schema
from tests.unit.schemas.avro_schemas import records
from tests.unit.schemas.played_registry import Played

NAMED = ("record", "enum", "fixed")
CITY = '{"type": "record", "name": "City", "namespace": "geo", "fields": [{"name": "n", "type": "string"}]}'
AIRPORT = """{"type": "record", "name": "air.Airport", "fields": [
    {"name": "city", "type": "geo.City"}, {"name": "next", "type": ["null", "Airport"]}]}"""
FLIGHT = """{"type": "record", "name": "Flight", "fields": [
    {"name": "at", "type": "geo.City"}, {"name": "from", "type": "air.Airport"}, {"name": "to", "type": "Port"}]}"""


@pytest.fixture
def played() -> Iterator[Played]:
    with Played() as server:
        server.answer = 404, b'{"error_code": 40402, "message": "Version not found"}'
        yield server


def stored(text: str, kind: str | None = None, /, **references: Any) -> tuple[int, bytes]:
    named = [{"name": name, "subject": found[0], "version": found[1]} for name, found in references.items()]
    body: dict[str, Any] = {"subject": "s", "version": 1, "id": 7, "schema": text, "references": named}
    return 200, json.dumps(body | ({} if kind is None else {"schemaType": kind})).encode()


def got(played: Played, kind: str = AVRO) -> str:
    made = Registry(RegistryOptions(schema_registry_url=played.url), lambda _, secret: secret.reveal(), 10.0, kind)
    with contextlib.closing(made):
        return made.by_id(5)


def canonical(text: str) -> str:
    found: str = to_parsing_canonical_form(fastavro.parse_schema(json.loads(text)))
    return found


def _spaced(draw: Any, schema: Any) -> Any:
    """The schema with namespaces for some of its types."""
    if isinstance(schema, list):
        return [_spaced(draw, each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found = {
        name: _spaced(draw, value) if name in ("type", "items", "values") else value for name, value in schema.items()
    }
    if found["type"] in NAMED and draw(st.booleans()):
        found["namespace"] = draw(st.sampled_from(["", "a", "a.b"]))
    if "fields" in found:
        found["fields"] = [_spaced(draw, each) for each in found["fields"]]
    return found


def _split(draw: Any, schema: Any, space: str, apart: dict[str, str]) -> Any:
    """The schema without some of its types, which are put into `apart`."""
    if isinstance(schema, list):
        return [_split(draw, each, space, apart) for each in schema]
    if not isinstance(schema, dict):
        return schema
    named = schema.get("type") in NAMED and "name" in schema
    space = schema.get("namespace", space) if named else space
    found = {
        name: _split(draw, value, space, apart) if name in ("type", "items", "values") else value
        for name, value in schema.items()
    }
    if "fields" in found:
        found["fields"] = [_split(draw, each, space, apart) for each in found["fields"]]
    if not named:
        return found
    found["namespace"] = space
    full = f"{space}.{found['name']}" if space else found["name"]
    if draw(st.booleans()) and (space or not draw(st.booleans())):
        apart[full] = json.dumps(found)
        return full
    return found


@given(st.data())
def test_a_schema_that_was_taken_apart_is_whole_again(data: st.DataObject) -> None:
    """A type without a namespace cannot be named within one, so such schemas have no namespaces at all."""
    schema = data.draw(records())[0]
    if data.draw(st.booleans()):
        schema = _spaced(data.draw, schema)
        for each in _types(schema):
            each["namespace"] = each.get("namespace") or "top"
    apart: dict[str, str] = {}
    root = {
        **schema,
        "fields": [_split(data.draw, each, schema.get("namespace", ""), apart) for each in schema["fields"]],
    }
    order = data.draw(st.permutations(list(apart)))
    found = complete_avro_schema(json.dumps(root), {name: apart[name] for name in order}, "it")
    assert canonical(found) == canonical(json.dumps(schema))


def _types(schema: Any) -> Iterator[dict[str, Any]]:
    if isinstance(schema, list):
        for each in schema:
            yield from _types(each)
    elif isinstance(schema, dict):
        if schema.get("type") in NAMED:
            yield schema
        for part in ("type", "items", "values", "fields"):
            yield from _types(schema.get(part))


def test_types_are_defined_once_and_a_reference_may_have_another_name() -> None:
    found = complete_avro_schema(FLIGHT, {"geo.City": CITY, "air.Airport": AIRPORT, "Port": AIRPORT}, "it")
    assert found.count('"name":"City"') == found.count('"name":"Airport"') == 1
    assert [each["type"] for each in json.loads(found)["fields"]][2] == "air.Airport"
    fastavro.parse_schema(json.loads(found))


def test_a_type_at_a_place_that_has_none_is_left_to_the_parser() -> None:
    """It was a KeyError."""
    odd = '{"type": "array", "items": "A", "fields": [{"type": "int", "items": {"type": "fixed", "name": "H", "size": 1}}]}'
    assert json.loads(complete_avro_schema(odd, {"A": CITY}, "it"))["fields"][0]["items"] == "H"


def test_own_types_are_not_replaced_and_without_references_nothing_changes() -> None:
    own = (
        '{"type": "record", "name": "R", "fields": [{"name": "a", "type": {"type": "fixed", "name": "F", "size": 2}}]}'
    )
    assert complete_avro_schema(own, {}, "it") == own
    found = json.loads(complete_avro_schema(own, {"F": '{"type": "fixed", "name": "F", "size": 3}'}, "it"))
    assert found["fields"][0]["type"]["size"] == 2


@pytest.mark.parametrize("definitions", [True, None, 5, "text", []])
def test_definitions_of_a_json_schema_that_are_no_object_are_refused(definitions: Any) -> None:
    with pytest.raises(SchemaError, match=r"it is not a JSON Schema: its \$defs is not an object"):
        complete_json_schema(json.dumps({"$ref": "a.json", "$defs": definitions}), {"a.json": "{}"}, "it")


@pytest.mark.parametrize(
    ("other", "text"), [("{", "'A', to which it refers, is not JSON"), ("1", "is not an Avro schema")]
)
def test_a_referred_schema_that_is_none_is_named(other: str, text: str) -> None:
    with pytest.raises(SchemaError, match=text):
        complete_avro_schema('"A"', {"A": other}, "it")


def test_the_registry_is_asked_for_all_of_them_once(played: Played) -> None:
    _, airports = stored(AIRPORT, "AVRO", **{"geo.City": ("cities", 1)})
    played.answers = {
        "/schemas/ids/5": stored(
            FLIGHT, **{"air.Airport": ("airports", 3), "geo.City": ("cities", 1), "Port": ("airports", 3)}
        ),
        "/subjects/airports/versions/3": (200, airports.replace(b'"s", "version": 1', b'"airports", "version": 3')),
        "/subjects/cities/versions/1": (200, stored(CITY)[1].replace(b'"s"', b'"cities"')),
    }
    schema = parse_schema(got(played))
    whole: Schema = json.loads(
        complete_avro_schema(FLIGHT, {"geo.City": CITY, "air.Airport": AIRPORT, "Port": AIRPORT}, "it")
    )
    assert canonical(json.dumps(schema)) == canonical(json.dumps(whole))
    paths = [path for path, _ in played.asked]
    assert len(paths) == len(set(paths)) == 3
    assert all("deleted=true" in path for path in paths[1:])


@pytest.mark.parametrize(
    ("answers", "text"),
    [
        ({"a/versions/1": None}, "schema 5 refers to 'A', version 1 of subject 'a', which the registry does not have"),
        ({"a/versions/1": (422, b'{"error_code": 42202, "message": "no"}')}, "which the registry does not have"),
        ({"a/versions/1": stored("", "PROTOBUF")}, "refers to 'A', version 1 of subject 'a', which is Protobuf, not Avro"),
        (
            {"a/versions/1": stored(CITY, B=("b", 2)), "b/versions/2": stored(CITY, A=("a", 1))},
            r"has circular references: a 1 -> b 2 -> a 1",
        ),
        ({"a/versions/1": stored(CITY, B=("b", 0))}, "has a reference without a name, a subject and a version"),
        ({"a/versions/1": stored("{")}, "'A', to which schema 5 refers, is not JSON"),
    ],
)  # fmt: skip
def test_wrong_references_are_named(played: Played, answers: dict[str, Any], text: str) -> None:
    found = {f"/subjects/{name}": each for name, each in answers.items() if each is not None}
    played.answers = {"/schemas/ids/5": stored(FLIGHT, A=("a", 1)), **found}
    with pytest.raises(UnknownSchema, match=text):
        got(played)


def test_a_registry_that_fails_is_no_missing_reference(played: Played) -> None:
    played.answers = {
        "/schemas/ids/5": stored(FLIGHT, A=("a", 1)),
        "/subjects/a/versions/1": (401, b'{"error_code": 401}'),
    }
    with pytest.raises(Exception, match="refused it with 401") as raised:
        got(played)
    assert not isinstance(raised.value, UnknownSchema)


@pytest.mark.parametrize("call", ["by_id", "versions"])
def test_a_registry_that_is_slow_for_each_reference_has_the_time_of_one_call(
    played: Played, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """Each response comes within the timeout, all of them together do not; what no thread waits for is not requested."""
    monkeypatch.setattr(registry, "GRACE", 0.0)
    asked: list[str] = []
    given_up = threading.Event()

    def answer(path: str) -> tuple[int, bytes]:
        asked.append(path)
        given_up.wait(0.2)
        if path.endswith("/versions"):
            return 200, json.dumps(list(range(1, 90))).encode()
        return stored(CITY, **{f"r{len(asked)}": ("s", len(asked))})

    played.respond = answer
    made = Registry(RegistryOptions(schema_registry_url=played.url), lambda _, secret: secret.reveal(), 40.0)
    made._timeout = 0.5  # that of a single response stays long
    with contextlib.closing(made):
        with pytest.raises(RegistryError, match=r"no complete response within 0\.5 s"):
            made.by_id(5) if call == "by_id" else made.versions("s")
        [thread] = [each for each in threading.enumerate() if each.name == "schema-registry"]
        given_up.set()
        thread.join(20)
    assert not thread.is_alive()
    assert len(asked) < 20


def test_references_are_bounded() -> None:
    def schema_of(each: SchemaReference) -> ReferredSchema:
        number = each.version + 1
        return ReferredSchema("x", [SchemaReference(f"n{number}", "s", number)])

    with pytest.raises(UnknownSchema, match=f"more than {MAX_REFERENCES} other schemas"):
        referred_schemas([SchemaReference("n1", "s", 1)], schema_of, "it")
    with pytest.raises(UnknownSchema, match="it is too large: the maximum is 16 MiB"):
        referred_schemas([SchemaReference("n", "s", 1)], lambda _: ReferredSchema("x" * (16 << 20 | 1)), "it")


def test_of_two_references_with_one_name_the_first_counts() -> None:
    def schema_of(each: SchemaReference) -> ReferredSchema:
        return ReferredSchema(
            f"{each.subject}{each.version}", [SchemaReference("c", "c", 1)] if each.subject == "a" else []
        )

    given = [SchemaReference("a", "a", 1), SchemaReference("c", "c", 2)]
    assert referred_schemas(given, schema_of, "it") == {"a": "a1", "c": "c1"}


ADDRESS = """{"$id": "http://x/address.json", "definitions": {"zip": {"type": "string", "maxLength": 5}}, "type": "object",
    "properties": {"zip": {"$ref": "#/definitions/zip"}, "near": {"$ref": "#"}}}"""
PERSON = """{"$schema": "http://json-schema.org/draft-07/schema#", "type": "object", "properties": {
    "home": {"$ref": "address.json"}, "zips": {"items": {"$ref": "address.json#/definitions/zip"}},
    "$ref": {"const": {"$ref": "address.json"}}}}"""


@pytest.mark.parametrize(
    "value",
    [
        {"home": {"zip": "12345", "near": {"zip": "1"}}, "zips": ["1"], "$ref": {"$ref": "address.json"}},
        {"home": {"zip": "123456"}},
        {"home": {"near": {"zip": 1}}},
        {"zips": ["123456"]},
        {"$ref": 1},
        {"$ref": {"$ref": "#/$defs/address.json"}},
    ],
)
def test_a_json_schema_with_others_judges_as_the_documents_do(played: Played, value: Any) -> None:
    address = ADDRESS.replace('"$id": "http://x/address.json", ', "")
    played.answers = {
        "/schemas/ids/5": stored(PERSON, "JSON", **{"address.json": ("addresses", 1)}),
        "/subjects/addresses/versions/1": stored(ADDRESS, "JSON"),
    }
    found = json.loads(got(played, JSON))
    documents: Any = Documents().with_resource("address.json", DRAFT7.create_resource(json.loads(address)))
    wanted = jsonschema.Draft7Validator(json.loads(PERSON), registry=documents).is_valid(value)
    assert jsonschema.Draft7Validator(found).is_valid(value) == wanted


@pytest.mark.parametrize("reference", ["address.json", "http://x/address.json", "/address.json"])
def test_an_address_of_json_schema_may_be_relative(reference: str) -> None:
    root = json.dumps({"$id": "http://x/person.json", "properties": {"a": {"$ref": reference}}})
    for name in ("address.json", "http://x/address.json"):
        found = json.loads(complete_json_schema(root, {name: ADDRESS}, "it"))
        assert jsonschema.Draft7Validator(found).is_valid({"a": {"zip": "123456"}}) is False


def test_json_schemas_without_references_stay_as_they_are() -> None:
    assert complete_json_schema("{ }", {}, "it") == "{ }"
    assert complete_json_schema("true", {"a": "{}"}, "it") == "true"
    with pytest.raises(SchemaError, match="'a', to which it refers, is not JSON"):
        complete_json_schema("{}", {"a": "{"}, "it")


def test_references_of_an_option() -> None:
    text = '[{"name": "A", "subject": "a", "version": 1}, {"name": "B", "subject": "b", "version": -1}]'
    assert parse_references(text, "o") == (SchemaReference("A", "a", 1), SchemaReference("B", "b", -1))
    assert parse_references(None, "o") == ()


@pytest.mark.parametrize(
    "text",
    [
        "", "{}", "[1]", "[" * 10_000, '[{"name": "A"}]', '[{"name": "A", "subject": "a", "version": 0}]',
        '[{"name": "A", "subject": "a", "version": true}]', '[{"name": 1, "subject": "a", "version": 1}]',
        '[{"name": "A", "subject": "a", "version": 1}, {"name": "A", "subject": "b", "version": 1}]',
    ],
)  # fmt: skip
def test_other_texts_are_no_references(text: str) -> None:
    with pytest.raises(ConfigError, match="valueSchemaReferences must be a JSON list such as"):
        parse_references(text, "valueSchemaReferences")
