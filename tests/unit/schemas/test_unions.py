"""The branch of a union for a value. fastavro reads what both kernels write."""

from __future__ import annotations

import decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_producer.errors import SchemaError
from spark_producer.schemas.plan import plan_of
from tests.unit.schemas.judging import encoded, read, record, structs

LETTERS = {"type": "enum", "name": "Letters", "symbols": ["A", "B"]}
DIGITS = {"type": "enum", "name": "Digits", "symbols": ["One", "Two", "A"]}
STRUCT = pa.struct([("x", pa.string())])
DECIMAL: dict[str, Any] = {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2}


def fixed(size: int, **more: Any) -> dict[str, Any]:
    return {"type": "fixed", "name": f"F{size}", "size": size} | more


def branches(union: list[Any], column: Any) -> list[int | None]:
    """The branch of each row of a column; None for a row that does not fit. What is written can be read."""
    schema = record(("a", union))
    found = encoded(schema, structs(a=column))
    fit = [row for row in range(len(column)) if row not in found.unfit]
    wanted = [value.as_py() for value in column.take(pa.array(fit, pa.int64()))]
    assert [row["a"] for row in read(schema, found.rows)] == wanted
    rows = iter(found.rows)
    return [None if row in found.unfit else (next(rows) or b"")[0] // 2 for row in range(len(column))]


@pytest.mark.parametrize(
    ("union", "kind", "value", "branch"),
    [
        (["null", "bytes", "string"], pa.string(), "x", 2),
        (["null", "string", "bytes"], pa.binary(), b"x", 2),
        ([LETTERS, "string"], pa.string(), "A", 1),
        ([LETTERS, "string"], pa.string(), "Z", 1),
        (["bytes", LETTERS, "string"], pa.dictionary(pa.int8(), pa.string()), "Z", 2),
        ([{"type": "bytes"}, {"type": "string", "avro.java.string": "String"}], pa.string(), "x", 1),
        (["null", "long", "int"], pa.int32(), 7, 2),
        (["double", "long", "int", "null"], pa.int64(), 7, 1),
        (["double", "float"], pa.float32(), 1.5, 1),
        (["float", "double"], pa.float64(), 0.1, 1),
        ([fixed(4), "bytes"], pa.binary(), b"abcd", 1),
        (["string", {"type": "int", "logicalType": "date"}, "int"], pa.int32(), 7, 2),
        ([fixed(9, logicalType="decimal", precision=18, scale=2), DECIMAL], pa.decimal128(5, 2), decimal.Decimal("1.10"), 1),
        (["null", record(("x", "bytes"), name="X"), record(("x", "string"), name="Y")], STRUCT, {"x": "y"}, 2),
        (["string", {"type": "array", "items": "bytes"}], pa.list_(pa.binary()), [b"x"], 1),
        (["int", {"type": "map", "values": ["bytes", "string"]}], pa.map_(pa.string(), pa.string()), [("k", "v")], 1),
    ],
    ids=str,
)  # fmt: skip
def test_the_branch_of_the_column_s_own_type_wins_wherever_it_stands(
    union: list[Any], kind: Any, value: Any, branch: int
) -> None:
    for order in (union, union[::-1]):
        column: Any = pa.array([value], pa.string() if pa.types.is_dictionary(kind) else kind)
        column = column.dictionary_encode() if pa.types.is_dictionary(kind) else column
        found = encoded(record(("a", order)), structs(a=column)).rows[0]
        assert found is not None
        assert order[found[0] // 2] == union[branch]


@pytest.mark.parametrize(
    ("union", "column", "taken"),
    [
        ([LETTERS, DIGITS], pa.array(["A", "B", "Two", "Z", "A"]), [0, 0, 1, None, 0]),
        (["int", "double"], pa.array([1, -(2**31), 2**31, 2**53, 2**53 + 1, 2**63 - 1, -(2**63)]), [0, 0, 1, 1, None, None, 1]),
        (["float", "int"], pa.array([7, 2**31, 2**31 + 1]), [1, 0, None]),
        (["float", "int"], pa.array([1.5, 0.1, 1e300, float("inf"), 16777217.0]), [0, None, None, 0, None]),
        (["double", "float"], pa.array([7, 16777217], pa.int32()), [0, 0]),
        ([fixed(2), fixed(4)], pa.array([b"ab", b"abcd", b"abc", b""]), [0, 1, None, None]),
        ([fixed(2), "null", fixed(4)], pa.array([b"abcd", None, b"ab"]), [2, 1, 0]),
    ],
    ids=str,
)  # fmt: skip
def test_without_it_each_value_takes_the_nearest_branch_that_takes_it(
    union: list[Any], column: Any, taken: list[int | None]
) -> None:
    assert branches(union, column) == taken
    assert branches(union, column[1:]) == taken[1:]


def test_text_that_is_no_symbol_goes_out_as_bytes_where_there_is_no_string() -> None:
    schema = record(("a", ["bytes", LETTERS, "null"]))
    found = encoded(schema, structs(a=pa.array(["A", "Z", None, "äö"])))
    assert [row["a"] for row in read(schema, found.rows)] == ["A", b"Z", None, "äö".encode()]
    assert [(row or b"")[0] // 2 for row in found.rows] == [1, 0, 2, 0]
    uuid = {"type": "string", "logicalType": "uuid"}
    text = "123e4567-e89b-12d3-a456-426614174000"
    assert [
        (row or b"")[0] // 2 for row in encoded(record(("a", ["bytes", uuid])), structs(a=pa.array([text, "x"]))).rows
    ] == [1, 0]


def test_of_several_records_the_one_with_these_fields_and_values_is_taken() -> None:
    first = record(("kind", LETTERS), ("n", "long"), name="First")
    second = record(("kind", DIGITS), ("n", "long"), name="Second")
    third = record(("kind", "string"), ("n", "long"), ("more", "long"), name="Third")
    schema = record(("a", ["null", third, second, first]))
    rows = [{"kind": kind, "n": 1} for kind in ("A", "B", "Two", "Z")] + [None, {"kind": "B", "n": None}]
    column: Any = pa.array(rows, pa.struct([("kind", pa.string()), ("n", pa.int64())]))
    found = encoded(schema, structs(a=column))
    assert [row["a"] for row in read(schema, found.rows)] == [rows[0], rows[1], rows[2], None]
    named = [row["a"] for row in read(schema, found.rows, branches=True)]
    assert [each and each[0] for each in named] == ["Second", "First", "Second", None]
    assert found.unfit == dict.fromkeys(
        (3, 5), ("value.a", "no type of its union accepts it: record 'Third', record 'Second', record 'First'")
    )


def test_a_record_with_all_fields_is_nearer_than_one_that_is_filled() -> None:
    more = record(("x", "long"), {"name": "y", "type": "long", "default": 5}, name="More")
    less = record(("x", "long"), name="Less")
    column: Any = pa.array([{"x": 1}], pa.struct([("x", pa.int64())]))
    assert encoded(record(("a", [more, less])), structs(a=column), fill=True).rows == [b"\x02\x02"]
    assert encoded(record(("a", [more, "null"])), structs(a=column), fill=True).rows == [b"\x00\x02\x0a"]


def test_unions_in_the_records_lists_and_maps_of_unions_choose_on_their_own() -> None:
    inner = record(("v", ["null", "int", "double"]), name="Inner")
    schema = record(
        ("a", ["string", {"type": "array", "items": [inner, "null"]}, {"type": "map", "values": [LETTERS, DIGITS]}])
    )
    numbers: Any = pa.array(
        [[{"v": 1}, None, {"v": 2**40}], [], [{"v": None}], [{"v": 2**60 + 1}]],
        pa.list_(pa.struct([("v", pa.int64())])),
    )
    found = encoded(schema, structs(a=numbers))
    assert [row["a"] for row in read(schema, found.rows)] == numbers.to_pylist()[:3]
    assert {row: path for row, (path, _) in found.unfit.items()} == {3: "value.a[].v"}
    letters: Any = pa.array([[("k", "A"), ("l", "One")], [("k", "Z")]], pa.map_(pa.string(), pa.string()))
    found = encoded(schema, structs(a=letters))
    assert [row["a"] for row in read(schema, found.rows)] == [{"k": "A", "l": "One"}]
    assert list(found.unfit) == [1]


def test_types_that_an_untaken_branch_defines_are_known_further_on() -> None:
    schema = record(("a", [record(("c", LETTERS), ("d", "int"), name="Wrong"), "string"]), ("b", "Letters"))
    found = encoded(schema, structs(a=pa.array(["x"]), b=pa.array(["B"])))
    assert read(schema, found.rows) == [{"a": "x", "b": "B"}]


def test_a_union_directly_inside_of_a_union_is_refused() -> None:
    for union in (["null", ["int", "string"]], ["null", {"type": ["int", "string"]}]):
        with pytest.raises(SchemaError, match="a union directly in a union"):
            plan_of(record(("a", union)), pa.struct([("a", pa.int32())]), "value")


def test_an_optional_number_of_a_smaller_type_is_still_refused_on_the_driver() -> None:
    for union in (["null", "int"], ["null", "int", "string"]):
        with pytest.raises(SchemaError):
            plan_of(record(("a", union)), pa.struct([("a", pa.int64())]), "value")


COLUMNS: list[tuple[Any, st.SearchStrategy[Any]]] = [
    (pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    (pa.int64(), st.integers(-(2**63), 2**63 - 1) | st.integers(-300, 300)),
    (pa.float32(), st.floats(width=32, allow_nan=False)),
    (pa.float64(), st.floats(allow_nan=False) | st.floats(width=32, allow_nan=False)),
    (pa.string(), st.sampled_from(["A", "B", "One", "Two", "x", "äö", ""])),
    (pa.binary(), st.binary(max_size=5)),
]
BRANCHES: list[Any] = ["int", "long", "float", "double", "string", LETTERS, DIGITS, fixed(2), fixed(4)]


@given(st.data())
def test_whatever_the_union_both_kernels_write_what_is_read_as_the_value(data: st.DataObject) -> None:
    kind, values = data.draw(st.sampled_from(COLUMNS))
    union = data.draw(st.lists(st.sampled_from(BRANCHES), min_size=2, max_size=5, unique_by=str))
    union = data.draw(st.permutations([*union, "null"]))
    rows = data.draw(st.lists(st.none() | values, max_size=9))
    first = data.draw(st.integers(0, len(rows)))
    schema = record(("l", {"type": "array", "items": union}))
    lists: Any = pa.array([rows, rows[first:]], pa.list_(kind))
    try:
        found = encoded(schema, structs(l=lists))
    except SchemaError:
        return
    wanted = [{"l": row} for place, row in enumerate((rows, rows[first:])) if place not in found.unfit]
    assert read(schema, found.rows) == wanted
