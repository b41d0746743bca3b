"""Targets: values in the formats of a Schema Registry, and the schemas themselves. Each value stands between two good ones."""

from __future__ import annotations

import contextlib
import functools
import json
from collections.abc import Callable, Sequence
from decimal import Decimal
from functools import partial
from typing import Any
from unittest import mock

import pyarrow as pa
from google.protobuf.descriptor_pb2 import FileDescriptorSet

from spark_producer.errors import PyProducerError
from spark_producer.schemas import decoded_column as avro_columns
from spark_producer.schemas.decoded_column import ColumnDecoder
from spark_producer.schemas.json_schema.column_reader import json_schema_reader
from spark_producer.schemas.protobuf import decoded_column as protobuf_columns
from spark_producer.schemas.protobuf.compiler import file_of
from spark_producer.schemas.protobuf.decoded_column import ProtobufDecoder
from spark_producer.schemas.protobuf.message_types import program_of
from spark_producer.schemas.references import UnknownSchema
from tests.fuzz.target import Target, single
from tests.unit.schemas.avro_schemas import written
from tests.unit.schemas.decoding import RULES, decode_by_both, framed
from tests.unit.schemas.judging import record
from tests.unit.schemas.protobuf import judging as protobuf
from tests.unit.schemas.protobuf.test_bad_input import schema as protobuf_message

AVRO: dict[int, Any] = {
    1: record(
        ("id", "long"),
        ("name", "string"),
        ("tags", {"type": "array", "items": "string"}),
        ("by", {"type": "map", "values": ["null", "double"]}),
        ("state", {"type": "enum", "name": "S", "symbols": ["A", "B"]}),
        ("mac", {"type": "fixed", "name": "M", "size": 6}),
        ("price", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}),
    ),
    2: record(
        ("gone", {"type": "array", "items": "string"}),
        ("id", "int"),
        ("name", "string"),
        ("tags", {"type": "array", "items": "string"}),
        ("by", {"type": "map", "values": ["null", "double"]}),
        ("state", {"type": "enum", "name": "S", "symbols": ["A", "B"]}),
        ("mac", {"type": "fixed", "name": "M", "size": 6}),
        ("price", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}),
    ),
}
"""Two writers' schemas by their ids; the first one is the reader's, too."""
JSON_SCHEMA: Any = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "d": {"type": "number"},
        "t": {"type": "boolean"},
        "s": {"type": "string"},
        "day": {"type": "string", "format": "date"},
        "at": {"type": "string", "format": "date-time"},
        "b": {"type": "string", "contentEncoding": "base64"},
        "l": {"type": "array", "items": {"type": "integer"}},
        "m": {"type": "object", "additionalProperties": {"type": "string"}},
    },
}
GOOD_JSON = (
    b'{"id":5,"d":1.5,"t":true,"s":"text \\u00e4","day":"2026-01-31","at":"2026-01-31T23:59:59Z",'
    b'"b":"AAEC","l":[1,2],"m":{"k":"v"}}'
)
JSON_FRAMES = [framed(GOOD_JSON), framed(b"{}")]
JSON_TOKENS = (b'"', b"\\", b"\\ud800", b"{", b"[", b"]", b"}", b"null", b"1e999", b"-0", b"NaN", b"\xff", b"[" * 200)
SCHEMA_TOKENS = (
    *JSON_TOKENS,
    *(b'"type"', b'"items"', b'"fields"', b'"$ref"', b'"#/properties/id"', b'"oneOf"', b'"allOf"', b'"logicalType"'),
    *(b'"decimal"', b'"precision"', b'"scale"', b'"union"', b'"record"', b'"name"', b'"symbols"', b'"size"', b'"R"'),
)


def _between_good_rows(decode: Callable[[Any], Any], good: bytes, rows: Sequence[bytes]) -> None:
    """Damaged rows leave those beside them alone, and the column is valid."""
    found: Any = decode(pa.array([*(each for row in rows for each in (good, row)), good, None], pa.binary()))
    array: Any = found.values
    array.validate(full=True)
    assert found.bad_rows <= len(rows)
    assert array[len(array) - 1].as_py() is None
    right = array.take(pa.array(range(0, len(array), 2)))
    assert right.equals(pa.concat_arrays([array.slice(0, 1)] * len(right)))
    assert array[0].is_valid


def _avro_schema(number: int | str) -> str:
    if not isinstance(number, int) or number not in AVRO:
        raise UnknownSchema(f"there is no schema {number}")
    return json.dumps(AVRO[number])


@functools.cache
def _avro_decoder() -> ColumnDecoder:
    return ColumnDecoder(_avro_schema(1), _avro_schema, "value", RULES)


@functools.cache
def _avro_frames() -> list[bytes]:
    rows: list[Any] = [
        {
            "id": number,
            "name": "n" * number,
            "tags": ["a", "b"][:number],
            "by": {"k": 0.5, "n": None},
            "state": "B",
            "mac": bytes(6),
            "price": Decimal(number),
            "gone": ["x", "y"],
        }
        for number in range(3)
    ]
    return [framed(content, number) for number, schema in AVRO.items() for content in written(schema, rows)]


def _avro(rows: Sequence[bytes]) -> None:
    with mock.patch.object(avro_columns, "decode_avro", decode_by_both):
        _between_good_rows(_avro_decoder().decode, _avro_frames()[0], rows)


@functools.cache
def _protobuf_decoder() -> ProtobufDecoder:
    message = protobuf_message()
    return ProtobufDecoder(program_of(message, "value", 0), message.full_name, None)


GOOD_MESSAGE = protobuf.HEAD + b"\x08\x05"
MESSAGES = (
    GOOD_MESSAGE,
    protobuf.HEAD + b"\x12\x04text\x1a\x05\x08\x01\x12\x01a\x22\x02\x08\x02\x22\x03\x12\x01b",
    protobuf.HEAD + b"\x29" + bytes(8) + b"\x35" + bytes(4) + b"\x3a\x10" + bytes(16) + b"\x43\x08\x09\x44\xf8\x01\x07",
    b"\x00\x00\x00\x00\x07\x04\x00\x02\x08\x05",
)


def _protobuf(rows: Sequence[bytes]) -> None:
    with mock.patch.object(protobuf_columns, "decode_protobuf", protobuf.decode_by_both):
        _between_good_rows(_protobuf_decoder().decode, GOOD_MESSAGE, rows)


@functools.cache
def _json_decoder() -> Any:
    return json_schema_reader("value", json.dumps(JSON_SCHEMA), "PERMISSIVE", {}, None, validate=False).decoder()


def _json(rows: Sequence[bytes]) -> None:
    _between_good_rows(_json_decoder().decode, framed(GOOD_JSON), rows)


def _schemas() -> list[bytes]:
    return [json.dumps(each).encode() for each in (*AVRO.values(), JSON_SCHEMA)]


def _schema(data: bytes) -> None:
    """The text of a schema, which a registry sends: of Avro, and of JSON Schema."""
    text = data.decode("utf-8", "replace")
    with contextlib.suppress(PyProducerError):
        ColumnDecoder(text, _avro_schema, "value", RULES)
    with contextlib.suppress(PyProducerError):
        json_schema_reader("value", text, "PERMISSIVE", {}, None, validate=False)
    with contextlib.suppress(PyProducerError):
        ColumnDecoder(_avro_schema(1), lambda _: text, "value", RULES).decode(
            pa.array([_avro_frames()[0]], pa.binary())
        )


def _descriptors() -> list[bytes]:
    file: Any = protobuf_message().file
    found = FileDescriptorSet()
    file.CopyToProto(found.file.add())
    return [found.SerializeToString()]


def _descriptor(data: bytes) -> None:
    with contextlib.suppress(PyProducerError):
        file = file_of(data, "the schema")
        for message in file.message_types_by_name.values():
            program_of(message, "value", 1)


TARGETS = (
    Target("avro", "values of Avro in Confluent's frames, by both kernels", _avro_frames, _avro),
    Target("protobuf", "values of Protobuf in Confluent's frames, by both kernels", partial(list, MESSAGES), _protobuf),
    Target("json", "values of JSON in Confluent's frames", partial(list, JSON_FRAMES), _json, JSON_TOKENS),
    single(
        "schemas",
        "schemas of Avro and JSON Schema that a registry sends",
        _schemas,
        _schema,
        SCHEMA_TOKENS,
    ),
    single("descriptors", "compiled schemas of Protobuf", _descriptors, _descriptor),
)
