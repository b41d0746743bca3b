"""Columns beside a given schema: what does not match is refused with its field, and rows that do not fit are found."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pyarrow as pa
import pytest

from spark_producer.errors import SchemaError
from spark_producer.schemas.json_schema.column_plan import json_plan
from spark_producer.schemas.json_schema.derived_schema import json_schema
from spark_producer.schemas.json_schema.encoding import encode_json
from tests.unit.schemas.json_schema.judging import of, written

pytestmark = pytest.mark.covers("JS2")

NULL: Any = {"type": "null"}
NUMBER: Any = {"type": "integer"}


def struct(**fields: Any) -> Any:
    return pa.struct(list(fields.items()))


@pytest.mark.parametrize(
    ("schema", "kind", "reason"),
    [
        (of(a=NUMBER), struct(a=pa.string()), "field 'value.a' has type string, but the schema says integer. Cast it"),
        (of(a=NUMBER), struct(a=pa.float64()), "field 'value.a' has type double, but the schema says integer"),
        (of(a={"type": "boolean"}), struct(a=pa.int64()), "field 'value.a' has type int64, but the schema says boolean"),
        (of(a=NUMBER), struct(b=pa.int64()), "field 'value.b' is not in the schema, whose fields are a. Leave it out"),
        (of(a=NUMBER) | {"required": ["a"]}, struct(), "field 'value.a' is required by the schema, but not in the column"),
        (of(a=False), struct(a=pa.int64()), "field 'value.a': the schema takes no value there"),
        (of(a={"oneOf": [NULL, NUMBER]}), struct(a=pa.string()), "field 'value.a' has type string, but the schema says integer"),
        (
            of(a={"oneOf": [{"type": "boolean"}, NUMBER]}),
            struct(a=pa.string()),
            "field 'value.a' has type string, which no alternative of the schema accepts",
        ),
        (of(a={"type": "array", "items": NUMBER}), struct(a=pa.list_(pa.string())), "field 'value.a[]' has type string"),
        (of(a=of(b=NUMBER)), struct(a=struct(b=pa.string())), "field 'value.a.b' has type string"),
        (
            of(a={"type": "object", "additionalProperties": NUMBER}),
            struct(a=pa.map_(pa.string(), pa.string())),
            "field 'value.a{}' has type string",
        ),
        (
            of(a={"type": "object", "additionalProperties": False, "properties": {"x": {}}}),
            struct(a=pa.map_(pa.string(), pa.string())),
            "field 'value.a' is a map, but the schema takes only the fields x. Make it a struct",
        ),
        (of(a={}), struct(a=pa.map_(pa.int64(), pa.string())), "field 'value.a' is a map whose keys are int64"),
        (of(a={"type": "string", "format": "date-time"}), struct(a=pa.timestamp("us")), "the format date-time: a timestamp"),
        (of(a={"type": "string", "format": "date"}), struct(a=pa.timestamp("us", "UTC")), "the format date: a date"),
        (of(a={"type": "string", "contentEncoding": "base64"}), struct(a=pa.date32()), "the schema says bytes in base64"),
        (of(a={"type": "string", "format": "uuid"}), struct(a=pa.binary()), "but the schema says strings"),
        (of(a=NUMBER) | {"required": ["a"]}, struct(a=pa.null()), "field 'value.a' has type void, but the schema says integer"),
        ({"properties": 5}, struct(a=pa.int64()), "field 'value': properties of the schema is not an object"),
        ({"type": 5}, struct(a=pa.int64()), "field 'value': the schema has the unknown type 5"),
        ({"type": None, "allOf": [{"type": "object"}]}, struct(a=pa.int64()), "the schema has the unknown type None"),
        ({"required": [1]}, struct(a=pa.int64()), "field 'value': required of the schema is not a list of names"),
        ({"required": True, "allOf": [{}]}, struct(a=pa.int64()), "field 'value': required of the schema is not a list"),
        ({"allOf": [{"allOf": 1}]}, struct(a=pa.int64()), "field 'value': allOf of the schema is not a list"),
        ({"allOf": [{"properties": "a"}]}, struct(a=pa.int64()), "field 'value': properties of the schema is not an object"),
        ({"$ref": "#/anyOf/" + "9" * 5000, "anyOf": [{}]}, struct(a=pa.int64()), "which it does not define"),
        (of(a=NUMBER), pa.struct([("a", pa.int64()), ("a", pa.int64())]), "field 'value.a' is in the column twice"),
        (of(a={"$ref": "#/$defs/x"}), struct(a=pa.int64()), "refers to '#/$defs/x', which it does not define"),
    ],
    ids=lambda each: str(each)[:40],
)  # fmt: skip
def test_what_does_not_match_is_refused_with_its_field(schema: Any, kind: Any, reason: str) -> None:
    with pytest.raises(SchemaError) as raised:
        json_plan(json.dumps(schema), kind, "value")
    assert reason in str(raised.value)


@pytest.mark.parametrize(
    ("schema", "kind", "rows", "texts"),
    [
        (of(a={"type": "number"}), struct(a=pa.int64()), [{"a": 1}], ['{"a":1}']),
        (of(a={}), struct(a=pa.binary()), [{"a": b"x"}], ['{"a":"eA=="}']),
        (True, struct(a=pa.int64()), [{"a": 1}, None], ['{"a":1}', None]),
        (of() | {"additionalProperties": NUMBER}, struct(a=pa.int64()), [{"a": 1}], ['{"a":1}']),
        (of(x={}) | {"additionalProperties": True}, struct(a=pa.int64()), [{"a": 1}], ['{"a":1}']),
        ({"type": "object"}, pa.map_(pa.string(), pa.int64()), [[("a", 1)], []], ['{"a":1}', "{}"]),
        (of(a={"type": "array"}), struct(a=pa.list_(pa.int64())), [{"a": [1, None]}], ['{"a":[1,null]}']),
        (of(a={"oneOf": [{"enum": ["x"]}, {"enum": ["y"]}]}), struct(a=pa.string()), [{"a": "y"}], ['{"a":"y"}']),
        (of(a=NUMBER), struct(a=pa.null()), [{"a": None}], ["{}"]),
        ({"type": "string"}, pa.string(), ['a"', None], ['"a\\""', None]),
        (
            {"allOf": [of(a=NUMBER), {"$ref": "#/$defs/b"}], "$defs": {"b": of(b=NUMBER) | {"required": ["b"]}}},
            struct(a=pa.int64(), b=pa.int64()),
            [{"a": 1, "b": 2}],
            ['{"a":1,"b":2}'],
        ),
    ],
    ids=lambda each: str(each)[:40],
)  # fmt: skip
def test_what_matches_is_written_and_valid(schema: Any, kind: Any, rows: list[Any], texts: list[Any]) -> None:
    assert written(pa.array(rows, kind), schema) == texts


@pytest.mark.parametrize(
    ("schema", "kind", "value", "field", "reason"),
    [
        (of(a=NUMBER) | {"required": ["a"]}, struct(a=pa.int64()), {"a": None}, "value.a", "does not take null"),
        (of(a={"type": "array", "items": NUMBER}), struct(a=pa.list_(pa.int64())), {"a": [1, None]}, "value.a[]", "take null"),
        (
            {"type": "object", "additionalProperties": NUMBER},
            pa.map_(pa.string(), pa.int64()),
            [("a", None)],
            "value{}",
            "does not take null",
        ),
        (of(a={"type": "number"}), struct(a=pa.float64()), {"a": float("nan")}, "value.a", "NaN or an infinity"),
        ({}, struct(a=pa.list_(pa.float32())), {"a": [float("inf")]}, "value.a[]", "NaN or an infinity"),
        (of(a={"enum": ["x"]}), struct(a=pa.string()), {"a": "y"}, "value.a", "not one of the values of enum or const"),
        (of(a={"const": "x"}), struct(a=pa.string()), {"a": "y"}, "value.a", "not one of the values of enum or const"),
        (of(a={"type": "string", "format": "date"}), struct(a=pa.date32()), {"a": 2_932_897}, "value.a", "years 1 to 9999"),
        (
            of(a={"type": "string", "format": "date-time"}),
            struct(a=pa.timestamp("us", "UTC")),
            {"a": -62135596800000001},
            "value.a",
            "years 1 to 9999",
        ),
    ],
    ids=lambda each: str(each)[:40],
)  # fmt: skip
def test_rows_that_do_not_fit_are_found(schema: Any, kind: Any, value: Any, field: str, reason: str) -> None:
    column = pa.array([value, None], kind).take(pa.array([1, 0, 1, 0]))
    found, (unfit,) = encode_json(json_plan(json.dumps(schema), kind, "value"), column)
    assert found is None
    assert (unfit.path, unfit.rows.tolist()) == (field, [1, 3])
    assert reason in unfit.reason


def test_texts_that_are_not_utf_8_do_not_fit() -> None:
    bad = pa.Array.from_buffers(
        pa.string(), 2, [None, pa.py_buffer(b"\0\0\0\0\1\0\0\0\2\0\0\0"), pa.py_buffer(b"a\xff")]
    )
    column = pa.StructArray.from_arrays([bad], names=["a"])
    found, (unfit,) = encode_json(json_plan("{}", column.type, "value"), column)
    assert (found, unfit.path, unfit.reason, unfit.rows.tolist()) == (None, "value.a", "it is not UTF-8", [1])


def test_values_below_a_null_are_not_judged() -> None:
    inner = pa.StructArray.from_arrays([pa.array([float("nan"), 1.0])], names=["d"], mask=pa.array([True, False]))
    column = pa.StructArray.from_arrays([inner], names=["a"])
    assert written(column, of(a={"oneOf": [NULL, of(d={"type": "number"})]})) == ["{}", '{"a":{"d":1.0}}']


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (struct(a=pa.map_(pa.int64(), pa.string())), "field 'value.a' is a map whose keys are int64"),
        (
            struct(a=pa.month_day_nano_interval()),
            "field 'value.a' has type month_day_nano_interval, which JSON does not have",
        ),
        (pa.struct([("a", pa.int64()), ("a", pa.int64())]), "field 'value.a' is in the column twice"),
        (pa.struct([("a\n", pa.int64())]), "no printable name"),
    ],
    ids=lambda each: str(each)[:40],
)
def test_types_without_a_schema_are_refused(kind: Any, reason: str) -> None:
    with pytest.raises(SchemaError) as raised:
        json_schema(kind, "value")
    assert reason in str(raised.value)


def test_definitions_that_refer_to_each_other_in_ever_more_ways_are_bounded() -> None:
    """Each of forty refers to the next one twice: a million millions in all."""
    for keyword in ("allOf", "anyOf"):
        definitions: dict[str, Any] = {
            f"d{number}": {keyword: [{"$ref": f"#/definitions/d{number + 1}"}] * 2} for number in range(40)
        }
        schema = {"$ref": "#/definitions/d0", "definitions": definitions | {"d40": {"type": "integer"}}}
        with pytest.raises(SchemaError):
            json_plan(json.dumps(schema), pa.string(), "value")


def filled(schema: Any, column: Any, **options: Any) -> list[Any]:
    found: Any
    found, unfit = encode_json(json_plan(json.dumps(schema), column.type, "value", fill=True, **options), column)
    assert unfit == []
    texts: list[Any] = found.to_pylist()
    judge = jsonschema.Draft7Validator(schema)
    for each in texts:
        if each is not None:
            judge.validate(json.loads(each))
    return texts


def test_required_fields_that_the_column_lacks_are_filled_in() -> None:
    """Their default, or null; others are absent, as they are without it."""
    inner = of(c=NUMBER, d={"type": "string", "default": "é\n"}) | {"required": ["c", "d"]}
    schema = of(
        a=NUMBER, b={"type": ["number", "null"]}, n={"oneOf": [NULL, NUMBER], "default": 5}, s=inner,
        o={"$ref": "#/definitions/o"}, l={"type": "array", "items": inner}, x={"type": "string"},
    ) | {"required": ["b", "n", "o", "s"], "definitions": {"o": {"type": "object", "default": {"k": [1, None]}}}}  # fmt: skip
    kind = struct(a=pa.int64(), s=struct(c=pa.int64()), l=pa.list_(struct(c=pa.int64())))
    rows = [{"a": 1, "s": {"c": 2}, "l": [{"c": 3}, {"c": 4}]}, None, {"s": {"c": 0}, "l": None}]
    assert filled(schema, pa.array([None, *rows], kind).slice(1)) == [
        '{"a":1,"s":{"c":2,"d":"é\\n"},"l":[{"c":3,"d":"é\\n"},{"c":4,"d":"é\\n"}],"b":null,"n":5,"o":{"k":[1,null]}}',
        None,
        '{"s":{"c":0,"d":"é\\n"},"b":null,"n":5,"o":{"k":[1,null]}}',
    ]
    assert filled(of(d={"default": "x"}) | {"required": ["d"]}, pa.array([{}], struct())) == ['{"d":"x"}']


@pytest.mark.parametrize(
    ("schema", "fill", "reason"),
    [
        (of(a=NUMBER), True, "but not in the column, whose fields are z. Add it"),
        (of(a=NUMBER | {"default": 5}), False, "Add it, or set fillMissingFields=true to fill in its default, or null"),
        (of(a={"type": ["integer", "null"]}), False, "Add it, or set fillMissingFields=true to fill in its default, or null"),
        (of(a=NUMBER | {"default": "5"}), True, "field 'value.a': the schema's default is not a value of its type. Add the"),
        (of(a=NUMBER | {"default": None}), True, "the schema's default is not a value of its type"),
        (of(a=NUMBER | {"default": 1 << 70}), True, "the schema's default is not a value of its type"),
        (of(a={"enum": ["b"], "default": "c"}), True, "the schema's default is not a value of its type"),
        (of(a={"type": "array", "default": [1, "a"]}), True, "the schema's default is not a value of its type"),
    ],
    ids=str,
)  # fmt: skip
def test_required_fields_that_cannot_be_filled_in_are_refused(schema: Any, fill: bool, reason: str) -> None:
    schema = schema | {"required": ["a"], "additionalProperties": True}
    with pytest.raises(SchemaError) as raised:
        json_plan(json.dumps(schema), struct(z=pa.int64()), "value", fill=fill)
    assert reason in str(raised.value)
    assert "Add it, or" not in reason or not fill


PAIR: Any = of(a=NUMBER, b={"type": "string"})


@pytest.mark.parametrize(
    ("schema", "kind", "reason"),
    [
        (
            PAIR | {"anyOf": [{"required": ["a"]}, {"required": ["b"]}]},
            struct(a=pa.string(), b=pa.string()),
            "'value.a' has type string",
        ),
        (PAIR | {"anyOf": [{"required": ["c"]}, {"required": ["d"]}]}, struct(a=pa.int64()), "no alternative"),
        ({"allOf": [NUMBER, {"type": "string"}]}, pa.int64(), "the schema says"),
        ({"allOf": [of(a=NUMBER), of(a={"type": "string"})]}, struct(a=pa.string()), "'value.a' has type string"),
        ({"enum": ["a", None]}, pa.bool_(), "has type bool"),
        ({"const": 1}, pa.bool_(), "has type bool"),
        (of(a={"type": "object", "properties": {"x": NUMBER}}), struct(a=pa.map_(pa.string(), pa.string())), "'value.a{}'"),
    ],
    ids=str,
)  # fmt: skip
def test_rules_beside_alternatives_and_in_all_parts_apply(schema: Any, kind: Any, reason: str) -> None:
    with pytest.raises(SchemaError) as raised:
        json_plan(json.dumps(schema), kind, "value")
    assert reason in str(raised.value)


@pytest.mark.parametrize(
    ("schema", "kind", "row", "unfit"),
    [
        (of(a={"type": "number", "anyOf": [NULL, {"type": "number"}]}) | {"required": ["a"]}, struct(a=pa.int64()), {"a": None},
         ("value.a", "it is null, and its schema does not take null")),
        (of(a={"type": "object", "properties": {"x": NUMBER}, "additionalProperties": {"type": ["integer", "null"]}}),
         struct(a=pa.map_(pa.string(), pa.int64())), {"a": [("x", None)]},
         ("value.a{}", "it is null, and its schema does not take null")),
        (of(a={"type": "object", "required": ["k", "x"]}), struct(a=pa.map_(pa.string(), pa.int64())), {"a": [("x", 1)]},
         ("value.a", "it lacks 'k', which its schema requires")),
    ],
    ids=str,
)  # fmt: skip
def test_rows_that_the_rules_beside_others_do_not_take(
    schema: Any, kind: Any, row: Any, unfit: tuple[str, str]
) -> None:
    _, found = encode_json(json_plan(json.dumps(schema), kind, "value"), pa.array([None, row, {"a": None}, row], kind))
    assert [(each.path, each.reason) for each in found] == [unfit]
    assert found[0].rows.tolist() == ([1, 2, 3] if row == {"a": None} else [1, 3])


def test_rules_beside_alternatives_leave_what_is_valid() -> None:
    schema = PAIR | {"anyOf": [{"required": ["a"]}, {"required": ["b"]}]}
    assert written(pa.array([{"a": 1, "b": "x"}], struct(a=pa.int64(), b=pa.string())), schema) == ['{"a":1,"b":"x"}']
    names = {"type": "object", "required": ["k"], "properties": {"k": NUMBER}}
    maps = pa.array([[("k", 1)], None, [("a", 2), ("k", 3)]], pa.map_(pa.string(), pa.int64()))
    assert written(maps, names) == ['{"k":1}', None, '{"a":2,"k":3}']
