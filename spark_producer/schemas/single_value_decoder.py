"""Decodes single Avro values by their schema, for commands that show a topic (Avro 1.12 specification, Binary Encoding)."""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable
from decimal import Context, Decimal
from typing import Any

from spark_producer.errors import CorruptRecord
from spark_producer.schemas.names import NAMED, NamedTypes, full_name, named_types, resolve_name, space_of
from spark_producer.schemas.types import Schema

_MAX_DEPTH = 100
"""Maximum nesting of a value; otherwise a few bytes could recurse without end by a schema that refers to itself."""

_ITEMS_WITHOUT_BYTES = 1000
"""Maximum values without bytes in one value, such as null and empty records, which arrays and records multiply."""

_MAX_NAMES = 16 << 20
"""Maximum characters of field names and symbols in one value; those of a schema, to which few bytes refer, can be megabytes."""

_MAX_DECIMAL_BYTES = 1024
"""Maximum bytes of a decimal of any precision; the time of formatting is quadratic in the number of digits."""


def read_value(schema: Schema, content: bytes, named: NamedTypes | None = None) -> Any:
    """Return the value of `content` in JSON's types, with decimals as Decimal and bytes as bytes.

    `named` has the types that the schema defines, for callers that decode many values.

    Raises:
        CorruptRecord: `content` is not one value of the schema.
    """
    reader = _Reader(content, named_types(schema) if named is None else named)
    try:
        found = reader.read(schema, "", 0)
    except (struct.error, ArithmeticError, IndexError, KeyError, TypeError, ValueError) as error:
        why = reader.why or type(error).__name__
        raise CorruptRecord(f"the value does not fit its Avro schema: {why} at byte {reader.at}") from None
    if reader.at != len(content):
        raise CorruptRecord(f"the value does not fit its Avro schema: {len(content) - reader.at} bytes follow it")
    return found


class _Reader:
    """A position in the bytes of a value, and the bounds that are left. `why` is the reason of a refusal, if it is known."""

    def __init__(self, content: bytes, named: NamedTypes) -> None:
        self.at = 0
        self.why = ""
        self._content = content
        self._named = named
        self._items_left = len(content) + _ITEMS_WITHOUT_BYTES
        """Maximum items that are left: all others have at least one byte."""
        self._without_bytes = 0
        self._names = 0

    def read(self, schema: Schema, space: str, depth: int) -> Any:
        if depth > _MAX_DEPTH:
            raise ValueError("nested too deeply")
        if isinstance(schema, list):
            return self.read(schema[self._index(len(schema))], space, depth + 1)
        first = self.at
        if isinstance(schema, str) and schema in _PLAIN:
            found = _PLAIN[schema](self)
        else:
            if isinstance(schema, str):
                known = resolve_name(schema, space, self._named)
                if known is None:
                    raise KeyError(schema)
                schema, space = known
            elif isinstance(schema["type"], str) and schema["type"] in NAMED:
                space = space_of(full_name(schema, space))
            found = self._complex(schema["type"], schema, space, depth + 1)
        self._without_bytes += self.at == first
        if self._without_bytes > _ITEMS_WITHOUT_BYTES:
            raise self._refusal("too many values without bytes")
        return found

    def _refusal(self, why: str) -> ValueError:
        self.why = why
        return ValueError(why)

    def _count_names(self, *names: str) -> None:
        self._names += sum(map(len, names))
        if self._names > _MAX_NAMES:
            raise self._refusal("too many and too long names")

    def _complex(self, form: Any, schema: dict[str, Any], space: str, depth: int) -> Any:
        if form in ("record", "error"):
            self._count_names(*(field["name"] for field in schema["fields"]))
            return {field["name"]: self.read(field["type"], space, depth) for field in schema["fields"]}
        if form == "enum":
            symbol = schema["symbols"][self._index(len(schema["symbols"]))]
            self._count_names(symbol)
            return symbol
        if form == "array":
            return [self.read(schema["items"], space, depth) for _ in self._items()]
        if form == "map":
            return {self.text(): self.read(schema["values"], space, depth) for _ in self._items()}
        found = self.take(schema["size"]) if form == "fixed" else self.read(form, space, depth)
        return self._logical(schema, found) if isinstance(found, bytes) else found

    def _logical(self, schema: dict[str, Any], found: bytes) -> Any:
        """Return bytes or a fixed value converted by its logical type, if it has one."""
        logical = schema.get("logicalType")
        if logical == "decimal":
            precision = schema.get("precision")
            if type(precision) is not int or precision < 1:
                return found  # an invalid logical type is ignored, as the specification says
            return self._decimal(found, schema.get("scale", 0), precision)
        if logical == "big-decimal":
            inner = _Reader(found, {})
            number, scale = inner.take(inner.long()), inner.long()
            if inner.at != len(found):
                raise self._refusal("bytes after a decimal")
            return self._decimal(number, scale, None)
        if logical == "uuid" and len(found) == 16:
            return str(uuid.UUID(bytes=found))
        return found

    def _decimal(self, found: bytes, scale: int, precision: int | None) -> Decimal:
        """Return the decimal of big-endian bytes, of which leading sign bytes do not count."""
        sign = b"\xff" if found[:1] >= b"\x80" else b"\x00"
        found = sign + found.lstrip(sign)
        needed = _MAX_DECIMAL_BYTES if precision is None else min(_MAX_DECIMAL_BYTES, precision * 5 // 12 + 1)
        if len(found) > needed + 1:
            raise self._refusal(f"a decimal of {len(found) - 1} bytes, more than {needed}")
        number = int.from_bytes(found, "big", signed=True)
        return Decimal(number).scaleb(-scale, Context(prec=max(1, len(str(number)))))

    def _items(self) -> Any:
        """Yield once for each item of all blocks."""
        while count := self.long():
            if count < 0:
                count = -count
                self.long()  # the bytes of the block
            self._items_left -= count
            if self._items_left < 0:
                raise ValueError("more items than bytes")
            yield from range(count)

    def _index(self, count: int) -> int:
        index = self.long()
        if not 0 <= index < count:
            raise ValueError("no such branch")
        return index

    def take(self, length: int) -> bytes:
        if not 0 <= length <= len(self._content) - self.at:
            raise ValueError("more bytes than there are")
        self.at += length
        return self._content[self.at - length : self.at]

    def long(self) -> int:
        found = shift = 0
        while True:
            byte = self.take(1)[0]
            found |= (byte & 0x7F) << shift
            if byte < 0x80:
                return (found >> 1) ^ -(found & 1)
            shift += 7
            if shift > 63:
                raise ValueError("a number of more than 64 bits")

    def text(self) -> str:
        return self.take(self.long()).decode()

    def number(self, form: str) -> float:
        found: float = struct.unpack(form, self.take(struct.calcsize(form)))[0]
        return found


_PLAIN: dict[str, Callable[[_Reader], Any]] = {
    "null": lambda _: None,
    "boolean": lambda reader: reader.take(1) != b"\x00",
    "int": _Reader.long,
    "long": _Reader.long,
    "float": lambda reader: reader.number("<f"),
    "double": lambda reader: reader.number("<d"),
    "bytes": lambda reader: reader.take(reader.long()),
    "string": _Reader.text,
}
