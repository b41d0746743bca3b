"""The texts of foreign schemas and columns in messages: escaped and cut, whatever and wherever they are."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from spark_producer.common.escape import MAX_LENGTH, for_log
from spark_producer.errors import SchemaError
from spark_producer.schemas.plan import parse_schema, plan_of
from spark_producer.schemas.texts import arrow_type_name, list_names, path_below
from spark_producer.schemas.types import avro_schema
from tests.unit.schemas.judging import encoded, record, structs

LARGE = 5_000_000
MAX_MESSAGE_LENGTH = 4 * MAX_LENGTH
HOSTILE = ["x" * LARGE, "\x1b]0;owned\x07" * 9, "\r\nERROR a line of ours", "\u202e", "\ud800", "'\\'" * 100_000]


def message(schema: Any, kind: pa.DataType, *, fill: bool = False) -> str:
    text = json.dumps(schema)
    with pytest.raises(SchemaError) as raised:
        plan_of(parse_schema(text), kind, "value", fill=fill)
    return str(raised.value)


def is_harmless(text: str) -> bool:
    return text.isprintable() and len(text) <= MAX_MESSAGE_LENGTH


@pytest.mark.slow
@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
@pytest.mark.parametrize(
    "kind", [pa.int64(), pa.date32(), pa.struct([("y", pa.int32())]), pa.list_(pa.binary())], ids=str
)
def test_whatever_a_schema_says_is_escaped_and_cut(text: str, kind: pa.DataType) -> None:
    inner: list[Any] = [
        text,
        {"type": text},
        {"type": "int", "logicalType": text},
        {"type": "fixed", "name": text, "size": 3},
        {"type": "enum", "name": text, "symbols": [text]},
        {"type": "enum", "name": "E", "symbols": text},
        {"type": "boolean", "logicalType": text, "doc": text},
        {"type": "array", "items": text},
        {"type": "map", "values": {"type": text}},
        record((text, "boolean"), name=text),
        record((text, "boolean"), ("z", "boolean"), namespace=text),
        record(("y", {"type": "fixed", "name": "F", "size": text})),
        [text, {"type": "boolean", "logicalType": text}],
        ["null", {"type": "fixed", "name": text, "size": -1}],
        {"type": "bytes", "logicalType": "decimal", "precision": text},
        {"type": [text]},
    ]
    for schema in inner:
        reported = message(record(("x", schema)), pa.struct([("x", kind)]))
        assert is_harmless(reported), reported[:500]
    reported = message(
        record({"name": "x", "type": "int"}, {"name": "y", "type": "int", "default": text}),
        pa.struct([("x", pa.int32())]),
        fill=True,
    )
    assert is_harmless(reported)


@pytest.mark.parametrize("text", ["x" * LARGE, "\x1b[31m", "\r\n", "'"], ids=range(4))
def test_the_names_of_a_column_are_escaped_and_cut(text: str) -> None:
    kind = pa.struct([(text, pa.int64())])
    assert is_harmless(message(record(("y", "long")), kind))
    assert is_harmless(message(record(("y", {"type": "int"})), pa.struct([("y", kind)])))
    with pytest.raises(SchemaError) as raised:
        avro_schema(pa.struct([("x", kind), (text, pa.duration("s"))]), "value")
    assert is_harmless(str(raised.value))


def test_what_tasks_say_of_rows_is_escaped_and_cut() -> None:
    name = "x" * LARGE
    enums = [{"type": "enum", "name": name + str(number), "symbols": [f"{name}{number}"]} for number in range(2)]
    schema = record((name, enums[0]), ("b", enums), ("c", {"type": "array", "items": record((name, "int"), name="In")}))
    kind = pa.list_(pa.struct([(name, pa.int32())]))
    column = structs(**{name: pa.array(["A"]), "b": pa.array(["\x1b"]), "c": pa.array([[{name: None}]], kind)})
    (row,) = encoded(schema, column).unfit.items()
    assert all(is_harmless(text) for text in row[1])
    # a pickled plan goes to every task: its paths do not repeat long names
    node = plan_of(schema, column.type, "value")
    assert all(len(child.path) <= MAX_LENGTH for child in node.children)


def test_many_names_are_cut_and_what_was_escaped_is_not_escaped_twice() -> None:
    assert list_names(f"f{number}" for number in range(3)) == "f0, f1, f2"
    assert len(list_names("x" * 100 for _ in range(LARGE))) == MAX_LENGTH
    assert path_below(path_below("value", "a\n"), "b") == "value.a\\n.b"
    assert for_log(path_below("value", "x" * LARGE)) == path_below("value", "x" * LARGE)
    assert arrow_type_name(pa.null()) == "void"
    assert len(arrow_type_name(pa.struct([(f"f{number}", pa.int32()) for number in range(100)]))) == 101
