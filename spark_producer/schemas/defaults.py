"""The bytes of a field that a column lacks: the encoded default of its schema, or null (Avro 1.12, Complex Types)."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from spark_producer.errors import SchemaError
from spark_producer.kernel.varint import encode_varint
from spark_producer.schemas.names import NAMED, PRIMITIVE, NamedTypes, full_name, resolve_name, space_of
from spark_producer.schemas.types import Schema

MAX_FILLED_BYTES = 16_384
"""Maximum bytes that missing fields add to a row; a hostile schema could make it any number."""

_MAX_STEPS = 10_000
"""Maximum values within one default; records that contain each other twice double it at each level."""


def is_optional(field: dict[str, Any]) -> bool:
    """Return whether the column may lack a field of a record, which has a default or is nullable."""
    return "default" in field or _null_mark(field["type"]) is not None


def encoded_default(field: dict[str, Any], space: str, named: NamedTypes, path: str) -> bytes:
    """Return the encoded default of an optional field, or its encoded null if it has no default.

    Raises:
        SchemaError: its default is not a value of its type, or is too large.
    """
    if "default" not in field:
        return _null_mark(field["type"]) or b""
    try:
        found = _Encoder(named).encode(field["type"], field["default"], space)
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, struct.error):
        raise SchemaError(
            f"field '{path}': the schema's default is not a value of its type. Add the field to the column"
        ) from None
    if len(found) > MAX_FILLED_BYTES:
        raise SchemaError(
            f"field '{path}': the schema's default has {len(found)} bytes, more than {MAX_FILLED_BYTES}. "
            "Add the field to the column"
        )
    return found


def _null_mark(schema: Schema) -> bytes | None:
    """Return the bytes of null, or None if the type is not nullable."""
    while isinstance(schema, dict) and isinstance(schema.get("type"), str | dict | list):
        schema = schema["type"]
    if schema == "null":
        return b""
    if isinstance(schema, list):
        for index, branch in enumerate(schema):
            if _null_mark(branch) == b"":
                return encode_varint(index)
    return None


class _Encoder:
    """Encodes one default, which the schema has as JSON."""

    def __init__(self, named: NamedTypes) -> None:
        self._named = named
        self._steps = 0

    def encode(self, schema: Any, value: Any, space: str) -> bytes:
        self._steps += 1
        if self._steps > _MAX_STEPS:
            raise ValueError("too large")
        if isinstance(schema, list):
            return self._branch(schema, value, space)
        if isinstance(schema, str):
            if schema in PRIMITIVE:
                return _PRIMITIVES[schema](value)
            found = resolve_name(schema, space, self._named)
            if found is None:
                raise ValueError("no such type")
            schema, space = found
        elif isinstance(schema["type"], str) and schema["type"] in NAMED:
            space = space_of(full_name(schema, space))
        return self._complex(schema["type"], schema, value, space)

    def _branch(self, branches: list[Any], value: Any, space: str) -> bytes:
        """Return a value encoded by the first branch of a union that accepts it; before Avro 1.12 only the first one counted."""
        for index, branch in enumerate(branches):
            try:
                return encode_varint(index) + self.encode(branch, value, space)
            except (ValueError, TypeError, KeyError, AttributeError, OverflowError, struct.error):
                continue
        raise ValueError("no branch")

    def _complex(self, form: Any, schema: dict[str, Any], value: Any, space: str) -> bytes:
        if form in ("record", "error"):
            value = _checked(dict, value)
            parts = [
                self.encode(each["type"], value[each["name"]] if each["name"] in value else each["default"], space)
                for each in schema["fields"]
            ]
            return b"".join(parts)
        if form == "enum":
            return encode_varint(schema["symbols"].index(_checked(str, value)))
        if form == "fixed":
            found: bytes = _checked(str, value).encode("latin-1")
            if len(found) != schema["size"]:
                raise ValueError("another length")
            return found
        if form == "array":
            return _block([self.encode(schema["items"], each, space) for each in _checked(list, value)])
        if form == "map":
            pairs = _checked(dict, value).items()
            return _block([_text(key) + self.encode(schema["values"], each, space) for key, each in pairs])
        return self.encode(form, value, space)


def _block(items: list[bytes]) -> bytes:
    return (encode_varint(len(items)) + b"".join(items) if items else b"") + b"\x00"


def _checked(kind: type, value: Any) -> Any:
    if type(value) is not kind:  # bool is a subclass of int
        raise TypeError("another type")
    return value


def _integer(bits: int) -> Callable[[Any], bytes]:
    def encode(value: Any) -> bytes:
        if not -(1 << (bits - 1)) <= _checked(int, value) < 1 << (bits - 1):
            raise ValueError("out of range")
        return encode_varint(value)

    return encode


def _number(form: str) -> Callable[[Any], bytes]:
    def encode(value: Any) -> bytes:
        return struct.pack(form, value if type(value) is float else _checked(int, value))

    return encode


def _text(value: Any) -> bytes:
    content: bytes = _checked(str, value).encode()
    return encode_varint(len(content)) + content


def _bytes(value: Any) -> bytes:
    content: bytes = _checked(str, value).encode("latin-1")
    return encode_varint(len(content)) + content


def _null(value: Any) -> bytes:
    _checked(type(None), value)
    return b""


_PRIMITIVES: dict[str, Callable[[Any], bytes]] = {
    "null": _null,
    "boolean": lambda value: bytes((_checked(bool, value),)),
    "int": _integer(32),
    "long": _integer(64),
    "float": _number("<f"),
    "double": _number("<d"),
    "bytes": _bytes,
    "string": _text,
}
