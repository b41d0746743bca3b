"""Columns encoded as Protobuf, with Google's library as the judge."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pytest
from google.protobuf import message_factory
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_producer.errors import SchemaError
from spark_producer.kernel import compiled_protobuf
from spark_producer.kernel.avro_columns import mismatched_rows
from spark_producer.kernel.protobuf_columns import protobuf_column
from spark_producer.schemas.protobuf.column_types import proto_schema
from spark_producer.schemas.protobuf.plan import plan_of
from tests.unit.schemas.protobuf.encoding import encode, message, reasons
from tests.unit.schemas.protobuf.judging import comparable, decode, expected, message_class
from tests.unit.schemas.protobuf.protobuf_schemas import files, messages

STRUCT = 'syntax = "proto3"; import "google/protobuf/struct.proto"; message M { google.protobuf.Struct s = 1; }'


@pytest.mark.slow
@settings(max_examples=250, deadline=None)
@given(st.data(), files(required=False))
def test_what_is_read_is_written_as_the_same_values(data: st.DataObject, file: Any) -> None:
    kind = message_class(file)
    values = data.draw(st.lists(messages(kind), max_size=5))
    column = decode(kind.DESCRIPTOR, [None, *(each.SerializeToString() for each in values)]).array
    first, *rows = encode(kind.DESCRIPTOR, column)
    assert first is None
    assert [expected(kind.FromString(each)) for each in rows] == [expected(each) for each in values]


@pytest.mark.slow
@settings(max_examples=250, deadline=None)
@given(st.data(), files(maps=False))
def test_bytes_are_those_of_googles_library(data: st.DataObject, file: Any) -> None:
    """Maps have no order. Nanoseconds are lost in a column, so the library gets what was encoded."""
    kind = message_class(file)
    values = [each for each in data.draw(st.lists(messages(kind), max_size=5)) if each.IsInitialized()]
    column = decode(kind.DESCRIPTOR, [each.SerializeToString() for each in values]).array
    for each in encode(kind.DESCRIPTOR, column.slice(1)) + encode(kind.DESCRIPTOR, column)[:1]:
        assert kind.FromString(each).SerializeToString(deterministic=True) == each


NAMES = st.sampled_from(["a", "b", "a_b", "Aa", "value", "google", "_a", "message", "aEntry"])
CENTURY = datetime.timedelta(days=36525)
SCALARS: dict[Any, st.SearchStrategy[Any]] = {
    pa.bool_(): st.booleans(), pa.int8(): st.integers(-128, 127), pa.int32(): st.integers(-(1 << 31), (1 << 31) - 1),
    pa.int64(): st.integers(-(1 << 63), (1 << 63) - 1), pa.float32(): st.floats(width=32), pa.float64(): st.floats(),
    pa.string(): st.text(max_size=4), pa.binary(): st.binary(max_size=4),
    pa.decimal128(20, 0): st.integers(0, (1 << 64) - 1).map(Decimal),
    pa.timestamp("us", "UTC"): st.datetimes(timezones=st.just(datetime.UTC)), pa.duration("us"): st.timedeltas(-CENTURY, CENTURY),
}  # fmt: skip
KEYS = (pa.bool_(), pa.int32(), pa.int64(), pa.string())


def kinds(depth: int = 2) -> st.SearchStrategy[Any]:
    """Types of Spark for which a schema can be made."""
    plain = st.sampled_from(list(SCALARS))
    if not depth:
        return plain
    inner = plain | structs(depth - 1)
    return (
        inner
        | inner.map(lambda each: pa.list_(pa.field("element", each, False)))
        | st.builds(lambda key, value: pa.map_(key, pa.field("value", value, False)), st.sampled_from(KEYS), inner)
    )


def structs(depth: int = 2) -> st.SearchStrategy[Any]:
    fields = st.tuples(NAMES, st.deferred(lambda: kinds(depth)), st.booleans())
    unique = st.lists(fields, max_size=4, unique_by=lambda each: each[0].replace("_", "").lower())
    return unique.map(lambda found: pa.struct([pa.field(name, kind, null) for name, kind, null in found]))


def values(kind: Any) -> st.SearchStrategy[Any]:
    if kind in SCALARS:
        return SCALARS[kind]
    if pa.types.is_list(kind):
        return st.lists(values(kind.value_type), max_size=3)
    if pa.types.is_map(kind):
        pairs = st.tuples(values(kind.key_type), values(kind.item_type))
        return st.lists(pairs, max_size=3, unique_by=lambda each: repr(each[0]))
    each = {
        field.name: values(field.type) if not _may_be_null(field) else st.none() | values(field.type) for field in kind
    }
    return st.fixed_dictionaries(each)


def _may_be_null(field: Any) -> bool:
    """Whether the field comes back as null: a list or map comes back empty."""
    return bool(field.nullable) and not (pa.types.is_list(field.type) or pa.types.is_map(field.type))


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(st.data(), structs())
def test_a_column_comes_back_from_a_schema_that_was_made_for_it(data: st.DataObject, kind: Any) -> None:
    made = message(proto_schema(kind, "flights_value", "value"))
    rows = data.draw(st.lists(st.none() | values(kind), max_size=4))
    found = decode(made, encode(made, pa.array(rows, kind)))
    assert found.bad == 0
    assert found.rows == [comparable(each) for each in pa.array(rows, kind).to_pylist()]


def test_a_schema_that_was_made_names_messages_by_fields() -> None:
    leg = pa.struct([pa.field("from_to", pa.string(), False), pa.field("at", pa.timestamp("us", "UTC"))])
    kind = pa.struct([
        pa.field("id", pa.int64(), False), pa.field("legs", pa.list_(leg)), pa.field("home", leg),
        pa.field("Legs", pa.duration("us")), pa.field("fares", pa.map_(pa.string(), pa.float64())),
    ])  # fmt: skip
    assert proto_schema(kind, "t_value", "value") == (
        'syntax = "proto3";\n'
        'import "google/protobuf/duration.proto";\n'
        'import "google/protobuf/timestamp.proto";\n'
        "message t_value {\n"
        "  optional int64 id = 1;\n".replace("optional ", "")
        + "  message Legs_ {\n"
        "    string from_to = 1;\n"
        "    optional .google.protobuf.Timestamp at = 2;\n"
        "  }\n"
        "  repeated Legs_ legs = 2;\n"
        "  message Home {\n"
        "    string from_to = 1;\n"
        "    optional .google.protobuf.Timestamp at = 2;\n"
        "  }\n"
        "  Home home = 3;\n"
        "  optional .google.protobuf.Duration Legs = 4;\n"
        "  map<string, double> fares = 5;\n"
        "}\n"
    )


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (pa.int64(), "field 'value' has type int64, but a Protobuf message needs a struct"),
        (pa.struct([("d", pa.date32())]), r"field 'value\.d' has type date32\[day\], which Protobuf does not have"),
        (pa.struct([("d", pa.decimal128(10, 2))]), "which Protobuf does not have"),
        (pa.struct([("d", pa.null())]), "has type void"),
        (pa.struct([("d", pa.list_(pa.list_(pa.int32())))]), r"field 'value\.d\[\]' has type list"),
        (pa.struct([("d", pa.map_(pa.float64(), pa.int32()))]), "is a map whose keys are double"),
        (pa.struct([("d", pa.map_(pa.string(), pa.list_(pa.int32())))]), r"field 'value\.d\{\}' has type list"),
        (pa.struct([("é", pa.int32())]), "cannot be a Protobuf field"),
        (pa.struct([("d", pa.int32()), ("d", pa.int32())]), "is in the column twice"),
        (
            pa.struct([("a_b", pa.int32()), ("aB", pa.int32())]),
            r"field 'value\.aB' cannot be beside 'a_b' .* 'aB' in JSON",
        ),
        (pa.struct([("a_", pa.int32()), ("a", pa.int32())]), r"field 'value\.a' cannot be beside 'a_' .* 'a' in JSON"),
        (pa.struct([("_1", pa.map_(pa.string(), pa.int32()))]), r"field 'value\._1' cannot be a map in Protobuf"),
        (
            pa.struct([(each, pa.map_(pa.string(), pa.int32())) for each in ("a_b", "A_B")]),
            r"field 'value\.A_B' cannot be beside 'a_b' .* 'ABEntry' in the type of its entries",
        ),
    ],
    ids=str,
)
def test_types_that_protobuf_does_not_have_are_refused(kind: Any, text: str) -> None:
    with pytest.raises(SchemaError, match=text):
        proto_schema(kind, "v", "value")


def test_a_struct_of_json_is_written_as_deep_as_the_column_is() -> None:
    made = message(STRUCT)
    kind = message_factory.GetMessageClass(made)
    value = kind()
    value.s.update({"a": 1.5, "b": None, "c": {"d": [True, "x"]}, "e": []})
    column = decode(made, [value.SerializeToString(), b""], recursion=3).array
    one, two = encode(made, column)
    assert (kind.FromString(one), two) == (value, b"")


def test_editions_say_which_fields_have_presence_and_are_packed() -> None:
    text = """edition = "2023";
    message M {
      int32 a = 1;
      int32 b = 2 [features.field_presence = IMPLICIT];
      repeated int32 c = 3;
      repeated int32 d = 4 [features.repeated_field_encoding = EXPANDED];
      M2 e = 5 [features.message_encoding = DELIMITED];
      int32 f = 6 [features.field_presence = LEGACY_REQUIRED];
      message M2 { int32 a = 1; }
    }"""
    kind = pa.struct([
        *((each, pa.int32()) for each in "abf"), *((each, pa.list_(pa.int32())) for each in "cd"),
        ("e", pa.struct([("a", pa.int32())])),
    ])  # fmt: skip
    row = {"a": 0, "b": 0, "c": [1, 2], "d": [1, 2], "e": {"a": 0}, "f": 0}
    (found,) = encode(message(text), pa.array([row], kind))
    assert found == bytes.fromhex("0800 1a020102 2001 2002 2b 0800 2c 3000")
    assert reasons(message(text), pa.array([row | {"f": None}], kind)) == [
        ("value.f", "it is null, but its field is required", [0])
    ]


SCHEMA = """syntax = "proto2";
enum Open { A = 0; B = 5; }
message M {
  optional int32 i = 1; optional uint32 u = 2; optional uint64 w = 3; required string s = 4; optional Open e = 5;
  repeated string r = 6; map<string, int32> m = 7; oneof way { int32 x = 8; string y = 9; M inner = 10; }
  optional sfixed32 f = 11; optional fixed64 g = 12; optional double d = 13; optional bytes b = 14;
}"""
GOOD: dict[str, Any] = {"s": "x"}


@pytest.mark.parametrize(
    ("name", "kind", "value", "reason"),
    [
        ("i", pa.int64(), 1 << 31, "it is out of the range of int32"),
        ("i", pa.int64(), -(1 << 31) - 1, "it is out of the range of int32"),
        ("f", pa.int64(), 1 << 31, "it is out of the range of sfixed32"),
        ("u", pa.int32(), -1, "it is out of the range of uint32"),
        ("u", pa.int64(), 1 << 32, "it is out of the range of uint32"),
        ("w", pa.int64(), -1, "it is out of the range of uint64"),
        ("w", pa.decimal128(21, 0), Decimal(1 << 64), "it is negative, or does not fit into 64 bits"),
        ("g", pa.decimal128(20, 0), Decimal(-1), "it is negative, or does not fit into 64 bits"),
        ("d", pa.int64(), (1 << 53) + 1, "double cannot represent it exactly"),
        ("e", pa.string(), "C", "the enum 'Open' does not have it"),
        ("e", pa.string(), "7", "the enum 'Open' does not have it"),
        ("e", pa.int32(), 7, "the enum 'Open' does not have it"),
        ("s", pa.string(), None, "it is null, but its field is required"),
        ("s", pa.null(), None, "it is null, but its field is required"),
        ("r[]", pa.list_(pa.string()), ["a", None], "it is null, and items of a repeated field cannot be null"),
        (
            "m{}",
            pa.map_(pa.string(), pa.int32()),
            [("a", None)],
            "it is null, and keys and values of a map cannot be null",
        ),
    ],
)
def test_values_that_do_not_fit_are_named(name: str, kind: Any, value: Any, reason: str) -> None:
    field = name.rstrip("[]{}")
    struct = pa.struct([("s", pa.string()), (field, kind)] if field != "s" else [("s", kind)])
    rows = [GOOD | {field: value}, None]
    node = plan_of(message(SCHEMA), struct, "value", fill=True)
    (found,) = mismatched_rows(protobuf_column(node, pa.array(rows, struct)))
    assert (found.path, found.reason, found.rows.tolist()) == (f"value.{name}", reason, [0])


def test_one_field_of_a_oneof_may_be_set() -> None:
    text = 'syntax = "proto3"; message M { oneof way { int32 x = 1; string y = 2; M z = 3; } optional int32 o = 4; }'
    kind = pa.struct([("x", pa.int32()), ("y", pa.string()), ("o", pa.int32())])
    rows = [{"x": 0}, {"y": "", "o": 1}, {"x": 1, "y": "a"}, None, {"o": 0}]
    made = message(text)
    assert reasons(made, pa.array(rows, kind)) == [("value", "several fields of the oneof 'way' are set: x, y", [2])]
    assert encode(made, pa.array([*rows[:2], *rows[3:]], kind)) == [b"\x08\x00", b"\x12\x00\x20\x01", None, b"\x20\x00"]


def test_text_that_is_not_utf_8_does_not_fit() -> None:
    kind = pa.struct([("s", pa.string())])
    bad = pa.StructArray.from_arrays([pa.array([b"a", b"\xff"], pa.binary()).view(pa.string())], ["s"])
    found = reasons(message('syntax = "proto3"; message M { string s = 1; }'), bad.cast(kind))
    assert found == [("value.s", "it is not UTF-8", [1])]


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (pa.int32(), "field 'value' has type int32, but the schema has the message 'M'"),
        (pa.struct([("i", pa.string())]), r"field 'value\.i' has type string, but the schema has int32"),
        (pa.struct([("i", pa.float64())]), "but the schema has int32"),
        (pa.struct([("e", pa.float32())]), "but the schema has the enum 'Open', which takes strings and whole numbers"),
        (pa.struct([("w", pa.decimal128(20, 1))]), "but the schema has uint64"),
        (pa.struct([("r", pa.string())]), "but the schema has a repeated field of string"),
        (pa.struct([("m", pa.string())]), "but the schema has a map"),
        (
            pa.struct([("m", pa.map_(pa.int32(), pa.int32()))]),
            r"field 'value\.m\{\}' has type int32, but the schema has string",
        ),
        (pa.struct([("inner", pa.string())]), "but the schema has the message 'M'"),
        (pa.struct([("b", pa.int32())]), "but the schema has bytes"),
        (
            pa.struct([("zz", pa.int32())]),
            r"field 'value\.zz' is not in the schema, whose fields are i, u, .*\. Leave it out",
        ),
        (pa.struct([("i", pa.int32())]), r"whose fields are i, and it is required\. Add it"),
    ],
    ids=str,
)
def test_columns_that_do_not_match_their_message_are_refused(kind: Any, text: str) -> None:
    if pa.types.is_struct(kind) and not text.endswith("Add it"):
        kind = pa.struct([*kind, ("s", pa.string())])
    with pytest.raises(SchemaError, match=text):
        plan_of(message(SCHEMA), kind, "value", fill=True)


def test_fields_that_the_column_lacks_are_left_out_on_request() -> None:
    made = message('syntax = "proto3"; message M { int32 a = 1; int32 b = 2; M inner = 3; }')
    kind = pa.struct([("b", pa.int32())])
    with pytest.raises(
        SchemaError, match=r"field 'value\.a' of the message is not in the column.*set fillMissingFields"
    ):
        plan_of(made, kind, "value")
    assert encode(made, pa.array([{"b": 1}], kind), fill=True) == [b"\x10\x01"]


@pytest.mark.parametrize("number", [1, 15, 16, 2047, 2048, (1 << 29) - 1])
def test_tags_have_one_to_five_bytes(number: int) -> None:
    made = message(f'syntax = "proto3"; message M {{ int32 a = {number}; repeated M b = {number - 1 or 2}; }}')
    kind = message_factory.GetMessageClass(made)
    inner = pa.struct([("a", pa.int32())])
    rows = [{"a": 1, "b": [{"a": 300}, {"a": 0}]}, {"a": 0, "b": []}]
    found = encode(made, pa.array(rows, pa.struct([("a", pa.int32()), ("b", pa.list_(inner))])))
    assert found == [kind(**row).SerializeToString() for row in rows]


def test_lengths_of_all_sizes_are_written() -> None:
    made = message('syntax = "proto3"; message M { bytes a = 1; M b = 2; }')
    kind = message_factory.GetMessageClass(made)
    rows = [
        {"a": bytes(count), "b": {"a": b"x" * count}} for count in (0, 1, 15, 16, 17, 125, 126, 127, 128, 16383, 16384)
    ]
    inner = pa.struct([("a", pa.binary())])
    array = pa.array(rows, pa.struct([("a", pa.binary()), ("b", inner)]))
    for each in (array, array.slice(3, 5), array.slice(11), array.take(pa.array([10, 0, 10]))):
        wanted: list[Any] = cast("Any", each).to_pylist()
        assert encode(made, each) == [kind(**row).SerializeToString() for row in wanted]


def test_arrays_of_wrong_lengths_are_refused_by_the_compiled_kernel() -> None:
    made = message('syntax = "proto3"; message M { string a = 1; repeated int32 b = 2; }')
    array = pa.array([{"a": "x", "b": [1]}] * 3, pa.struct([("a", pa.string()), ("b", pa.list_(pa.int32()))]))
    node = plan_of(made, array.type, "value")
    column = protobuf_column(node, array)
    text, numbers = column.children
    for bad in (
        column._replace(valid=np.ones(2, np.bool_)),
        column._replace(length=4),
        column._replace(children=(text,)),
        column._replace(children=(text._replace(offsets=text.offsets + 1), numbers)),
        column._replace(children=(text, numbers._replace(offsets=numbers.offsets[:-1]))),
    ):
        with pytest.raises(ValueError, match="the arrays of a column have wrong lengths"):
            compiled_protobuf.encode_protobuf(node, bad, b"")
