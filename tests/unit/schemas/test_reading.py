from __future__ import annotations

import io
import json
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_producer.errors import CorruptRecord
from spark_producer.kernel.varint import encode_varint
from spark_producer.schemas.framing import prefix_of
from spark_producer.schemas.looking import AvroViewer
from spark_producer.schemas.reading import read_value
from spark_producer.schemas.types import avro_schema
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
        with pytest.raises(CorruptRecord, match="no value of its Avro schema"):
            read_value(NODE, wrong)
    with pytest.raises(CorruptRecord):
        read_value({"type": "array", "items": "null"}, b"\xfe\xff\xff\xff\x0f\x00")


def test_arrays_of_what_has_no_bytes_do_not_multiply() -> None:
    schema = {"type": "array", "items": {"type": "array", "items": "null"}}
    assert read_value(schema, b"\x04\x06\x00\x02\x00\x00") == [[None] * 3, [None]]
    rows = 3000
    content = encode_varint(rows) + (encode_varint(rows) + b"\x00") * rows + b"\x00"
    with pytest.raises(CorruptRecord, match="no value of its Avro schema"):
        read_value(schema, content)


@pytest.mark.parametrize("scale", [10**9, -(10**9), -2_000_000])
def test_a_decimal_whose_scale_is_none_is_told_in_place_of_the_value(scale: int) -> None:
    schema = {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": scale}
    viewer = AvroViewer(lambda _: json.dumps(schema))
    assert (viewer.view(prefix_of(7) + b"\x02\x05") or b"").startswith(b"<schema 7: no value of its Avro schema: ")


@given(st.binary(max_size=40), columns())
def test_no_bytes_raise_anything_else(content: bytes, case: tuple[pa.DataType, list[Any]]) -> None:
    schema = avro_schema(case[0], "value")
    try:
        read = read_value(schema, content)
    except CorruptRecord:
        return
    assert repr(read_value(schema, content)) == repr(read)


def test_a_viewer_asks_once_for_each_schema_and_leaves_other_bytes_alone() -> None:
    asked: list[int] = []

    def schema_of(schema_id: int) -> str:
        asked.append(schema_id)
        return json.dumps({"type": "record", "name": "A", "fields": [{"name": "s", "type": ["bytes", "string"]}]})

    viewer = AvroViewer(schema_of)
    assert viewer.view(None) is None
    assert viewer.view(b"plain") == b"plain"
    assert viewer.view(prefix_of(7) + b"\x02\x04\xc3\xa4") == '{"s": "ä"}'.encode()
    assert viewer.view(prefix_of(7) + b"\x00\x02\xff") == b'{"s": "0xff"}'
    assert viewer.view(prefix_of(7) + b"\x06") == b"<schema 7: no value of its Avro schema: ValueError at byte 1>"
    assert asked == [7]
