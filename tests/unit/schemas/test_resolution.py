"""A writer's schema matched with a reader's: what the specification says, case by case, and the types of the columns."""

from __future__ import annotations

import datetime
import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from spark_producer.errors import SchemaError
from spark_producer.kernel.varint import encode_varint
from spark_producer.schemas.reader_types import TypeRules, reader_type
from spark_producer.schemas.resolution import program_of
from spark_producer.schemas.types import avro_schema
from tests.unit.schemas.avro_schemas import written
from tests.unit.schemas.decoding import RULES, decode
from tests.unit.schemas.judging import encoded, record

pytestmark = pytest.mark.covers("RD19")

UTC = pa.timestamp("us", "UTC")
ENUM = {"type": "enum", "name": "E", "symbols": ["A", "B"]}


def logical(form: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": form, "logicalType": name} | more


def fixed(size: int, name: str = "F", **more: Any) -> dict[str, Any]:
    return {"type": "fixed", "name": name, "size": size} | more


@pytest.mark.parametrize(
    ("schema", "kind"),
    [
        ("int", pa.int32()),
        ("null", pa.null()),
        (["int", "long"], pa.int64()),
        (["float", "null", "double"], pa.float64()),
        (["string"], pa.string()),
        (logical("int", "date"), pa.date32()),
        (logical("long", "date"), pa.int64()),
        (logical("int", "time-millis"), pa.time64("ns")),
        (logical("long", "time-micros"), pa.time64("ns")),
        (logical("long", "timestamp-millis"), UTC),
        (logical("long", "timestamp-nanos"), UTC),
        (logical("long", "local-timestamp-nanos"), pa.timestamp("us")),
        (logical("bytes", "decimal", precision=9, scale=2), pa.decimal128(9, 2)),
        (logical("bytes", "decimal", precision=2, scale=9), pa.binary()),
        (logical("bytes", "big-decimal"), pa.binary()),
        (fixed(4, logicalType="decimal", precision=9), pa.decimal128(9, 0)),
        (fixed(4, logicalType="decimal", precision=10), pa.binary()),
        (fixed(16, logicalType="uuid"), pa.string()),
        (fixed(12, logicalType="duration"), pa.duration("us")),
        (fixed(12), pa.binary()),
        (ENUM, pa.string()),
        (["null", "int", "string"], pa.struct([("member0", pa.int32()), ("member1", pa.string())])),
        ({"type": "array", "items": "int"}, pa.list_(pa.field("element", pa.int32(), False))),
        (
            {"type": "map", "values": ["null", "int"]},
            pa.map_(pa.string(), pa.field("value", pa.int32(), True)),  # type: ignore[call-overload]
        ),
        (
            record(("a", "int"), ("b", ["null", "int"])),
            pa.struct([pa.field("a", pa.int32(), False), pa.field("b", pa.int32(), True)]),
        ),
    ],
)
def test_the_type_of_a_column(schema: Any, kind: pa.DataType) -> None:
    found = reader_type(schema, "value", RULES).kind
    assert found == kind
    assert str(found) == str(kind)


def test_times_of_day_stay_numbers_where_spark_has_no_such_type() -> None:
    assert decode(logical("int", "time-millis"), [b"\x02"], rules=TypeRules()).rows == [1]
    micros, millis = logical("long", "time-micros"), logical("int", "time-millis")
    assert decode(millis, [b"\x02"], micros, rules=TypeRules()).rows == [1000]


@pytest.mark.parametrize(
    ("writer", "reader", "content", "value"),
    [
        ("int", "long", b"\x05", -3),
        ("int", "double", b"\x05", -3.0),
        ("long", "float", encode_varint(2**53 + 1), 2.0**53),
        ("long", "float", encode_varint(2**60 + 2**36 + 1), float(2**60 + 2**37)),  # rounded once
        ("float", "double", b"\x00\x00\xc0\x3f", 1.5),
        ("string", "bytes", b"\x02a", b"a"),
        ("bytes", "string", b"\x02a", "a"),
        ("int", ["string", "double"], b"\x02", {"member0": None, "member1": 1.0}),
        ("int", ["null", "long"], b"\x02", 1),
        (["null", "int"], "int", b"\x02\x02", 1),
        (["int", "string"], ["null", "string", "double"], b"\x00\x02", {"member0": None, "member1": 1.0}),
        (["null", "string"], ["string", "int", "null"], b"\x00", None),
        (ENUM, ENUM | {"symbols": ["B"], "default": "B"}, b"\x00", "B"),
        (ENUM, ENUM | {"name": "other.space.E"}, b"\x02", "B"),
        (ENUM, ENUM | {"name": "N", "aliases": ["E"]}, b"\x02", "B"),
        (ENUM | {"namespace": "a.b"}, ENUM | {"name": "N", "aliases": ["a.b.E"]}, b"\x02", "B"),
        (record(("a", "int")), record(("a", "int"), name="S"), b"\x02", {"a": 1}),
        (record(("a", "int"), ("b", "int")), record(("b", "int"), ("a", "int")), b"\x02\x04", {"b": 2, "a": 1}),
        (record(("a", "int")), record({"name": "x", "type": "long", "aliases": ["q", "a"]}), b"\x02", {"x": 1}),
        (
            record(("a", "int")),
            record(("a", "int"), {"name": "b", "type": ["null", ENUM], "default": None}),
            b"\x02",
            {"a": 1, "b": None},
        ),
        (
            [record(("a", "int"), name="X"), record(("b", "int"), name="Y")],
            [record(("b", "int"), name="Y"), record(("a", "int"), name="X")],
            b"\x02\x04",
            {"member0": {"b": 2}, "member1": None},
        ),
        (
            [record(("a", "int"), name="X"), record(("b", "int"), name="Y")],
            record({"name": "a", "type": "int", "default": 9}),
            b"\x02\x04",
            {"a": 9},
        ),
        (logical("long", "timestamp-millis"), logical("long", "timestamp-micros"), b"\x02", "1970-01-01 00:00:00.001000"),
        (logical("long", "timestamp-nanos"), logical("long", "timestamp-nanos"), b"\x01", "1969-12-31 23:59:59.999999"),
        ("long", logical("long", "timestamp-millis"), b"\x02", "1970-01-01 00:00:00.001000"),
        (logical("int", "date"), "int", b"\x02", 1),
        (fixed(12, logicalType="duration"), fixed(12), bytes(12), bytes(12)),
        (
            fixed(12, logicalType="duration"), fixed(12, logicalType="duration"), bytes(4) + b"\x01\x00\x00\x00\x05\x00\x00\x00",
            datetime.timedelta(days=1, milliseconds=5),
        ),
        (
            fixed(16, logicalType="uuid"), ["null", fixed(16, logicalType="uuid")], bytes(range(0xF0, 0x100)),
            "f0f1f2f3-f4f5-f6f7-f8f9-fafbfcfdfeff",
        ),
        (
            logical("bytes", "decimal", precision=5), ["null", logical("bytes", "decimal", precision=3)],
            b"\x2a" + bytes(20) + b"\x07", "7",
        ),
        (logical("bytes", "decimal", precision=5), logical("bytes", "decimal", precision=5), b"\x00", "0"),
    ],
)  # fmt: skip
def test_a_value_is_read_as_the_readers_type(writer: Any, reader: Any, content: bytes, value: Any) -> None:
    (found,) = decode(writer, [content], reader).rows
    assert (str(found).removesuffix("+00:00") if isinstance(value, str) else found) == value


@pytest.mark.parametrize(
    ("writer", "reader", "reason"),
    [
        ("long", "int", "was written as long, which the reader's schema does not take: int"),
        ("string", ["null", "int"], "was written as string"),
        ("null", "int", "was written as null"),
        (["null", "string"], "int", "was written as null"),
        ("int", ["string", "boolean"], "no type of the reader's union takes the writer's int"),
        (record(("a", "int")), record(("b", "int")), "'value.b' of the reader's schema is not in the writer's"),
        (record(("a", "int")), "int", "was written as record 'R'"),
        (record(("a", "int")), record({"name": "b", "type": "int", "default": "x"}), "not a value of its type"),
        (fixed(3), fixed(4), "fixed 'F' of 3 bytes"),
        (fixed(3), fixed(3, "G"), "fixed 'G' of 3 bytes"),
        (ENUM, ENUM | {"name": "D"}, "enum 'D'"),
        ({"type": "array", "items": "int"}, {"type": "map", "values": "int"}, "was written as array"),
        (logical("bytes", "decimal", precision=5, scale=1), logical("bytes", "decimal", precision=5), "(decimal)"),
        (logical("int", "date"), logical("long", "timestamp-micros"), "int (date)"),
        ("nothing", "int", "refers to the type 'nothing'"),
        ({"type": "fixed", "name": "F"}, fixed(3), "a fixed type without a size"),
        ([["int"]], "int", "a union directly in a union"),
        ({"type": "array"}, {"type": "array", "items": "int"}, "lacks 'items'"),
        ({"type": "record", "name": "R"}, record(("a", "int")), "without a list of fields"),
    ],
)
def test_schemas_that_do_not_match(writer: Any, reader: Any, reason: str) -> None:
    with pytest.raises(SchemaError) as raised:
        program_of(writer, reader_type(reader, "value", RULES), reader)
    assert reason in str(raised.value)


@pytest.mark.parametrize(
    ("reader", "reason"),
    [
        (record(("next", ["null", "R"])), "is recursive"),
        (logical("bytes", "decimal", precision=39), "a decimal of 39 digits"),
        ([["int"]], "a union directly in a union"),
        ("nothing", "refers to the type"),
        ({"type": "enum", "name": "E"}, "without a list of symbols"),
        ({"type": "fixed", "name": "F", "size": -1}, "without a size"),
        ({"type": "record", "fields": []}, "a record without a name"),
        (record(("a", "int"), ("a", "int")), "twice"),
        ({"type": 7}, "int in place of a type"),
    ],
)
def test_a_readers_schema_that_is_refused(reader: Any, reason: str) -> None:
    with pytest.raises(SchemaError) as raised:
        reader_type(reader, "value", RULES)
    assert reason in str(raised.value)


def test_a_deep_schema_is_refused() -> None:
    schema: Any = "int"
    for _ in range(70):
        schema = {"type": "array", "items": schema}
    with pytest.raises(SchemaError, match="nested more than 64"):
        reader_type(schema, "value", RULES)
    with pytest.raises(SchemaError):
        reader_type(json.loads("[" * 500 + "]" * 500), "value", RULES)


def test_a_record_within_itself_is_read_as_deep_as_the_rules_say() -> None:
    schema = record(("n", "int"), ("next", ["null", "R"]))
    content = b"\x02\x02\x04\x02\x06\x00"
    one = decode(schema, [content], rules=TypeRules(recursion=1))
    assert one.rows == [{"n": 1}]
    two = decode(schema, [content], rules=TypeRules(recursion=2))
    assert two.rows == [{"n": 1, "next": {"n": 2}}]


def test_an_enums_unknown_symbol_without_a_default_is_bad() -> None:
    found = decode(ENUM, [b"\x00", b"\x02"], ENUM | {"symbols": ["B"]})
    assert found.rows == [None, "B"]
    assert found.first == (0, "field 'value': the reader's enum does not have its symbol, and no default (byte 6)")


def test_a_branch_that_the_reader_does_not_take_is_bad_where_a_value_has_it() -> None:
    found = decode(["int", "string"], [b"\x00\x02", b"\x02\x02a"], "long")
    assert found.rows == [1, None]
    assert found.first is not None
    assert "was written as string" in found.first[1]


def test_a_column_comes_back_as_it_was_encoded() -> None:
    rows: list[Any] = [
        {"i": 1, "s": "x", "l": [1.5, None], "m": [("k", 1)], "d": datetime.date(2020, 1, 2), "n": None, "b": b"\xff"},
        None,
        {"i": None, "s": "", "l": [], "m": [], "d": None, "n": {"at": datetime.datetime(2020, 1, 2)}, "b": None},
    ]
    kind = pa.struct(
        [
            ("i", pa.int32()), ("s", pa.string()), ("l", pa.list_(pa.field("element", pa.float64()))),
            ("m", pa.map_(pa.string(), pa.int64())), ("d", pa.date32()), ("n", pa.struct([("at", pa.timestamp("us"))])),
            ("b", pa.binary()),
        ]
    )  # fmt: skip
    schema = avro_schema(kind, "value")
    found = decode(schema, encoded(schema, pa.array(rows, kind)).rows)
    assert found.rows == rows
    assert found.kind == kind


def test_decimals_of_many_bytes() -> None:
    kind = logical("bytes", "decimal", precision=38)
    most = 10**38 - 1
    numbers = [0, 1, -1, most, -most, 1 << 126, -(1 << 126), most + 1, -most - 1, 1 << 127, -(1 << 127) - 1, 1 << 140]
    widths = (18, 20, 40)
    contents = [number.to_bytes(width, "big", signed=True) for number in numbers for width in widths]
    rows: list[bytes | None] = [encode_varint(len(content)) + content for content in contents]
    wanted = [Decimal(number) if abs(number) <= most else None for number in numbers for _ in widths]
    assert decode(kind, rows).rows == wanted


def test_many_rows_grow_all_columns() -> None:
    schema = record(("t", "string"), ("a", {"type": "array", "items": ["null", "string"]}))
    rows: list[Any] = [{"t": "x" * place, "a": ["y" * place, None] * (place % 50)} for place in range(300)]
    assert decode(schema, list(written(schema, rows))).rows == rows
