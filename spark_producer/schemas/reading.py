"""The reader of single Avro values by their schema, for people who look at a topic (Avro 1.12 specification, Binary Encoding)."""

from __future__ import annotations

import struct
from collections.abc import Callable
from decimal import Context, Decimal
from typing import Any

from spark_producer.errors import CorruptRecord
from spark_producer.schemas.plan import full_name
from spark_producer.schemas.types import Schema

_DEEPEST = 100
"""How deeply a value may be nested: a schema that refers to itself would else let a few bytes recurse without an end."""

_ITEMS_WITHOUT_BYTES = 1000
"""The most items of one value that may have no bytes, as null and empty records: arrays of arrays of these multiply."""


def read_value(schema: Schema, content: bytes) -> Any:
    """Return the value that `content` holds, in the types that JSON has, decimals as Decimal and bytes as bytes.

    Raises:
        CorruptRecord: These are not the bytes of one value of the schema.
    """
    reader = _Reader(content)
    try:
        found = reader.read(schema, "", 0)
    except (struct.error, ArithmeticError, IndexError, KeyError, TypeError, ValueError) as error:
        raise CorruptRecord(f"no value of its Avro schema: {type(error).__name__} at byte {reader.at}") from None
    if reader.at != len(content):
        raise CorruptRecord(f"no value of its Avro schema: {len(content) - reader.at} bytes are left behind it")
    return found


class _Reader:
    """Where in the bytes a reader is, and the types that were named so far."""

    def __init__(self, content: bytes) -> None:
        self.at = 0
        self._content = content
        self._named: dict[str, dict[str, Any]] = {}
        self._items_left = len(content) + _ITEMS_WITHOUT_BYTES
        """Every other item has a byte of its own."""

    def read(self, schema: Schema, space: str, depth: int) -> Any:
        if depth > _DEEPEST:
            raise ValueError("nested too deeply")
        if isinstance(schema, list):
            return self.read(schema[self._index(len(schema))], space, depth + 1)
        if isinstance(schema, str):
            if schema in _PLAIN:
                return _PLAIN[schema](self)
            full = schema if "." in schema or not space else f"{space}.{schema}"
            known = self._named.get(full) or self._named[schema]
            return self.read(known, full.rpartition(".")[0], depth + 1)
        form = schema["type"]
        if isinstance(form, str) and form in ("record", "error", "enum", "fixed"):
            full = full_name(schema, space)
            self._named[full], space = schema, full.rpartition(".")[0]
        return self._complex(form, schema, space, depth + 1)

    def _complex(self, form: Any, schema: dict[str, Any], space: str, depth: int) -> Any:
        if form in ("record", "error"):
            return {field["name"]: self.read(field["type"], space, depth) for field in schema["fields"]}
        if form == "enum":
            return schema["symbols"][self._index(len(schema["symbols"]))]
        if form == "array":
            return [self.read(schema["items"], space, depth) for _ in self._items()]
        if form == "map":
            return {self.text(): self.read(schema["values"], space, depth) for _ in self._items()}
        found = self.take(schema["size"]) if form == "fixed" else self.read(form, space, depth)
        if schema.get("logicalType") == "decimal" and isinstance(found, bytes):
            number = int.from_bytes(found, "big", signed=True)
            return Decimal(number).scaleb(-schema.get("scale", 0), Context(prec=max(1, len(str(number)))))
        return found

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
        place = self.long()
        if not 0 <= place < count:
            raise ValueError("no such branch")
        return place

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
