"""Rows that cannot be decoded: they become null, and say why; the rows beside them are not touched."""

from __future__ import annotations

import tracemalloc
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_producer.errors import RecordError
from spark_producer.kernel.varint import encode_varint
from spark_producer.schemas.frames import NO_FRAME
from tests.unit.schemas.avro_schemas import records, written
from tests.unit.schemas.decoding import decode, framed
from tests.unit.schemas.judging import record

pytestmark = pytest.mark.covers("RD19")

LIST = {"type": "array", "items": "int"}
TREE = record(("left", ["null", "R"]), ("n", "int"))


def only(schema: Any, content: bytes, reader: Any = None) -> str:
    """The reason why one row between two good ones is bad."""
    good = written(schema, [_value(schema)])[0]
    found = decode(schema, [good, content, good], reader)
    assert found.rows[1] is None
    assert None not in (found.rows[0], found.rows[2])
    assert found.bad == 1
    assert found.first is not None
    assert found.first[0] == 1
    return found.first[1]


def _value(schema: Any) -> Any:
    if isinstance(schema, list):
        return _value(schema[-1])
    if isinstance(schema, dict) and schema["type"] == "record":
        return {field["name"]: None if "R" in field["type"] else _value(field["type"]) for field in schema["fields"]}
    if isinstance(schema, dict) and schema["type"] == "enum":
        return schema["symbols"][0]
    if isinstance(schema, dict):
        return {"array": [], "map": {}, "fixed": bytes(12), "bytes": Decimal(0)}.get(schema["type"], 0)
    return {"string": "", "boolean": True, "bytes": b"", "double": 0.5}.get(schema, 0)


@pytest.mark.parametrize(
    ("schema", "content", "reason"),
    [
        ("int", b"", "field 'value': it ends too early (byte 5)"),
        ("int", b"\x80", "field 'value': it ends too early (byte 6)"),
        ("double", b"\x00" * 7, "field 'value': it ends too early (byte 5)"),
        ("boolean", b"", "field 'value': it ends too early (byte 5)"),
        ("int", b"\x02\x02", "field 'value': bytes follow it (byte 6)"),
        ("int", encode_varint(2**31), "field 'value': a number does not fit into 32 bits (byte 10)"),
        ("long", b"\xff" * 9 + b"\x02", "field 'value': a number has more than 64 bits (byte 15)"),
        ("long", b"\xff" * 12, "field 'value': a number has more than 64 bits (byte 15)"),
        ("boolean", b"\x02", "field 'value': a boolean is neither 0 nor 1 (byte 6)"),
        ("string", encode_varint(-1), "field 'value': a length is negative (byte 6)"),
        ("bytes", encode_varint(2**62) + b"abc", "field 'value': it ends too early (byte 15)"),
        ("string", encode_varint(2**63 - 1), "field 'value': it ends too early (byte 15)"),
        (["null", "int"], encode_varint(2), "field 'value': its union has no such branch (byte 6)"),
        (["null", "int"], encode_varint(-1), "field 'value': its union has no such branch (byte 6)"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, b"\x02", "field 'value': its enum has no such symbol (byte 6)"),
        (LIST, encode_varint(2**60), "field 'value': it has more items than bytes (byte 14)"),
        (LIST, encode_varint(-(2**63)) + b"\x00", "field 'value': it has more items than bytes (byte 16)"),
        (LIST, encode_varint(-1) + encode_varint(-5), "field 'value': a length is negative (byte 7)"),
        (LIST, encode_varint(1) + b"\x02", "field 'value': it ends too early (byte 7)"),
        (LIST, encode_varint(2) + b"\x02", "field 'value[]': it ends too early (byte 7)"),
        (record(("t", "string")), b"\x02\xff", "field 'value.t': it is not UTF-8"),
        (
            record(("t", {"type": "array", "items": record(("s", "string"), name="I")})),
            b"\x04\x02a\x02\xff\x00",
            "field 'value.t[].s': it is not UTF-8",
        ),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 3, "scale": 0},
            b"\x04\x03\xe8",
            "field 'value': it has more than 3 digits",
        ),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 0},
            b"\x22\x01" + b"\x00" * 16,
            "field 'value': it has more than 38 digits",
        ),
        (
            {"type": "long", "logicalType": "time-micros"},
            encode_varint(86_400_000_000),
            "field 'value': it is not a time of day",
        ),
        ({"type": "int", "logicalType": "time-millis"}, encode_varint(-1), "field 'value': it is not a time of day"),
        (
            {"type": "long", "logicalType": "timestamp-millis"},
            encode_varint(2**62),
            "field 'value': 64 bits do not hold the time in the reader's unit (byte 15)",
        ),
        (
            {"type": "fixed", "name": "D", "size": 12, "logicalType": "duration"},
            b"\x01" + b"\x00" * 11,
            "field 'value': it has months, whose days vary, or is longer than an interval of days can be",
        ),
    ],
)  # fmt: skip
def test_a_row_that_is_no_value_is_null_with_its_reason(schema: Any, content: bytes, reason: str) -> None:
    assert only(schema, content) == reason


@pytest.mark.parametrize("content", [b"", b"\x00", b"\x00\x00\x00\x07", b"\x01" + b"\x00\x00\x00\x07\x02", b"{}plain"])
def test_bytes_that_are_no_frame(content: bytes) -> None:
    found = decode({7: "int"}, [framed(b"\x02"), content, None, framed(b"\x04")])
    assert found.rows == [1, None, None, 2]
    assert (found.bad, found.first) == (1, (1, NO_FRAME))


def test_an_id_that_is_unknown() -> None:
    found = decode({7: "int"}, [framed(b"\x02", 8), framed(b"\x02"), framed(b"\x02", 8)])
    assert found.rows == [None, 1, None]
    assert (found.bad, found.first) == (2, (0, "there is no schema 8"))


def test_a_writers_schema_that_the_reader_does_not_take() -> None:
    found = decode({7: "int", 8: "string"}, [framed(b"\x02"), framed(b"\x02a", 8)])
    assert found.rows == [1, None]
    assert found.first == (1, "field 'value' was written as string, which the reader's schema does not take: int")


def test_blocks_with_their_sizes_and_a_skipped_array() -> None:
    block = encode_varint(-2) + encode_varint(2) + b"\x02\x04" + encode_varint(1) + b"\x06\x00"
    assert decode(LIST, [block]).rows == [[1, 2, 3]]
    schema = record(("a", LIST), ("b", "int"))
    reader = record(("b", "int"))
    assert decode(schema, [block + b"\x0a"], reader).rows == [{"b": 5}]
    assert "ends too early" in only(schema, encode_varint(-2) + encode_varint(2**62) + b"\x00\x02", reader)


def test_items_without_bytes_are_bounded() -> None:
    nulls = {"type": "array", "items": "null"}
    assert decode(nulls, [encode_varint(900) + b"\x00"]).rows == [[None] * 900]
    assert "more items than bytes" in only(nulls, encode_varint(5000) + b"\x00")


def test_a_schema_that_refers_to_itself_is_skipped_up_to_a_depth() -> None:
    reader = record(("n", "int"))
    whole = b"\x02" * 63 + b"\x00" + b"\x0a" * 64
    assert decode(TREE, [whole], reader).rows == [{"n": 5}]
    assert "nested too deeply" in only(TREE, b"\x02" * 100_000, reader)


@pytest.mark.parametrize("schema", [LIST, "string", {"type": "map", "values": "null"}, ["null", "bytes"]])
def test_memory_is_bounded_by_the_rows(schema: Any) -> None:
    rows: list[bytes | None] = [
        (b"\x02" if isinstance(schema, list) else b"") + encode_varint(2**40) + b"\x02" * 50
    ] * 200
    tracemalloc.start()
    try:
        found = decode(schema, rows)
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()
    assert found.bad == 200


def test_a_constant_that_would_need_gibibytes_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    from spark_producer.kernel import decoded_avro

    monkeypatch.setattr(decoded_avro, "MAX_OFFSET", 1000)
    enum = {"type": "enum", "name": "E", "symbols": ["A" * 500]}
    assert len(decode(enum, [b"\x00"] * 2).rows) == 2
    with pytest.raises(RecordError, match="Decode fewer rows"):
        decode(enum, [b"\x00"] * 3)


@pytest.mark.slow
@settings(max_examples=500)
@given(st.data(), records())
def test_damaged_rows_do_not_touch_those_beside_them(data: st.DataObject, case: Any) -> None:
    schema, values = case
    (good, row) = written(schema, [data.draw(values), data.draw(values)])
    damaged = bytearray(row)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(damaged)))
        damaged[at : at + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=3))
    expected = decode(schema, [good]).rows[0]
    found = decode(schema, [good, bytes(damaged), good, None, bytes(damaged)])
    assert [found.array[row].as_py() for row in (0, 2, 3)] == [expected, expected, None]
    assert found.bad in (0, 2)


@given(st.lists(st.sampled_from(["long", "int", "null row", "unknown", "no frame"]), max_size=12))
def test_ids_that_change_inside_a_batch_are_put_back_in_order(rows: list[str]) -> None:
    writers = {1: record(("a", "int"), ("x", "string")), 2: record(("a", "long"))}
    reader = record(("a", "long"), {"name": "x", "type": ["null", "string"], "default": None})
    values: dict[str, tuple[bytes | None, Any]] = {
        "int": (framed(b"\x02\x02t", 1), {"a": 1, "x": "t"}),
        "long": (framed(b"\x04", 2), {"a": 2, "x": None}),
        "null row": (None, None),
        "unknown": (framed(b"\x04", 3), None),
        "no frame": (b"\x05", None),
    }
    found = decode(writers, [values[each][0] for each in rows], reader)
    assert found.rows == [values[each][1] for each in rows]
    assert found.bad == sum(each in ("unknown", "no frame") for each in rows)


def test_a_slice_of_a_column_is_decoded_alone() -> None:
    from spark_producer.schemas.decoded_column import ColumnDecoder
    from spark_producer.schemas.reader_types import TypeRules

    decoder = ColumnDecoder('"int"', lambda _: '"int"', "value", TypeRules())
    column = pa.array([b"bad", framed(b"\x02"), None, framed(b"\x04"), b"bad"], pa.large_binary())
    found = decoder.decode(column.slice(1, 3))
    values: Any = found.values
    assert values.to_pylist() == [1, None, 2]
    assert found.bad_rows == 0
