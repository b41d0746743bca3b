"""Schemas as data: the fields of a message on the wire, and the versions that have them.

`describe` turns an annotated NamedTuple into a `Struct`. A message states each field once, with its Python type, wire type,
versions and default, in wire order:

    class Partition(NamedTuple):
        index: Int32 = 0
        log_start_offset: Annotated[Int64, Since(5)] = -1
        current_leader: Annotated[LeaderIdAndEpoch, Since(10), Tag(0)] = LeaderIdAndEpoch()

A nested message or `tuple[Message, ...]` needs no wire type of its own; `X | None` makes a string or array nullable.
"""

from __future__ import annotations

import enum
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Generic, NamedTuple, TypeAlias, TypeVar, Union, get_args, get_origin, get_type_hints

Buffer: TypeAlias = bytes | bytearray | memoryview

Message = TypeVar("Message", bound=tuple[Any, ...])
"""A message: the NamedTuple that states the fields."""

LAST_VERSION = 0x7FFF
"""The largest version, since versions are int16 on the wire."""

MAX_STRING_BYTES = 0x7FFF
"""Maximum bytes of a string, even a compact one (Kafka's generated code checks it): it may have to pass through an int16."""


class WireType(enum.Enum):
    """A primitive type; its value is the `struct` format, or a name for types of variable size."""

    BOOL = "?"
    INT8 = "b"
    INT16 = "h"
    INT32 = "i"
    INT64 = "q"
    UUID = "16s"
    STRING = "string"
    RECORDS = "records"

    @property
    def fixed(self) -> bool:
        """Whether every value has the same size, so that neighbours share one `struct` call."""
        return self not in (WireType.STRING, WireType.RECORDS)


class Since(NamedTuple):
    """The first version that has the field."""

    version: int


class Until(NamedTuple):
    """The last version that has the field."""

    version: int


class Tag(NamedTuple):
    """Marks a field that travels in the tag section (KIP-482), under this number, when it is not the default."""

    number: int


class NullableSince(NamedTuple):
    """The first version in which null is legal."""

    version: int


Bool = Annotated[bool, WireType.BOOL]
Int8 = Annotated[int, WireType.INT8]
Int16 = Annotated[int, WireType.INT16]
Int32 = Annotated[int, WireType.INT32]
Int64 = Annotated[int, WireType.INT64]
Uuid = Annotated[bytes, WireType.UUID]
"""16 bytes; all zero means none."""
String = Annotated[str, WireType.STRING]
NullableString = Annotated[str | None, WireType.STRING]
Records = Annotated[Buffer | Sequence[Buffer] | None, WireType.RECORDS]
"""To encode: one buffer, several that follow each other, or None. Decoded: a slice of the frame, or None (`decoded_records`)."""

Bytes = Annotated[Buffer, WireType.RECORDS]
"""Bytes that are never null; on the wire they look as records do. Decoded: a slice of the frame."""


def decoded_records(records: Buffer | Sequence[Buffer] | None) -> memoryview | None:
    """Return the records of a message that was decoded, which are a slice of its frame.

    Raises:
        TypeError: The message was not decoded: its records may be of any form that can be encoded.
    """
    if records is not None and not isinstance(records, memoryview):
        raise TypeError(f"decoded records are a memoryview, not {type(records).__name__}")
    return records


@dataclass(frozen=True, slots=True)
class Array:
    """Any number of elements of one type."""

    of: WireType | Struct[Any]


class Field(NamedTuple):
    """One field of a message; `nullable_since` is None where null is never legal."""

    name: str
    type: WireType | Array | Struct[Any]
    since: int
    until: int
    tag: int | None
    nullable_since: int | None
    default: object

    def in_version(self, version: int) -> bool:
        """Return whether `version` of the message has this field."""
        return self.since <= version <= self.until

    def nullable(self, version: int) -> bool:
        """Return whether null is legal in `version`."""
        return self.nullable_since is not None and version >= self.nullable_since


@dataclass(frozen=True, slots=True, eq=False)
class Struct(Generic[Message]):
    """A message: its fields in wire order, which is also the order of the tuple that `make` builds from them."""

    name: str
    make: Callable[[Sequence[Any]], Message]
    fields: tuple[Field, ...]


@cache
def describe(message: type[Any]) -> Struct[Any]:
    """Return the schema that the annotations of `message`, a NamedTuple, state."""
    hints = get_type_hints(message, include_extras=True)
    defaults = message._field_defaults
    return Struct(
        name=message.__name__,
        make=message._make,
        fields=tuple(_field(name, hints[name], defaults[name]) for name in message._fields),
    )


def _field(name: str, hint: Any, default: object) -> Field:
    base, markers = _unwrap(hint)
    by_kind = {type(marker): marker for marker in markers}
    since = by_kind.get(Since, Since(0)).version
    optional = type(None) in get_args(base)
    return Field(
        name=name,
        type=_wire_type(base, by_kind.get(WireType)),
        since=since,
        until=by_kind.get(Until, Until(LAST_VERSION)).version,
        tag=by_kind[Tag].number if Tag in by_kind else None,
        nullable_since=by_kind.get(NullableSince, NullableSince(since)).version if optional else None,
        default=default,
    )


def _wire_type(base: Any, wire: WireType | None) -> WireType | Array | Struct[Any]:
    if wire is not None:
        return wire
    if get_origin(base) in (Union, types.UnionType):
        base = next(option for option in get_args(base) if option is not type(None))
    if get_origin(base) is tuple:
        element, markers = _unwrap(get_args(base)[0])
        return Array(markers[0] if markers else describe(element))
    return describe(base)


def _unwrap(hint: Any) -> tuple[Any, tuple[Any, ...]]:
    if get_origin(hint) is Annotated:
        base, *markers = get_args(hint)
        return base, tuple(markers)
    return hint, ()


def runs(schema: Struct[Any], version: int) -> list[tuple[int | slice, str | Field]]:
    """Return the untagged fields of `version` in wire order, grouped for one `struct` call wherever that is possible.

    Each item is a part of the message's tuple: a slice and the `struct` format of neighbours of fixed sizes, or an index
    and its field.
    """
    parts: list[tuple[int | slice, str | Field]] = []
    for index, field in enumerate(schema.fields):
        if field.tag is not None or not field.in_version(version):
            continue
        if not (isinstance(field.type, WireType) and field.type.fixed):
            parts.append((index, field))
            continue
        part, form = parts[-1] if parts else (index, field)
        if isinstance(part, slice) and isinstance(form, str) and part.stop == index:
            parts[-1] = (slice(part.start, index + 1), form + field.type.value)
        else:
            parts.append((slice(index, index + 1), ">" + field.type.value))
    return parts


def tagged_fields(schema: Struct[Any], version: int) -> list[tuple[int, int, Field]]:
    """Return the tagged fields of `version` as (tag, index in the message's tuple, field), ascending as on the wire."""
    tagged = [
        (field.tag, index, field)
        for index, field in enumerate(schema.fields)
        if field.tag is not None and field.in_version(version)
    ]
    return sorted(tagged, key=lambda item: item[0])
