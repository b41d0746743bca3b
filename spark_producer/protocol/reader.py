"""The decoding of message bodies: schemas are compiled into readers, one for each message and version.

Every wire type can be read, flexible (KIP-482) or not. Payloads are never copied: they are slices of the frame.
Against hostile bytes, a declared length is compared with what is left of the frame before anything is allocated for it, and
all arrays and tag sections of a body together have an allowance of elements: an empty element takes a byte or two on the
wire and a hundred in memory.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import cache
from typing import Any, Final, TypeAlias

from spark_producer.errors import RemoteProtocolError
from spark_producer.protocol.fields import (
    MAX_STRING_BYTES,
    Array,
    Field,
    Message,
    Struct,
    WireType,
    runs,
    tagged_fields,
)

NO_ELEMENT_LIMIT: Final = 1 << 62
"""The allowance of elements for a body whose sender is trusted."""


class Allowance:
    """The number of elements that the arrays and tag sections of a body may still have."""

    __slots__ = ("_max", "_remaining")

    def __init__(self, maximum: int) -> None:
        self._max = self._remaining = maximum

    def take(self, count: int) -> None:
        """Take `count` elements, which follow, from the allowance.

        Raises:
            RemoteProtocolError: They are more than the allowance.
        """
        self._remaining -= count
        if self._remaining < 0:
            raise RemoteProtocolError(f"more than {self._max} elements in all of its arrays")


Reader: TypeAlias = Callable[[memoryview, int, Allowance], tuple[Any, int]]
"""Map (frame, position, allowance) to (value, position after it)."""

_ElementsReader: TypeAlias = Callable[[memoryview, int, int, Allowance], tuple[tuple[Any, ...], int]]
"""Map (frame, position, number of elements, allowance) to (elements, position after them)."""

_NULL = -1
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")


def read_body(
    schema: Struct[Message],
    version: int,
    flexible: bool,
    frame: memoryview,
    position: int,
    *,
    strict: bool = True,
    max_elements: int = NO_ELEMENT_LIMIT,
) -> Message:
    """Return the body in `frame` from `position` on; if `strict`, it has to end where the frame does.

    `max_elements` bounds all of its arrays and tag sections together.

    Raises:
        RemoteProtocolError: The bytes are not such a body.
    """
    body: Message
    try:
        body, end = _reader(schema, version, flexible)(frame, position, Allowance(max_elements))
    except (struct.error, UnicodeDecodeError, IndexError) as error:
        raise RemoteProtocolError(f"malformed {schema.name} version {version}: {error}") from error
    except RemoteProtocolError as error:
        raise RemoteProtocolError(f"malformed {schema.name} version {version}: {error}") from error
    if strict and end != len(frame):
        raise RemoteProtocolError(f"malformed {schema.name} version {version}: {len(frame) - end} bytes follow its end")
    return body


def read_unsigned_varint(frame: memoryview, position: int) -> tuple[int, int]:
    """Return the LEB128 number of at most 5 bytes at `position`, and the position after it."""
    byte = frame[position]
    if byte < 0x80:  # nearly every length and tag count fits into one byte
        return byte, position + 1
    value = 0
    for shift in range(0, 35, 7):
        byte = frame[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise RemoteProtocolError(f"the varint that ends at byte {position} has more than 5 bytes")


def _read_length(flexible: bool, short: bool, nullable: bool) -> Callable[[memoryview, int], tuple[int, int]]:
    """Return a function that reads a length, and refuses null where it is not legal, or a length beyond what is left."""
    form = _INT16 if short else _INT32

    def read(frame: memoryview, position: int) -> tuple[int, int]:
        if flexible:
            length, position = read_unsigned_varint(frame, position)
            length -= 1
        else:
            length = form.unpack_from(frame, position)[0]
            position += form.size
        if length > len(frame) - position:
            raise RemoteProtocolError(f"length {length} at byte {position}, but {len(frame) - position} bytes are left")
        if short and length > MAX_STRING_BYTES:  # only a compact string can be so long: others have an int16
            raise RemoteProtocolError(f"a string at byte {position} has {length} bytes, more than {MAX_STRING_BYTES}")
        if length < 0 and (length != _NULL or not nullable):
            raise RemoteProtocolError(f"length {length} at byte {position} where that is not allowed")
        return length, position

    return read


@cache
def _reader(schema: Struct[Any], version: int, flexible: bool) -> Reader:
    steps = [
        (index, _run_reader(part) if isinstance(part, str) else _field_reader(part, version, flexible))
        for index, part in runs(schema, version)
    ]
    read_tags = _tags_reader(schema, version) if flexible else None
    defaults = [field.default for field in schema.fields]
    make = schema.make

    def read(frame: memoryview, position: int, allowance: Allowance) -> tuple[Any, int]:
        values = defaults.copy()
        for index, read_part in steps:
            values[index], position = read_part(frame, position, allowance)
        if read_tags is not None:
            position = read_tags(frame, position, values, allowance)
        return make(values), position

    return read


def _tags_reader(schema: Struct[Any], version: int) -> Callable[[memoryview, int, list[Any], Allowance], int]:
    """Return a function that reads a tag section into the values of a message and skips unknown tags."""
    known = {
        tag: (index, _field_reader(field, version, flexible=True))
        for tag, index, field in tagged_fields(schema, version)
    }

    def read(frame: memoryview, position: int, values: list[Any], allowance: Allowance) -> int:
        count, position = read_unsigned_varint(frame, position)
        if count == 0:  # this is nearly always so
            return position
        allowance.take(count)
        for _ in range(count):
            tag, position = read_unsigned_varint(frame, position)
            size, position = read_unsigned_varint(frame, position)
            end = position + size
            if end > len(frame):
                raise RemoteProtocolError(f"tag {tag} claims {size} bytes, {len(frame) - position} are left")
            if tag in known:
                index, read_field = known[tag]
                values[index], position = read_field(frame[:end], position, allowance)
                if position != end:
                    raise RemoteProtocolError(f"tag {tag} claims {size} bytes, {end - position} more than it needs")
            position = end
        return position

    return read


def skip_tags(frame: memoryview, position: int, max_elements: int = NO_ELEMENT_LIMIT) -> int:
    """Return the position after the tag section at `position`; headers have such sections."""
    return _SKIP_TAGS(frame, position, [], Allowance(max_elements))


def _run_reader(form: str) -> Reader:
    run = struct.Struct(form)
    unpack, size = run.unpack_from, run.size

    def read(frame: memoryview, position: int, _: Allowance) -> tuple[tuple[Any, ...], int]:
        return unpack(frame, position), position + size

    return read


def _field_reader(field: Field, version: int, flexible: bool) -> Reader:
    nullable = field.nullable(version)
    if isinstance(field.type, Struct):
        return _reader(field.type, version, flexible)
    if isinstance(field.type, Array):
        return _array_reader(field.type, version, flexible, nullable)
    if field.type is WireType.RECORDS:
        return _records_reader(flexible, nullable)
    if field.type is WireType.STRING:
        return _string_reader(flexible, nullable)
    return _scalar_reader(field.type)


def _scalar_reader(wire: WireType) -> Reader:
    form = struct.Struct(">" + wire.value)

    def read(frame: memoryview, position: int, _: Allowance) -> tuple[Any, int]:
        return form.unpack_from(frame, position)[0], position + form.size

    return read


def _string_reader(flexible: bool, nullable: bool) -> Reader:
    read_length = _read_length(flexible, short=True, nullable=nullable)

    def read(frame: memoryview, position: int, _: Allowance) -> tuple[str | None, int]:
        length, position = read_length(frame, position)
        if length == _NULL:
            return None, position
        end = position + length
        return str(frame[position:end], "utf-8"), end

    return read


def _records_reader(flexible: bool, nullable: bool) -> Reader:
    read_length = _read_length(flexible, short=False, nullable=nullable)

    def read(frame: memoryview, position: int, _: Allowance) -> tuple[memoryview | None, int]:
        length, position = read_length(frame, position)
        if length == _NULL:
            return None, position
        end = position + length
        return frame[position:end], end

    return read


def _array_reader(array: Array, version: int, flexible: bool, nullable: bool) -> Reader:
    read_length = _read_length(flexible, short=False, nullable=nullable)
    if isinstance(array.of, WireType) and array.of.fixed:
        read_elements = _fixed_elements_reader(array.of)
    else:
        read_elements = _elements_reader(
            _reader(array.of, version, flexible) if isinstance(array.of, Struct) else _string_reader(flexible, False)
        )

    def read(frame: memoryview, position: int, allowance: Allowance) -> tuple[tuple[Any, ...] | None, int]:
        count, position = read_length(frame, position)
        if count == _NULL:
            return None, position
        allowance.take(count)
        return read_elements(frame, position, count, allowance)

    return read


def _fixed_elements_reader(wire: WireType) -> _ElementsReader:
    size = struct.calcsize(">" + wire.value)

    def read(frame: memoryview, position: int, count: int, _: Allowance) -> tuple[tuple[Any, ...], int]:
        return struct.unpack_from(f">{count}{wire.value}", frame, position), position + count * size

    return read


def _elements_reader(read_element: Reader) -> _ElementsReader:
    def read(frame: memoryview, position: int, count: int, allowance: Allowance) -> tuple[tuple[Any, ...], int]:
        elements = []
        for _ in range(count):
            element, position = read_element(frame, position, allowance)
            elements.append(element)
        return tuple(elements), position

    return read


_SKIP_TAGS = _tags_reader(Struct("header", tuple, ()), 0)
