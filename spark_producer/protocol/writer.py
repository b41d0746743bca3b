"""The encoding of message bodies: schemas are compiled into writers, one for each message and version.

Every wire type can be written, flexible (KIP-482) or not. Payloads are never copied: they are listed by reference between
merged small pieces.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, TypeAlias

from spark_producer.errors import LocalProtocolError
from spark_producer.protocol.fields import (
    MAX_STRING_BYTES,
    Array,
    Buffer,
    Field,
    Message,
    Struct,
    WireType,
    runs,
    tagged_fields,
)

Writer: TypeAlias = Callable[["ByteSink", Any], None]

_NULL = -1
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_ONE_BYTE = tuple(bytes((value,)) for value in range(256))


class ByteSink:
    """The bytes written so far: merged small pieces, and payloads by reference between them."""

    __slots__ = ("_buffers", "_size", "head")

    def __init__(self) -> None:
        self.head = bytearray()
        """The small piece that grows; writers append to it."""
        self._buffers: list[Buffer] = []
        self._size = 0
        """The bytes of `_buffers`."""

    @property
    def size(self) -> int:
        """The number of bytes written so far."""
        return self._size + len(self.head)

    def by_reference(self, payload: Buffer, size: int) -> None:
        """List `payload` of `size` bytes without copying it."""
        if self.head:
            self._buffers.append(self.head)
            self._size += len(self.head)
            self.head = bytearray()
        self._buffers.append(payload)
        self._size += size

    def buffers(self) -> list[Buffer]:
        """Return everything written so far, in order; the sink must not be used after that."""
        return [*self._buffers, self.head] if self.head else self._buffers


def size_of(buffer: Buffer) -> int:
    """Return the bytes of `buffer`, whatever the item size of a memoryview is."""
    return buffer.nbytes if isinstance(buffer, memoryview) else len(buffer)


def write_body(schema: Struct[Message], version: int, flexible: bool, body: Message, sink: ByteSink) -> None:
    """Append `body` to `sink`.

    Raises:
        LocalProtocolError: A value does not fit its wire type, or is null where the version has no null.
    """
    try:
        _writer(schema, version, flexible)(sink, body)
    except (struct.error, UnicodeError, TypeError, IndexError) as error:
        raise LocalProtocolError(f"{schema.name} cannot be written in version {version}: {error}") from error


def unsigned_varint(value: int) -> bytes:
    """Return the LEB128 of `value`, which is not negative."""
    if value < 0x80:
        return _ONE_BYTE[value]
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _write_length(flexible: bool, short: bool) -> Callable[[int], bytes]:
    """Return a function that writes a length; -1 is null. If `short`, it is an int16 where not flexible, as for strings."""
    if flexible:
        return lambda length: unsigned_varint(length + 1)
    return _INT16.pack if short else _INT32.pack


@cache
def _writer(schema: Struct[Any], version: int, flexible: bool) -> Writer:
    steps = [
        (index, _run_writer(part) if isinstance(part, str) else _field_writer(part, version, flexible))
        for index, part in runs(schema, version)
    ]
    write_tags = _tags_writer(schema, version) if flexible else None

    def write(sink: ByteSink, value: tuple[Any, ...]) -> None:
        for index, write_part in steps:
            write_part(sink, value[index])
        if write_tags is not None:
            write_tags(sink, value)

    return write


def _tags_writer(schema: Struct[Any], version: int) -> Writer:
    """Return a writer of the tag section, which holds only tagged fields that differ from their defaults, as in Java."""
    tagged = [
        (tag, index, field.default, _field_writer(field, version, flexible=True))
        for tag, index, field in tagged_fields(schema, version)
    ]

    def write(sink: ByteSink, value: tuple[Any, ...]) -> None:
        present = [item for item in tagged if value[item[1]] != item[2]]
        sink.head += unsigned_varint(len(present))
        for tag, index, _, write_field in present:
            inner = ByteSink()
            write_field(inner, value[index])
            data = b"".join(inner.buffers())
            sink.head += unsigned_varint(tag) + unsigned_varint(len(data)) + data

    return write


def _run_writer(form: str) -> Writer:
    pack = struct.Struct(form).pack

    def write(sink: ByteSink, values: Sequence[Any]) -> None:
        sink.head += pack(*values)

    return write


def _field_writer(field: Field, version: int, flexible: bool) -> Writer:
    nullable = field.nullable(version)
    if isinstance(field.type, Struct):
        return _writer(field.type, version, flexible)
    if isinstance(field.type, Array):
        return _array_writer(field.type, version, flexible, nullable)
    if field.type is WireType.RECORDS:
        return _records_writer(flexible, nullable)
    if field.type is WireType.STRING:
        return _string_writer(flexible, nullable)
    return _scalar_writer(field.type)


def _scalar_writer(wire: WireType) -> Writer:
    pack = struct.Struct(">" + wire.value).pack

    def write(sink: ByteSink, value: Any) -> None:
        sink.head += pack(value)

    return write


def _string_writer(flexible: bool, nullable: bool) -> Writer:
    length = _write_length(flexible, short=True)

    def write(sink: ByteSink, value: str | None) -> None:
        if value is None:
            _allow_null(nullable, "a string")
            sink.head += length(_NULL)
        else:
            data = value.encode()
            if len(data) > MAX_STRING_BYTES:
                raise TypeError(f"a string has {len(data)} bytes, more than {MAX_STRING_BYTES}")
            sink.head += length(len(data)) + data

    return write


def _records_writer(flexible: bool, nullable: bool) -> Writer:
    length = _write_length(flexible, short=False)

    def write(sink: ByteSink, value: Buffer | Sequence[Buffer] | None) -> None:
        if value is None:
            _allow_null(nullable, "a field of bytes")
            sink.head += length(_NULL)
            return
        payloads = [value] if isinstance(value, bytes | bytearray | memoryview) else value
        sizes = [size_of(payload) for payload in payloads]
        sink.head += length(sum(sizes))
        for payload, size in zip(payloads, sizes, strict=True):
            if size:
                sink.by_reference(payload, size)

    return write


def _array_writer(array: Array, version: int, flexible: bool, nullable: bool) -> Writer:
    length = _write_length(flexible, short=False)
    if isinstance(array.of, WireType) and array.of.fixed:
        code = array.of.value
        write_elements: Writer | None = None
    else:
        code = ""
        write_elements = _element_writer(array.of, version, flexible)

    def write(sink: ByteSink, value: Sequence[Any] | None) -> None:
        if value is None:
            _allow_null(nullable, "an array")
            sink.head += length(_NULL)
            return
        sink.head += length(len(value))
        if write_elements is None:
            sink.head += struct.pack(f">{len(value)}{code}", *value)
        else:
            for element in value:
                write_elements(sink, element)

    return write


def _element_writer(of: WireType | Struct[Any], version: int, flexible: bool) -> Writer:
    return _writer(of, version, flexible) if isinstance(of, Struct) else _string_writer(flexible, nullable=False)


def _allow_null(nullable: bool, what: str) -> None:
    if not nullable:
        raise TypeError(f"{what} is None where that is not allowed")
