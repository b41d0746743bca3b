"""Validation on request, by all rules of a schema: rows that are not valid say which rule, and never show their values."""

from __future__ import annotations

import builtins
import json
from typing import Any

import jsonschema
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_producer.errors import ConfigError, SchemaError
from spark_producer.schemas.json_schema.column_plan import json_plan
from spark_producer.schemas.json_schema.column_reader import json_schema_reader
from spark_producer.schemas.json_schema.encoding import encode_json
from spark_producer.schemas.json_schema.validation import SchemaValidator
from tests.unit.schemas.json_schema.judging import FRAME, of, read, reasons

pytestmark = pytest.mark.covers("JS3")

SCHEMA: Any = of(
    id={"type": "integer", "minimum": 1}, s={"pattern": "^A", "maxLength": 3, "type": "string"},
    l={"type": "array", "items": {"type": "integer", "multipleOf": 2}},
) | {"required": ["id"], "additionalProperties": False}  # fmt: skip


def test_rows_that_are_not_valid_have_the_rule() -> None:
    found = reasons(
        SCHEMA,
        '{"id":1}',
        '{"id":0}',
        '{"id":1,"s":"secret"}',
        "{}",
        '{"id":1,"l":[2,3]}',
        '{"id":1,"x":2}',
        "x",
        validate=True,
    )
    assert found == [
        None,
        "field 'value.id': it violates minimum 1 of its schema",
        "field 'value.s': it violates pattern \"^A\" of its schema",
        "field 'value': it violates required [\"id\"] of its schema",
        "field 'value.l[]': it violates multipleOf 2 of its schema",
        "field 'value': it violates additionalProperties false of its schema",
        "it is not JSON: Expecting value (character 0)",
    ]
    assert reasons(SCHEMA, '{"id":0}', "{}") == [None, None], "only on request"
    assert read(SCHEMA, ['{"id":1}', '{"id":0}', None], validate=True).values.to_pylist()[1:] == [None, None]


def test_rows_are_validated_before_they_are_written() -> None:
    column: Any = pa.array([{"id": 1}, {"id": 0}, None, {"id": -5}])
    plan = json_plan(json.dumps(SCHEMA), column.type, "value", validate=True)
    found, unfit = encode_json(plan, column)
    assert found is None
    assert [(each.path, each.reason, each.rows.tolist()) for each in unfit] == [
        ("value.id", "it violates minimum 1 of its schema", [1]),
        ("value.id", "it violates minimum 1 of its schema", [3]),
    ]
    good, none = encode_json(plan, column.take(pa.array([0, 2])))
    assert (good is not None, none) == (True, [])


def test_values_are_validated_by_the_schema_that_they_were_written_with() -> None:
    class Writers:
        def text(self, schema_id: int) -> str:
            return json.dumps(SCHEMA) if schema_id == 7 else "{}"

    reader = json_schema_reader("value", "{}", "PERMISSIVE", {}, None, validate=True)._replace(writers=Writers())  # type: ignore[arg-type]
    found = reader.decoder().decode(pa.array([FRAME + b'{"id":0}', b'\0\0\0\0\x08{"id":0}'], pa.binary()))
    assert found.values.to_pylist() == [None, '{"id":0}']  # type: ignore[misc]


def test_schemas_that_are_not_valid_or_lead_elsewhere() -> None:
    with pytest.raises(SchemaError, match=r"it is not a valid JSON Schema: .* \(at \$\.minimum\)"):
        SchemaValidator('{"minimum": "1"}', "it")
    with pytest.raises(SchemaError, match="not a valid JSON Schema"):
        json_schema_reader("value", '{"minimum": "1"}', "FAILFAST", {}, None, validate=True)
    elsewhere = SchemaValidator('{"$ref": "http://127.0.0.1:9/schema.json"}', "it").reason("{}", "value")
    assert elsewhere is not None
    assert elsewhere.startswith("field 'value': its schema cannot be applied: ")
    deep = '{"$ref": "#", "x": ' * 1
    assert SchemaValidator('{"properties": {"a": {"$ref": "#"}}}', "it").reason(deep, "value") is None, "it is not JSON"
    nested = '{"a":' * 900 + "1" + "}" * 900
    assert "nested too deeply" in str(
        SchemaValidator('{"properties": {"a": {"$ref": "#"}}}', "it").reason(nested, "value")
    )


@pytest.mark.parametrize("schema", [{"$schema": 5}, {"$schema": ["a"]}, {"$schema": {}}])
def test_a_dialect_that_is_no_text_is_refused(schema: Any) -> None:
    with pytest.raises(SchemaError, match=r"it is not a valid JSON Schema: its \$schema is no text"):
        SchemaValidator(json.dumps(schema), "it")


def valid(schema: Any, value: Any) -> str | None:
    return SchemaValidator(json.dumps(schema), "it").reason(json.dumps(value), "value")


@pytest.mark.parametrize("pattern", ["^(a+)+$", "^(a|a)*$", "^a*a*a*a*a*a*$"])
@pytest.mark.parametrize("keyword", ["pattern", "patternProperties", "additionalProperties"])
def test_patterns_that_take_python_endless_time_are_matched(pattern: str, keyword: str) -> None:
    """They were made to: `re` would go back over the text for longer than the tests have."""
    schema: Any = {"pattern": pattern}
    schema = {
        "pattern": schema,
        "patternProperties": {"patternProperties": {pattern: False}},
        "additionalProperties": {"patternProperties": {pattern: True}, "additionalProperties": False},
    }[keyword]
    long = "a" * 5000
    good, bad = (long, f"{long}b") if keyword == "pattern" else ({"b": 1, f"{long}b": 1}, {long: 1})
    if keyword == "additionalProperties":
        good, bad = bad, good
    assert valid(schema, good) is None
    assert str(valid(schema, bad)).startswith("field 'value")


def test_choices_that_double_the_ways_are_bounded() -> None:
    for pattern in ("^" + "a?" * 40 + "a" * 40 + "$", "^(a{1,9}){1,9}$", "^" + "(a|a|aa)" * 30 + "$"):
        assert "violates pattern" in str(valid({"pattern": pattern}, "a" * 39 + "b"))


def test_patterns_that_re2_lacks_are_applied_to_short_texts() -> None:
    password = {"pattern": r"^(?=.*[A-Z])(?=.*\d).{8,}$"}
    assert valid(password, "Passw0rd" * 5) is None
    assert "violates pattern" in str(valid(password, "password"))
    assert valid({"pattern": r"^(.)\1$"}, "aa") is None
    assert "could take endless time" in str(valid({"pattern": r"(?=a)(a+)+$"}, "a" * 50 + "b"))


def test_definitions_that_are_tried_in_ever_more_ways_are_bounded() -> None:
    definitions: Any = {f"d{each}": {"anyOf": [{"$ref": f"#/definitions/d{each + 1}"}] * 2} for each in range(40)}
    schema = {"$ref": "#/definitions/d0", "definitions": definitions | {"d40": {"type": "integer"}}}
    assert "refers to its definitions in too many ways" in str(valid(schema, "x"))
    assert valid(schema, 1) is None


@pytest.mark.parametrize(
    ("items", "unique"),
    [
        ([1, True, "1", None, [1], {"a": 1}, 0, False, [True], {"a": True}, [], {}, ""], True),
        ([1, 1.0], False),
        ([{"a": [1]}, {"a": [1.0]}], False),
        ([{"a": 1, "b": 2}, {"b": 2, "a": 1}], False),
        ([[1, 2], [2, 1]], True),
        ([{"a": number} for number in range(50_000)], True),
    ],
)
def test_items_are_compared_as_json_does(items: list[Any], unique: bool) -> None:
    assert (valid({"uniqueItems": True}, items) is None) == unique
    assert valid({"uniqueItems": False}, items) is None
    if len(items) < 100:
        assert jsonschema.Draft7Validator({"uniqueItems": True}).is_valid(items) == unique


def parts(each: Any) -> Any:
    return st.lists(each, max_size=3) | st.dictionaries(st.sampled_from("ab"), each, max_size=2)


@given(st.recursive(st.sampled_from([None, True, False, 0, 1, 1.0, "a", "b"]), parts, max_leaves=8))
def test_the_bounded_rules_judge_as_the_package_does(value: Any) -> None:
    schema = {
        "uniqueItems": True, "items": {"uniqueItems": True, "patternProperties": {"^a": {"type": ["integer", "null"]}}},
        "properties": {"b": {"$ref": "#"}}, "patternProperties": {"a|c": {"$ref": "#"}},
        "additionalProperties": {"type": "string"},
    }  # fmt: skip
    assert (valid(schema, value) is None) == jsonschema.Draft7Validator(schema).is_valid(value)


def test_without_the_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *arguments: Any, **more: Any) -> Any:
        if name.startswith("jsonschema"):
            raise ImportError("No module named 'jsonschema'")
        return real(name, *arguments, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(
        ConfigError, match=r"json.fail.invalid.schema=true needs jsonschema, .*pyproducer\[jsonschema\]"
    ):
        json_schema_reader("value", "{}", "FAILFAST", {}, None, validate=True)
    json_schema_reader("value", "{}", "FAILFAST", {}, None)
