"""Fields of a schema that a column lacks, columns that hold nothing, and schemas that refer to themselves."""

from __future__ import annotations

import datetime
from typing import Any

import pyarrow as pa
import pytest

from spark_producer.config import parse_sink_options
from spark_producer.config.registry_table import column_options
from spark_producer.errors import SchemaError
from spark_producer.schemas.column_format import ColumnFormat, encode_column
from spark_producer.schemas.defaults import MAX_FILLED_BYTES
from spark_producer.schemas.plan import MAX_DEPTH, plan_of
from spark_producer.schemas.registry import RegisteredSchema
from spark_producer.schemas.schema_lookup import SchemaLookup
from spark_producer.schemas.schema_selection import column_format
from spark_producer.schemas.types import avro_schema
from tests.unit.config.options import SERVERS
from tests.unit.schemas.judging import encoded, read, record, structs

LETTERS = {"type": "enum", "name": "Letters", "symbols": ["A", "B"]}
COLUMN = structs(x=pa.array([1, 2, 3]))


def field(kind: Any, **default: Any) -> dict[str, Any]:
    return {"name": "y", "type": kind} | default


@pytest.mark.parametrize(
    ("missing", "wanted"),
    [
        (field(["null", "string"]), None),
        (field(["string", "null"]), None),
        (field(["string", {"type": "null"}], default="x"), "x"),
        (field("null"), None),
        (field("boolean", default=True), True),
        (field("int", default=-(2**31)), -(2**31)),
        (field("long", default=2**63 - 1), 2**63 - 1),
        (field("float", default=1), 1.0),
        (field("double", default=-0.1), -0.1),
        (field("string", default="äö"), "äö"),
        (field("bytes", default="\u00ff\u0000"), b"\xff\x00"),
        (field({"type": "fixed", "name": "F", "size": 2}, default="\u00ffa"), b"\xffa"),
        (field(LETTERS, default="B"), "B"),
        (field({"type": "array", "items": "int"}, default=[1, 2]), [1, 2]),
        (field({"type": "array", "items": "int"}, default=[]), []),
        (field({"type": "map", "values": "long"}, default={"k": 7}), {"k": 7}),
        (field(record(("a", "int"), {"name": "b", "type": "int", "default": 3}, name="In"), default={"a": 1}), {"a": 1, "b": 3}),
        (field(["null", "int"], default=None), None),
        (field(["null", "int"], default=5), 5),
        (field(["int", "string"], default="five"), "five"),
        (field({"type": "int", "logicalType": "date"}, default=1), datetime.date(1970, 1, 2)),
        (field({"type": "long"}, default=9), 9),
    ],
    ids=str,
)  # fmt: skip
def test_an_optional_field_that_the_column_lacks_gets_its_default_or_null(missing: dict[str, Any], wanted: Any) -> None:
    for fields in ([("x", "long"), missing], [missing, ("x", "long")]):
        schema = record(*fields)
        found = encoded(schema, COLUMN, fill=True)
        assert read(schema, found.rows) == [{"x": row, "y": wanted} for row in (1, 2, 3)]
        with pytest.raises(
            SchemaError, match=r"field 'value\.y' of the schema .* fields are x\. Add it, or set fillMissing"
        ):
            plan_of(schema, COLUMN.type, "value")


def test_fields_are_filled_in_records_of_records_lists_and_nulls() -> None:
    inner = record(("n", "long"), {"name": "more", "type": LETTERS, "default": "B"}, name="In")
    schema = record(("l", {"type": "array", "items": ["null", inner]}), ("m", ["null", "Letters"]), ("e", "Letters"))
    rows: list[list[Any]] = [[{"n": 1}, None], [], [{"n": 2}, {"n": 3}]]
    column = structs(l=pa.array(rows, pa.list_(pa.struct([("n", pa.int64())]))), e=pa.array(["A", "B", "A"]))
    found = read(schema, encoded(schema, column, fill=True).rows)
    assert [row["l"] for row in found] == [[each and each | {"more": "B"} for each in row] for row in rows]
    assert [(row["m"], row["e"]) for row in found] == [(None, "A"), (None, "B"), (None, "A")]
    empty: Any = pa.array([{}, None, {}], pa.struct([]))
    assert encoded(record({"name": "y", "type": "int", "default": 1}), empty, fill=True).rows == [
        b"\x02",
        None,
        b"\x02",
    ]


def test_a_field_that_is_not_optional_must_be_in_the_column_and_null_takes_no_default() -> None:
    with pytest.raises(
        SchemaError, match=r"field 'value\.y' of the schema is not in the column, whose fields are x\. Add it$"
    ):
        plan_of(record(("x", "long"), field("long")), COLUMN.type, "value", fill=True)
    nulls = structs(x=pa.array([1]), y=pa.array([None], pa.int64()))
    assert list(encoded(record(("x", "long"), field("long", default=5)), nulls, fill=True).unfit) == [0]


@pytest.mark.parametrize(
    "missing",
    [
        field("int", default="x"),
        field("int", default=True),
        field("int", default=2**31),
        field("int", default=None),
        field("string", default=3),
        field("bytes", default="\u0100"),
        field("double", default=10**400),
        field({"type": "fixed", "name": "F", "size": 2}, default="a"),
        field(LETTERS, default="C"),
        field(record(("a", "int"), name="In"), default={}),
        field(["int", "string"], default=[]),
        field("Unknown", default=1),
        field({"type": "array"}, default=[1]),
        field("string", default="\ud800"),
    ],
    ids=str,
)
def test_a_default_that_is_no_value_of_its_type_is_one_error(missing: dict[str, Any]) -> None:
    with pytest.raises(SchemaError, match=r"field 'value\.y': the schema's default is not a value of its type"):
        plan_of(record(("x", "long"), missing), COLUMN.type, "value", fill=True)


def test_defaults_are_bounded_in_bytes_and_steps() -> None:
    large = field("string", default="x" * MAX_FILLED_BYTES)
    with pytest.raises(SchemaError, match="the schema's default has 16387 bytes"):
        plan_of(record(("x", "long"), large), COLUMN.type, "value", fill=True)
    many = [{"name": f"f{number}", "type": "string", "default": "x" * 1000} for number in range(17)]
    with pytest.raises(SchemaError, match="the defaults of fields that the column lacks have more than 16384 bytes"):
        plan_of(record(("x", "long"), *many), COLUMN.type, "value", fill=True)
    double: Any = record(name="A0")
    for level in range(1, 40):
        double = record(
            {"name": "l", "type": double, "default": {}},
            {"name": "r", "type": f"A{level - 1}", "default": {}},
            name=f"A{level}",
        )
    with pytest.raises(SchemaError):
        plan_of(record(("x", "long"), field(double, default={})), COLUMN.type, "value", fill=True)
    endless = record({"name": "next", "type": "R", "default": {}})
    with pytest.raises(SchemaError):
        plan_of(endless, pa.struct([]), "value", fill=True)


@pytest.mark.parametrize("kind", [["null", "long"], ["long", "null"], "null", [{"type": "null"}, "long"]])
def test_a_column_of_nothing_fits_where_null_does(kind: Any) -> None:
    schema = record(("x", "long"), ("y", kind))
    found = encoded(schema, structs(x=pa.array([1, 2]), y=pa.nulls(2)))
    assert read(schema, found.rows) == [{"x": 1, "y": None}, {"x": 2, "y": None}]


def test_a_column_of_nothing_is_refused_where_null_is_and_lists_of_nothing_may_be_empty() -> None:
    for kind in ("long", ["long", "string"], LETTERS, {"type": "array", "items": "long"}):
        with pytest.raises(SchemaError, match=r"field 'value\.y' has type void, but the schema has"):
            plan_of(record(("y", kind)), pa.struct([("y", pa.null())]), "value")
    schema = record(("y", {"type": "array", "items": "long"}))
    found = encoded(schema, structs(y=pa.array([[], [None], []], pa.list_(pa.null()))))
    assert read(schema, found.rows) == [{"y": []}, {"y": []}]
    assert found.unfit == {1: ("value.y[]", "it is null, and its schema does not take null")}
    nulls = record(("y", {"type": "map", "values": ["long", "null"]}))
    pairs = structs(y=pa.array([[("k", None)]], pa.map_(pa.string(), pa.null())))
    assert read(nulls, encoded(nulls, pairs).rows) == [{"y": {"k": None}}]


def test_the_schema_of_a_column_of_nothing_is_null_and_the_whole_value_has_none() -> None:
    kind = pa.struct([("x", pa.int64()), ("y", pa.null()), ("l", pa.list_(pa.null()))])
    schema = avro_schema(kind, "value")
    rows: Any = pa.array([{"x": 1, "y": None, "l": [None, None]}], kind)
    assert read(schema, encoded(schema, rows).rows) == rows.to_pylist()
    with pytest.raises(SchemaError, match="field 'value' has type void"):
        avro_schema(pa.null(), "value")
    column, unfit = encode_column(ColumnFormat(b"\x00", plan_of(schema, pa.null(), "value")), pa.nulls(2))
    assert (column and column.to_pylist(), unfit) == ([None, None], [])


def node(levels: int) -> Any:
    """A column whose structs hold each other as often as said."""
    column = structs(n=pa.array([levels]))
    for number in range(levels - 1, -1, -1):
        column = structs(n=pa.array([number]), next=column)
    return column


NODE = record(("n", "long"), {"name": "next", "type": ["null", "Node"], "default": None}, name="Node", namespace="a.b")


def test_a_schema_that_refers_to_itself_goes_as_deep_as_the_column_up_to_a_bound() -> None:
    for levels in (0, 1, 7, MAX_DEPTH - 1):
        (found,) = read(NODE, encoded(NODE, node(levels), fill=True).rows)
        for number in range(levels + 1):
            assert found["n"] == number
            found = found["next"]
        assert found is None
    with pytest.raises(SchemaError, match=f"is nested too deeply: the maximum is {MAX_DEPTH} records, arrays and maps"):
        plan_of(NODE, node(MAX_DEPTH).type, "value", fill=True)
    with pytest.raises(SchemaError, match=r"field 'value\.next' of the schema is not in the column"):
        plan_of(NODE, node(0).type, "value")


def test_a_tree_and_a_list_of_nothing_end_where_the_column_does() -> None:
    tree = record(("n", "long"), ("children", {"type": "array", "items": "Tree"}), name="Tree")
    leaf = pa.struct([("n", pa.int64()), ("children", pa.list_(pa.null()))])
    kind = pa.struct([("n", pa.int64()), ("children", pa.list_(leaf))])
    rows: Any = pa.array([{"n": 1, "children": [{"n": 2, "children": []}, {"n": 3, "children": []}]}], kind)
    assert read(tree, encoded(tree, rows).rows) == rows.to_pylist()


@pytest.mark.parametrize(("options", "works"), [({}, True), ({"fillMissingFields": "false"}, False)])
def test_the_latest_version_may_have_fields_that_the_column_lacks(options: dict[str, str], works: bool) -> None:
    given = (
        SERVERS
        | {"valueFormat": "avro", "schema.registry.url": "http://registry", "use.latest.version": "true"}
        | options
    )
    _, sink, registry = parse_sink_options(given)

    def ask(question: SchemaLookup) -> RegisteredSchema:
        assert question.schema is None
        return RegisteredSchema(
            5, '{"type":"record","name":"R","fields":[{"name":"x","type":"long"},{"name":"y","type":["null","int"]}]}'
        )

    if works:
        form = column_format(column_options(sink, registry)[0], COLUMN.type, "t", registry, ask)
        assert form is not None
        column, _ = encode_column(form, COLUMN)
        assert column is not None
        assert column[0].as_py() == b"\x00\x00\x00\x00\x05\x02\x00"
    else:
        with pytest.raises(SchemaError, match="is not in the column"):
            column_format(column_options(sink, registry)[0], COLUMN.type, "t", registry, ask)
