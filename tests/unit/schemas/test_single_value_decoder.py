from __future__ import annotations

import io
import json
import uuid
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_producer.errors import CorruptRecord
from spark_producer.kernel.varint import encode_varint
from spark_producer.schemas.avro_viewer import AvroViewer
from spark_producer.schemas.registry import SchemaKey
from spark_producer.schemas.single_value_decoder import read_value
from spark_producer.schemas.types import avro_schema
from spark_producer.schemas.wire_format import prefix_of
from tests.unit.schemas.avro_values import by_fastavro, columns


def without_times(schema: Any) -> Any:
    """The same schema with numbers in place of times, which JSON does not have."""
    if isinstance(schema, list):
        return [without_times(each) for each in schema]
    if isinstance(schema, dict):
        if schema.get("logicalType", "decimal") != "decimal":
            return schema["type"]
        return {name: without_times(value) if name != "name" else value for name, value in schema.items()}
    return schema


@given(columns())
def test_values_are_read_as_fastavro_reads_them(case: tuple[pa.DataType, list[Any]]) -> None:
    kind, rows = case
    schema = avro_schema(kind, "value")
    parsed = fastavro.parse_schema(without_times(schema))
    for content in by_fastavro(schema, rows):
        if content is not None:
            assert read_value(schema, content) == fastavro.schemaless_reader(io.BytesIO(content), parsed, None)


NODE: dict[str, Any] = {
    "type": "record", "name": "Node", "namespace": "a",
    "fields": [
        {"name": "next", "type": ["null", "Node"]},
        {"name": "kind", "type": {"type": "enum", "name": "K", "symbols": ["x"]}},
    ],
}  # fmt: skip


def test_a_schema_may_refer_to_itself_and_bytes_to_nowhere() -> None:
    assert read_value(NODE, b"\x02\x00\x00\x00") == {"next": {"next": None, "kind": "x"}, "kind": "x"}
    for wrong in (b"", b"\x04", b"\x00\x02", b"\x00\x00\x00", b"\x02" * 500, b"\x80" * 11):
        with pytest.raises(CorruptRecord, match="the value does not fit its Avro schema"):
            read_value(NODE, wrong)
    with pytest.raises(CorruptRecord):
        read_value({"type": "array", "items": "null"}, b"\xfe\xff\xff\xff\x0f\x00")


def test_arrays_of_what_has_no_bytes_do_not_multiply() -> None:
    schema = {"type": "array", "items": {"type": "array", "items": "null"}}
    assert read_value(schema, b"\x04\x06\x00\x02\x00\x00") == [[None] * 3, [None]]
    rows = 3000
    content = encode_varint(rows) + (encode_varint(rows) + b"\x00") * rows + b"\x00"
    with pytest.raises(CorruptRecord, match="the value does not fit its Avro schema"):
        read_value(schema, content)


@pytest.mark.parametrize("scale", [10**9, -(10**9), -2_000_000])
def test_an_invalid_scale_of_a_decimal_is_shown_in_place_of_the_value(scale: int) -> None:
    schema = {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": scale}
    viewer = AvroViewer(lambda _: json.dumps(schema))
    assert (viewer.view(prefix_of(7) + b"\x02\x05") or b"").startswith(
        b"<schema 7: the value does not fit its Avro schema: "
    )


@given(st.binary(max_size=40), columns())
def test_no_bytes_raise_anything_else(content: bytes, case: tuple[pa.DataType, list[Any]]) -> None:
    schema = avro_schema(case[0], "value")
    try:
        read = read_value(schema, content)
    except CorruptRecord:
        return
    assert repr(read_value(schema, content)) == repr(read)


def test_a_viewer_asks_once_for_each_schema_and_leaves_other_bytes_alone() -> None:
    asked: list[SchemaKey] = []

    def schema_of(schema_id: SchemaKey) -> str:
        asked.append(schema_id)
        return json.dumps({"type": "record", "name": "A", "fields": [{"name": "s", "type": ["bytes", "string"]}]})

    viewer = AvroViewer(schema_of)
    assert viewer.view(None) is None
    assert viewer.view(b"plain") == b"plain"
    assert viewer.view(prefix_of(7) + b"\x02\x04\xc3\xa4") == '{"s": "ä"}'.encode()
    assert viewer.view(prefix_of(7) + b"\x00\x02\xff") == b'{"s": "0xff"}'
    assert (
        viewer.view(prefix_of(7) + b"\x06")
        == b"<schema 7: the value does not fit its Avro schema: ValueError at byte 1>"
    )
    assert asked == [7]


def decimal(precision: Any = 5, scale: int = 2, logical: str = "decimal") -> str:
    return json.dumps({"type": "bytes", "logicalType": logical, "precision": precision, "scale": scale})


def viewed(schema: str, payload: bytes) -> bytes:
    return AvroViewer(lambda _: schema).view(prefix_of(7) + payload) or b""


@pytest.mark.parametrize(
    ("number", "shown"),
    [
        (b"", b'"0.00"'),
        (b"\x01\x86\x9f", b'"999.99"'),
        (b"\xfe\x79\x61", b'"-999.99"'),
        (b"\x00" * 9 + b"\x6e", b'"1.10"'),
        (b"\xff" * 9 + b"\x92", b'"-1.10"'),
        (
            b"\x7f" * 4,
            b"<schema 7: the value does not fit its Avro schema: a decimal of 4 bytes, more than 3 at byte 5>",
        ),
    ],
)
def test_decimals_longer_than_their_precision_needs_are_refused_and_signs_that_repeat_are_not(
    number: bytes, shown: bytes
) -> None:
    assert viewed(decimal(), encode_varint(len(number)) + number) == shown


@pytest.mark.parametrize("schema", [decimal(5), decimal(10**9), decimal(0, 0, "big-decimal")])
def test_a_decimal_of_megabytes_is_not_converted(schema: str) -> None:
    """The digits of a number take the square of their count: Python refuses to write more than some thousands of them."""
    number = b"\x7f" * 4_000_000
    number = encode_varint(len(number)) + number
    if "big-decimal" in schema:
        number = encode_varint(len(number) + 1) + number + b"\x00"
    assert b"a decimal of 4000000 bytes" in viewed(schema, number)


def test_a_decimal_of_all_digits_that_a_column_has_is_read() -> None:
    for number in (10**38 - 1, -(10**38) + 1, 10**1000 - 1):
        content = number.to_bytes((number.bit_length() + 8) // 8, "big", signed=True)
        precision = len(str(abs(number)))
        assert viewed(decimal(precision, 0), encode_varint(len(content)) + content) == f'"{number}"'.encode()


@pytest.mark.parametrize("precision", [None, 0, "5", True])
def test_a_decimal_without_a_precision_is_none(precision: Any) -> None:
    assert viewed(decimal(precision), b"\x02\x05") == b'"0x05"'


def test_big_decimals_and_uuids_are_read() -> None:
    big = {"type": "bytes", "logicalType": "big-decimal"}
    assert read_value(big, bytes.fromhex("06029204")) == Decimal("-1.10")
    for wrong in ("0202", "06029200ff", "0602926e00", "0402ff"):
        with pytest.raises(CorruptRecord):
            read_value(big, bytes.fromhex(wrong))
    one = uuid.UUID(int=7)
    assert read_value({"type": "fixed", "name": "F", "size": 16, "logicalType": "uuid"}, one.bytes) == str(one)


def doubling(levels: int, low: list[dict[str, Any]]) -> dict[str, Any]:
    """A record that holds the one below twice."""
    found: dict[str, Any] = {"type": "record", "name": "A0", "fields": low}
    for level in range(1, levels + 1):
        fields = [{"name": "l", "type": found}, {"name": "r", "type": f"A{level - 1}"}]
        found = {"type": "record", "name": f"A{level}", "fields": fields}
    return found


@pytest.mark.parametrize(
    "low",
    [[], [{"name": "n", "type": "null"}], [{"name": "f", "type": {"type": "fixed", "name": "F", "size": 0}}]],
    ids=str,
)
def test_records_that_double_without_bytes_are_counted(low: list[dict[str, Any]]) -> None:
    with pytest.raises(CorruptRecord, match="too many values without bytes"):
        read_value(doubling(40, low), b"")
    with pytest.raises(CorruptRecord, match="too many values without bytes"):
        read_value({"type": "array", "items": doubling(40, low)}, b"\x02\x00")
    assert read_value(doubling(3, []), b"")["l"]["r"] == {"l": {}, "r": {}}


def test_a_wide_record_with_many_bytes_is_read_and_many_nulls_for_each_byte_are_not() -> None:
    wide = {"type": "record", "name": "W", "fields": [{"name": f"f{place}", "type": "int"} for place in range(5000)]}
    assert len(read_value(wide, b"\x02" * 5000)) == 5000
    nulls = {"type": "record", "name": "N", "fields": [{"name": f"f{place}", "type": "null"} for place in range(500)]}
    with pytest.raises(CorruptRecord, match="too many values without bytes"):
        read_value({"type": "array", "items": [nulls]}, b"\x14" + b"\x00" * 10 + b"\x00")


def test_long_names_are_not_shown_once_for_each_byte() -> None:
    name = "x" * 1_000_000
    count = encode_varint(100)
    enum = {"type": "enum", "name": "E", "symbols": [name]}
    with pytest.raises(CorruptRecord, match="too many and too long names"):
        read_value({"type": "array", "items": enum}, count + b"\x00" * 101)
    record = {"type": "record", "name": "R", "fields": [{"name": name, "type": "boolean"}]}
    with pytest.raises(CorruptRecord, match="too many and too long names"):
        read_value({"type": "array", "items": record}, count + b"\x01" * 100 + b"\x00")


def test_types_that_an_untaken_branch_defines_are_known_further_on() -> None:
    inner = {"type": "record", "name": "In", "fields": [{"name": "n", "type": "int"}]}
    schema = {
        "type": "record",
        "name": "R",
        "fields": [{"name": "a", "type": ["null", inner]}, {"name": "b", "type": "In"}],
    }
    assert read_value(schema, b"\x00\x04") == {"a": None, "b": {"n": 2}}
