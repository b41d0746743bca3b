"""Texts that are not JSON, or do not have the types of their schema: each has its reason, and touches no other row."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from spark_producer.errors import RecordError, SchemaError
from spark_producer.schemas.json_schema.column_reader import json_schema_reader
from spark_producer.schemas.json_schema.exact import parse_text
from spark_producer.schemas.json_schema.parsing import FEW_ROWS, MAX_JSON_DEPTH
from spark_producer.schemas.references import UnknownSchema
from tests.unit.schemas.json_schema.judging import FRAME, of, read, reasons

pytestmark = pytest.mark.covers("JS1")

SCHEMA: Any = of(
    id={"type": "integer"},
    small={"type": "integer", "connect.type": "int8"},
    d={"type": "number"},
    f={"type": "number", "connect.type": "float32"},
    t={"type": "boolean"},
    s={"type": "string"},
    day={"type": "string", "format": "date"},
    at={"type": "string", "format": "date-time"},
    here={"type": "string", "format": "date-time-local"},
    b={"type": "string", "contentEncoding": "base64"},
    l={"type": "array", "items": {"type": "integer"}},
)

GOOD = b'{"id":5}'

BAD = [
    (b"", "it is not JSON: Expecting value (character 0)"),
    (b"Hallo", "it is not JSON: Expecting value (character 0)"),
    (b"\x02\x05abcde", "it is not JSON: Expecting value (character 0)"),
    (b"\xff", "it is not UTF-8"),
    (b'{"x":"\xc3"}', "it is not UTF-8"),
    (b"\xef\xbb\xbf{}", "it is not JSON: it begins with a byte order mark"),
    (b'{"id":1}{"id":2}', "it is not JSON: there is more after its value (character 8)"),
    (b'{"id":1},"x":{}', "it is not JSON: there is more after its value (character 8)"),
    (b'{"id":1} x', "it is not JSON: there is more after its value (character 9)"),
    (b'{"id":1', "it is not JSON: Expecting ',' delimiter (character 7)"),
    (b'{"id":01}', "it is not JSON: Expecting ',' delimiter (character 7)"),
    (b'{"x":NaN}', "it is not JSON: it has NaN"),
    (b'{"d":-Infinity}', "it is not JSON: it has -Infinity"),
    (b'{"s":"a\x01"}', "it is not JSON: Invalid control character at (character 7)"),
    (b'{"s":"\\ud800"}', "field 'value.s': it has half of a surrogate pair, which UTF-8 does not have"),
    (b"[]", "field 'value': it is an array, but its schema says an object"),
    (b'{"id":"1"}', "field 'value.id': it is a string, but its schema says an integer"),
    (b'{"id":true}', "field 'value.id': it is a boolean, but its schema says an integer"),
    (b'{"id":1.5}', "field 'value.id': it has a fraction, but its schema says an integer"),
    (b'{"id":9223372036854775808}', "field 'value.id': it does not fit into 64 bits"),
    (b'{"id":1e999999999}', "field 'value.id': it has more digits than its column"),
    (b'{"id":' + b"1" * 5000 + b"}", "field 'value.id': it has more digits than its column"),
    (b'{"small":128}', "field 'value.small': it does not fit into 8 bits"),
    (b'{"d":1e400}', "field 'value.d': it is out of the range of double"),
    (b'{"d":"NaN"}', "field 'value.d': it is a string, but its schema says a number"),
    (b'{"f":1e39}', "field 'value.f': it is out of the range of float"),
    (b'{"t":1}', "field 'value.t': it is a number, but its schema says a boolean"),
    (b'{"s":{}}', "field 'value.s': it is an object, but its schema says a string"),
    (b'{"day":"2020-02-30"}', "field 'value.day': it is not a date (RFC 3339)"),
    (b'{"day":"20200201"}', "field 'value.day': it is not a date (RFC 3339)"),
    (b'{"day":""}', "field 'value.day': it is not a date (RFC 3339)"),
    (b'{"at":"2020-01-01T00:00:00"}', "field 'value.at': it is not a date and time with an offset (RFC 3339)"),
    (b'{"at":"2020-01-01T25:00:00Z"}', "field 'value.at': it is not a date and time with an offset (RFC 3339)"),
    (b'{"at":"2020-01-01"}', "field 'value.at': it is not a date and time with an offset (RFC 3339)"),
    (b'{"here":"2020-01-01T00:00:00Z"}', "field 'value.here': it is not a date and time without an offset (RFC 3339)"),
    (b'{"b":"a"}', "field 'value.b': it is not base64"),
    (b'{"b":"a=bc"}', "field 'value.b': it is not base64"),
    (b'{"b":"===="}', "field 'value.b': it is not base64"),
    (b'{"b":"YW=="}', None),
    (b'{"l":[1,"2"]}', "field 'value.l[]': it is a string, but its schema says an integer"),
]


@pytest.mark.parametrize(("content", "reason"), BAD, ids=lambda each: repr(each)[:40])
def test_a_bad_text_has_its_reason_and_others_are_read(content: bytes, reason: str | None) -> None:
    assert reasons(SCHEMA, content) == [reason]
    rows: list[Any] = [GOOD] * (3 * FEW_ROWS)
    rows[FEW_ROWS + 5] = content
    found = read(SCHEMA, rows)
    assert found.bad_rows == (reason is not None)
    if reason is not None:
        assert found.first is not None
        assert (found.first.row, found.first.reason) == (FEW_ROWS + 5, reason)
    ids = [row and row["id"] for row in found.values.to_pylist()]
    assert ids[: FEW_ROWS + 5] + ids[FEW_ROWS + 6 :] == [5] * (3 * FEW_ROWS - 1)


@pytest.mark.parametrize(
    ("content", "field", "value"),
    [
        (b'{"id":-9223372036854775808}', "id", -(1 << 63)),
        (b'{"id":9007199254740993}', "id", 9007199254740993),
        (b'{"id":1.0}', "id", 1),
        (b'{"id":1e2}', "id", 100),
        (b'{"id":1,"id":2}', "id", 2),
        (b' {"id" : 1}\n', "id", 1),
        (b'{"id":null}', "id", None),
        (b'{"s":"\\u0061\\n\\ud83d\\ude00"}', "s", "a\n😀"),
        (b'{"d":1}', "d", 1.0),
        (b'{"d":0.1e-2}', "d", 0.001),
        (b'{"d":1e-400}', "d", 0.0),
        (b'{"f":0.1}', "f", 0.10000000149011612),
        (b'{"b":""}', "b", b""),
        (b'{"b":"/+8="}', "b", b"\xff\xef"),
        (b'{"l":[]}', "l", []),
        (b'{"other":{"a":[1e400]},"id":3}', "id", 3),
    ],
)
def test_what_json_allows_is_read(content: bytes, field: str, value: Any) -> None:
    for rows in ([content], [GOOD] * FEW_ROWS + [content]):
        found = read(SCHEMA, list(rows))
        assert found.first is None
        assert found.values.to_pylist()[-1][field] == value


def test_times_have_offsets_and_are_rounded_down() -> None:
    texts = ["2020-01-01T00:00:00Z", "2020-01-01t00:00:00.1234567z", "2020-01-01 02:00:00.5+02:00"]
    found = read(SCHEMA, [json.dumps({"at": each}) for each in texts])
    assert found.values.field("at").cast(pa.int64()).to_pylist() == [
        1577836800000000, 1577836800123456, 1577836800500000
    ]  # fmt: skip


def test_a_null_document_is_a_null_row() -> None:
    found = read(SCHEMA, ["null", GOOD, None])
    assert found.first is None
    assert [each and each["id"] for each in found.values.to_pylist()] == [None, 5, None]


@pytest.mark.parametrize("opening", [b"[", b'{"a":'])
def test_nesting_is_bounded(opening: bytes) -> None:
    def nested(depth: int) -> bytes:
        closing = b"]" if opening == b"[" else b"}"
        return b'{"x":' + opening * (depth - 1) + b"1" + closing * (depth - 1) + b"}"

    reason = f"it is nested too deeply: the maximum is {MAX_JSON_DEPTH} objects and arrays"
    assert reasons(SCHEMA, nested(MAX_JSON_DEPTH), nested(MAX_JSON_DEPTH + 1)) == [None, reason]
    flat = b'{"s":"' + b"[" * 1000 + b'\\"]","l":[' + b",".join([b"1"] * 500) + b"]}"
    assert reasons(SCHEMA, flat) == [None]
    found = read(SCHEMA, [GOOD, nested(100_000), GOOD])
    assert found.bad_rows == 1
    deep = read(of(x={}), [nested(MAX_JSON_DEPTH)])
    assert deep.first is None


def test_any_json_keeps_its_digits_and_maps_their_names() -> None:
    schema = of(
        any={}, m={"type": "object", "additionalProperties": {"type": "number"}}, two={"type": ["string", "integer"]}
    )
    found = read(
        schema, ['{"any": {"a": [1.10, 12345678901234567890, "ä", null, true]}, "m": {"b": 1, "a": null}, "two": 1.0}']
    )
    assert found.first is None
    assert found.values.to_pylist() == [
        {"any": '{"a":[1.10,12345678901234567890,"ä",null,true]}', "m": [("b", 1.0), ("a", None)], "two": "1.0"}
    ]
    assert reasons(schema, '{"m":{"a":"x"}}', '{"m":[]}', '{"any":"\\ud800"}') == [
        "field 'value.m{}': it is a string, but its schema says a number",
        "field 'value.m': it is an array, but its schema says an object of any names",
        "field 'value.any': it has half of a surrogate pair, which UTF-8 does not have",
    ]


def test_decimals_keep_their_digits_or_are_refused() -> None:
    decimals = {
        "type": "number", "title": "org.apache.kafka.connect.data.Decimal",
        "connect.parameters": {"scale": "2", "connect.decimal.precision": "5"},
    }  # fmt: skip
    schema = of(n=decimals)
    rows = ['{"n":1.5}', '{"n":"-2.25"}', '{"n":123}', '{"n":1e2}', '{"n":0.00e5}']
    for texts in (rows, rows * FEW_ROWS):
        found = read(schema, list(texts))
        assert found.first is None
        assert [each["n"] for each in found.values.to_pylist()][:5] == [
            Decimal("1.50"), Decimal("-2.25"), Decimal("123.00"), Decimal("100.00"), Decimal("0.00")
        ]  # fmt: skip
    refused = "field 'value.n': it does not fit into decimal(5, 2)"
    assert reasons(schema, '{"n":1.234}', '{"n":1000}', '{"n":"1_0"}', '{"n":true}') == [
        refused, refused, "field 'value.n': it has more digits than its column",
        "field 'value.n': it is a boolean, but its schema says a decimal number",
    ]  # fmt: skip
    beyond = of(n={"type": "integer", "maximum": (1 << 64) - 1})
    assert read(beyond, [f'{{"n":{(1 << 64) - 1}}}']).values.to_pylist() == [{"n": Decimal((1 << 64) - 1)}]


def test_values_without_a_frame_and_columns_that_are_not_binary() -> None:
    assert "it is not in Confluent's wire format" in str(read(SCHEMA, [b'{"id":5}'], headless=True).first)
    reader = json_schema_reader("value", json.dumps(SCHEMA), "FAILFAST", {}, None)
    with pytest.raises(SchemaError, match="column 'value' is string, but JSON in Confluent's wire format is binary"):
        reader.decoder().decode(pa.array(["a"]))
    with pytest.raises(
        RecordError, match=r"row 1: column 'value' cannot be decoded as JSON: it is not JSON: .* set mode to"
    ):
        reader.decode(reader.decoder(), pa.array([FRAME + GOOD, FRAME + b"x"], pa.binary()), lambda row: f"row {row}")


def test_the_format_of_other_schemas_is_said() -> None:
    class Writers:
        def text(self, schema_id: int) -> str:
            if schema_id == 7:
                return "{}"
            raise UnknownSchema(f"schema {schema_id} is Avro, not JSON Schema")

    reader = json_schema_reader("value", json.dumps(SCHEMA), "FAILFAST", {}, None)._replace(writers=Writers())  # type: ignore[arg-type]
    column = pa.array([FRAME + GOOD, b"\0\0\0\0\x08\x02", None, FRAME + b"{}"], pa.binary())
    found: Any = reader.decoder().decode(column)
    assert found.first is not None
    assert (found.bad_rows, found.first.row, found.first.reason) == (1, 1, "schema 8 is Avro, not JSON Schema")
    assert [each and each["id"] for each in found.values.to_pylist()] == [5, None, None, None]


def test_rows_between_others_and_slices_are_read_from_their_places() -> None:
    rows: list[Any] = [
        FRAME + b'{"id":%d}' % number if number % 3 else (None if number % 2 else b"odd") for number in range(200)
    ]
    reader = json_schema_reader("value", json.dumps(SCHEMA), "PERMISSIVE", {}, None)
    column: Any = pa.array(rows, pa.binary())
    for each in (column, column.cast(pa.large_binary()), column.slice(7), column.slice(3, 50), column.slice(0, 0)):
        found: Any = reader.decoder().decode(each)
        wanted = [None if row in (None, b"odd") else json.loads(row[5:])["id"] for row in each.to_pylist()]
        assert [row and row["id"] for row in found.values.to_pylist()] == wanted


def test_texts_are_parsed_as_python_does() -> None:
    assert parse_text('{"a": [1, 2.50], "b": "x"}') == {"a": ["1", "2.50"], "b": "x"}
