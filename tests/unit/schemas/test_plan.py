from __future__ import annotations

import datetime
import decimal
import json
import pickle
from typing import Any

import pyarrow as pa
import pytest

from spark_producer.errors import SchemaError
from spark_producer.schemas.column_format import ColumnFormat, encode_column
from spark_producer.schemas.plan import parse_schema, plan_of
from spark_producer.schemas.types import Schema, avro_schema, name_of
from tests.unit.schemas.avro_values import by_fastavro


def record(*fields: Any, **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": "A", "fields": [{"name": name, "type": kind} for name, kind in fields]} | more


def encode(schema: Any, array: pa.Array[Any]) -> list[Any]:
    plan = pickle.loads(pickle.dumps(plan_of(schema, array.type, "value")))
    encoded, unfit = encode_column(ColumnFormat(b"", plan), array)
    assert not unfit
    assert encoded is not None
    return encoded.to_pylist()


def fixed(width: int) -> dict[str, Any]:
    return {"type": "fixed", "name": "F", "size": width, "logicalType": "decimal", "precision": 9, "scale": 2}


INSTANT = datetime.datetime(1969, 12, 31, 23, 59, 59, 999_500, tzinfo=datetime.UTC)
COLORS = {"type": "enum", "name": "Color", "symbols": ["red", "green"]}


@pytest.mark.covers("COM9")
@pytest.mark.parametrize(
    ("schema", "kind", "value"),
    [
        (["string", "null"], pa.string(), "x"),
        (["string", "null"], pa.string(), None),
        (["int", "null", "string"], pa.string(), "x"),
        (["null", "string", "long"], pa.int64(), 7),
        (["string", {"type": "null"}], pa.string(), None),
        ("long", pa.int16(), -7),
        ("double", pa.float32(), 1.5),
        ("bytes", pa.string(), "äö"),
        ({"type": "string", "logicalType": "uuid"}, pa.string(), "12345678-1234-5678-1234-567812345678"),
        ({"type": "long", "logicalType": "timestamp-millis"}, pa.timestamp("us", "UTC"), INSTANT),
        ({"type": "long", "logicalType": "local-timestamp-millis"}, pa.timestamp("us"), INSTANT.replace(tzinfo=None)),
        (COLORS, pa.string(), "green"),
        (["null", COLORS], pa.dictionary(pa.int8(), pa.string()), "green"),
        (fixed(4), pa.decimal128(9, 2), decimal.Decimal("-1234567.89")),
        (fixed(20), pa.decimal128(9, 2), decimal.Decimal("-0.01")),
        (fixed(20), pa.decimal128(9, 2), decimal.Decimal("1234567.89")),
    ],
    ids=str,
)
def test_a_given_schema_decides_the_bytes(schema: Any, kind: pa.DataType, value: Any) -> None:
    whole = record(("f", schema))
    array: Any = pa.array([{"f": value}] * 3, pa.struct([("f", pa.string() if pa.types.is_dictionary(kind) else kind)]))
    if pa.types.is_dictionary(kind):
        column = array.field(0).dictionary_encode()
        array = pa.StructArray.from_arrays([column], names=["f"])
    as_fastavro = value if schema != "bytes" else str(value).encode()
    assert encode(whole, array) == by_fastavro(whole, [{"f": as_fastavro}] * 3)


def test_of_the_types_of_a_union_the_column_s_own_is_taken() -> None:
    array = pa.array([{"f": 7}], pa.struct([("f", pa.int32())]))
    assert encode(record(("f", ["null", "long", {"type": "bytes"}, "int"])), array) == [b"\x06\x0e"]
    assert encode(record(("f", ["null", {"type": {"type": "long"}}])), array) == [b"\x02\x0e"]


def test_fields_are_found_by_name_and_named_types_by_their_namespace() -> None:
    inner = {"type": "record", "name": "In", "namespace": "b", "fields": [{"name": "n", "type": "int"}]}
    schema = record(
        ("second", inner), ("first", ["null", "b.In"]), ("third", COLORS), ("fourth", "Color"), namespace="a"
    )
    kind = pa.struct([("n", pa.int32())])
    rows = [{"first": {"n": 1}, "second": {"n": 2}, "third": "red", "fourth": "green"}]
    names = ["fourth", "first", "second", "third"]
    kinds = {"first": kind, "second": kind, "third": pa.string(), "fourth": pa.string()}
    array = pa.array(rows, pa.struct([(name, kinds[name]) for name in names]))
    assert encode(schema, array) == by_fastavro(schema, rows)


@pytest.mark.parametrize(
    ("schema", "kind", "text"),
    [
        ("int", pa.int64(), "field 'value.f' has type int64, but the schema has int"),
        ("string", pa.binary(), "field 'value.f' has type binary, but the schema has string"),
        ("long", pa.timestamp("us", "UTC"), "the schema has long"),
        (["null", "string"], pa.int32(), "field 'value.f' has type int32, but the schema has string"),
        (["null", "string", "bytes"], pa.int32(), "which no type of the union accepts"),
        ({"type": "array", "items": "long"}, pa.list_(pa.string()), r"field 'value.f[]' has type string"),
        ({"type": "map", "values": "long"}, pa.map_(pa.string(), pa.string()), "field 'value.f{}' has type string"),
        ({"type": "map", "values": "long"}, pa.map_(pa.int32(), pa.int64()), "a map, whose keys are strings"),
        (record(("n", "int")), pa.struct([("m", pa.int32())]), "field 'value.f.m' is not in the schema, whose fields are n"),
        (record(("n", "int")), pa.struct([]), "field 'value.f.n' of the schema is not in the column"),
        (fixed(4), pa.decimal128(9, 3), "the schema has decimal(9, 2). Cast the field to it"),
        ("b.Unknown", pa.int32(), "refers to the type 'b.Unknown', which it does not define"),
        ({"type": "array"}, pa.list_(pa.int32()), "lacks 'items'"),
        ({"type": "record", "name": "X"}, pa.struct([]), "has no list of fields"),
    ],
    ids=str,
)  # fmt: skip
def test_a_schema_and_a_column_that_disagree_name_the_field(schema: Any, kind: pa.DataType, text: str) -> None:
    with pytest.raises(SchemaError) as raised:
        plan_of(record(("f", schema)), pa.struct([("f", kind)]), "value")
    assert text in str(raised.value)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (pa.struct([("a-b", pa.int32())]), "field 'value.a-b' cannot be an Avro field"),
        (pa.struct([("a", pa.int32()), ("a", pa.int32())]), "field 'value.a' is in the column twice"),
        (pa.struct([("a", pa.list_(pa.duration("us")))]), "field 'value.a[]' has type duration[us]"),
        (pa.struct([("a", pa.map_(pa.int32(), pa.int32()))]), "field 'value.a' is a map whose keys are int32"),
    ],
    ids=str,
)
def test_types_that_avro_does_not_have_name_the_field(kind: pa.DataType, text: str) -> None:
    with pytest.raises(SchemaError) as raised:
        avro_schema(kind, "value")
    assert text in str(raised.value)


def test_records_of_one_schema_have_names_of_their_own() -> None:
    inner = pa.struct([("n", pa.int32())])
    kind = pa.struct([("a_b", inner), ("a", pa.struct([("b", inner)]))])
    names = [name for name in json.dumps(avro_schema(kind, "v")).split('"') if name.startswith("v_a")]
    assert len(names) == len(set(names)) == 3
    assert name_of("flights.2013") == "flights_2013"
    assert name_of("2013") == "_2013"


def test_an_invalid_schema_is_an_error() -> None:
    assert parse_schema(" string ") == "string"
    for text, reported in (("{", "is not JSON"), ("17", "it is int"), ("[" * 100_000, "nested too deeply")):
        with pytest.raises(SchemaError, match=reported):
            parse_schema(text)


def test_rows_that_do_not_fit_are_found_through_lists_and_nulls() -> None:
    schema = record(("f", ["null", {"type": "array", "items": record(("c", COLORS), name="B")}]))
    kind = pa.struct([("f", pa.list_(pa.struct([("c", pa.string())])))])
    rows = [
        None,
        {"f": None},
        {"f": [{"c": "red"}, {"c": "blue"}]},
        {"f": [{"c": "red"}]},
        {"f": [{"c": None}]},
        {"f": [None]},
    ]
    array = pa.array(rows, kind)
    encoded, unfit = encode_column(ColumnFormat(b"", plan_of(schema, kind, "value")), array)
    assert encoded is None
    assert [(each.path, each.rows.tolist()) for each in unfit] == [
        ("value.f[]", [5]), ("value.f[].c", [4]), ("value.f[].c", [2])
    ]  # fmt: skip
    left = array.take(pa.array([0, 1, 3]))
    assert encode(schema, left) == by_fastavro(schema, [rows[0], rows[1], rows[3]])


def test_a_decimal_that_does_not_fit_a_fixed_width_is_unfit() -> None:
    array = pa.array(
        [{"f": decimal.Decimal("1.00")}, {"f": decimal.Decimal("1234567.89")}], pa.struct([("f", pa.decimal128(9, 2))])
    )
    _, (unfit,) = encode_column(ColumnFormat(b"", plan_of(record(("f", fixed(2))), array.type, "value")), array)
    assert unfit.rows.tolist() == [1]
    assert unfit.reason == "the decimal does not fit into 2 bytes"


@pytest.mark.parametrize("width", [1, 2, 8, 15, 16])
def test_a_fixed_decimal_takes_what_its_bytes_hold_and_no_more(width: int) -> None:
    low, high = -(2 ** (8 * width - 1)), 2 ** (8 * width - 1) - 1
    most = 10**38 - 1
    numbers = [max(-most, low), min(most, high), 0, -1, *((low - 1, high + 1) if width < 16 else ())]
    rows = [{"f": decimal.Decimal(number)} for number in numbers]
    array = pa.array(rows, pa.struct([("f", pa.decimal128(38, 0))]))
    schema = record(("f", fixed(width) | {"precision": 38, "scale": 0}))
    form = ColumnFormat(b"", plan_of(schema, array.type, "value"))
    encoded, _ = encode_column(form, array.slice(0, 4))
    assert encoded is not None
    assert encoded.to_pylist() == [number.to_bytes(width, "big", signed=True) for number in numbers[:4]]
    assert [each.rows.tolist() for each in encode_column(form, array).unfit] == ([[4, 5]] if width < 16 else [])


def test_strings_that_are_not_utf8_are_unfit_wherever_they_are() -> None:
    """The bytes of a character that is cut into two strings are UTF-8 together, and neither alone is."""
    values = [b"a", b"\xc3", b"\xa4", None, "\u00e4".encode(), b"\xff", b"", b"\xed\xa0\x80"]
    texts: Any = pa.array(values).view(pa.string())
    schema = record(("f", ["null", "string"]))

    def unfit(column: Any, of: Any = schema) -> list[int]:
        array = pa.StructArray.from_arrays([column], names=["f"])
        found = encode_column(ColumnFormat(b"", plan_of(of, array.type, "value")), array)
        assert {each.reason for each in found.unfit} <= {"it is not UTF-8"}
        return [row for each in found.unfit for row in each.rows.tolist()]

    assert unfit(texts) == [1, 2, 5, 7]
    assert unfit(texts[2:6]) == [0, 3]
    assert unfit(texts[3:5]) == []
    assert unfit(texts.cast(pa.large_string(), safe=False)) == [1, 2, 5, 7]
    assert unfit(texts, record(("f", ["null", "bytes"]))) == []
    from_arrays: Any = pa.MapArray.from_arrays  # its stubs know no offsets of 32 bits
    keys = from_arrays(pa.array([0, 1, 2], pa.int32()), texts[4:6], pa.array([1, 2]))
    assert unfit(keys, record(("f", {"type": "map", "values": ["null", "long"]}))) == [1]


@pytest.mark.covers("COM9")
def test_decimals_have_the_length_that_fastavro_gives_them() -> None:
    amounts = {
        edge + step
        for power in range(1, 16)
        for edge in (2 ** (8 * power - 1), 2 ** (8 * power))
        for step in (-1, 0, 1)
    }
    numbers = sorted({sign * amount for amount in amounts for sign in (1, -1) if amount < 10**38} | {0, 10**38 - 1})
    rows = [{"f": decimal.Decimal(number)} for number in numbers]
    kind = pa.struct([pa.field("f", pa.decimal128(38, 0), nullable=False)])
    assert encode(avro_schema(kind, "A"), pa.array(rows, kind)) == by_fastavro(avro_schema(kind, "A"), rows)


@pytest.mark.parametrize("size", [1 << 31, 10**30])
def test_a_decimal_of_gibibytes_is_refused_on_the_driver(size: int) -> None:
    schema: Schema = {"type": "fixed", "name": "f", "size": size, "logicalType": "decimal", "precision": 10}
    with pytest.raises(SchemaError, match=f"a decimal of {size} bytes is not supported"):
        plan_of(schema, pa.decimal128(10, 0), "value")


def test_a_type_that_is_nested_too_deeply_is_one_error() -> None:
    kind: pa.DataType = pa.int32()
    schema: Schema = "int"
    for _ in range(2000):
        schema = {"type": schema}
    with pytest.raises(SchemaError, match="nested too deeply"):
        plan_of(schema, kind, "value")


@pytest.mark.parametrize(
    "schema",
    [
        [3, None],
        {"type": "array", "items": 7},
        {"type": "record", "name": "r", "fields": [{"name": 3, "type": "int"}]},
        {"type": "record", "name": "r", "fields": [{"name": "\ud800", "type": "int"}]},
        {"type": "record", "name": "r", "fields": [{"name": "a", "type": 3}]},
        {"type": "int", "logicalType": ["date"], "name": {}},
        {"type": 3},
    ],
)
def test_json_that_is_no_schema_is_one_error(schema: Any) -> None:
    for kind in (pa.list_(pa.int32()), pa.struct([("a", pa.int32())]), pa.timestamp("us")):
        with pytest.raises(SchemaError) as raised:
            plan_of(schema, kind, "value")
        assert str(raised.value).isprintable()


def test_unions_that_multiply_are_given_up() -> None:
    kind: pa.DataType = pa.int32()
    schema: Schema = "string"
    for level in range(14):
        kind = pa.struct([("a", kind)])
        schema = [{"type": "record", "name": f"r{level}", "fields": [{"name": "a", "type": schema}]}] * 8
    with pytest.raises(SchemaError):
        plan_of(schema, kind, "value")
