"""The columns that a Protobuf message becomes, with their Spark types, and the program that fills them."""

from __future__ import annotations

import itertools
import struct
from typing import NamedTuple

import pyarrow as pa

from spark_producer.common.escape import for_log
from spark_producer.errors import SchemaError
from spark_producer.kernel.avro_program import MAX_NESTING, Storage
from spark_producer.kernel.protobuf_program import (
    NO_MESSAGE,
    Field,
    Form,
    Message,
    ProtobufColumn,
    ProtobufProgram,
    Rendering,
)
from spark_producer.schemas.protobuf.descriptors import Descriptor, FieldDescriptor
from spark_producer.schemas.reader_types import MAX_STEPS
from spark_producer.schemas.texts import path_below


def program_of(message: Descriptor, name: str, recursion: int) -> ProtobufProgram:
    """Return the program by which values of a message are decoded.

    Args:
        message: The message.
        name: The name of the column in messages.
        recursion: How often a message may occur within itself; below that its fields are left out. 0 refuses such messages.

    Raises:
        SchemaError: the message refers to itself, or is too large or nested too deeply.
    """
    builder = _Builder(recursion)
    try:
        builder.message(message, name, 0, {})
    except RecursionError:
        raise SchemaError(f"field '{name}': the message is nested too deeply") from None
    return ProtobufProgram(
        tuple(builder.messages[each] for each in sorted(builder.messages)),
        tuple(builder.columns[each] for each in sorted(builder.columns)),
    )


class _Plain(NamedTuple):
    form: Form
    storage: Storage
    kind: pa.DataType
    rendering: Rendering = Rendering.PLAIN


_UNSIGNED = pa.decimal128(20, 0)
_MESSAGE, _GROUP, _ENUM = 11, 10, 14
"""The types of fields that have a descriptor of their own (`FieldDescriptorProto.Type`)."""

PLAIN: dict[int, _Plain] = {
    1: _Plain(Form.DOUBLE, Storage.DOUBLE, pa.float64()),
    2: _Plain(Form.FLOAT, Storage.FLOAT, pa.float32()),
    3: _Plain(Form.INT64, Storage.LONG, pa.int64()),
    4: _Plain(Form.INT64, Storage.LONG, _UNSIGNED, Rendering.UNSIGNED),
    5: _Plain(Form.INT32, Storage.LONG, pa.int32()),
    6: _Plain(Form.FIXED64, Storage.LONG, _UNSIGNED, Rendering.UNSIGNED),
    7: _Plain(Form.FIXED32, Storage.LONG, pa.int64()),
    8: _Plain(Form.BOOL, Storage.BOOLEAN, pa.bool_()),
    9: _Plain(Form.BYTES, Storage.BYTES, pa.string()),
    12: _Plain(Form.BYTES, Storage.BYTES, pa.binary()),
    13: _Plain(Form.UINT32, Storage.LONG, pa.int64()),
    _ENUM: _Plain(Form.INT32, Storage.LONG, pa.string(), Rendering.ENUM),
    15: _Plain(Form.SFIXED32, Storage.LONG, pa.int32()),
    16: _Plain(Form.FIXED64, Storage.LONG, pa.int64()),
    17: _Plain(Form.SINT32, Storage.LONG, pa.int32()),
    18: _Plain(Form.SINT64, Storage.LONG, pa.int64()),
}
"""How fields of each type without children are written, stored and shown."""

TIMES: dict[str, tuple[pa.DataType, Rendering]] = {
    "google.protobuf.Timestamp": (pa.timestamp("us", "UTC"), Rendering.TIMESTAMP),
    "google.protobuf.Duration": (pa.duration("us"), Rendering.DURATION),
}

_TIME_FIELDS = [("seconds", 3), ("nanos", 5)]
"""Their fields, an int64 and an int32."""

_WRAPPERS = frozenset(
    f"google.protobuf.{each}Value"
    for each in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
"""Messages with one field, which stand for a value that may be null."""


def rendering_of(message: Descriptor) -> Rendering:
    """Return how a message is shown: as a time, as the value of its only field, or as a struct (`PLAIN`).

    A schema may bring a file of its own under the name of one of Protobuf's, so the fields are compared too.
    """
    plain = all(
        each.message_type is None and not each.has_presence and not is_repeated(each) for each in message.fields
    )
    if plain and message.full_name in TIMES and [(each.name, each.type) for each in message.fields] == _TIME_FIELDS:
        return TIMES[message.full_name][1]
    if plain and message.full_name in _WRAPPERS and [each.name for each in message.fields] == ["value"]:
        return Rendering.WRAPPED
    return Rendering.PLAIN


class _Builder:
    """Builds the columns and messages of one program. A message has columns of its own wherever it occurs."""

    def __init__(self, recursion: int) -> None:
        self.columns: dict[int, ProtobufColumn] = {}
        self.messages: dict[int, Message] = {}
        self._recursion = recursion
        self._column_numbers = itertools.count()
        self._message_numbers = itertools.count()
        self._steps = 0

    def message(
        self, found: Descriptor, path: str, depth: int, within: dict[str, int], *, nullable: bool = False
    ) -> tuple[int, int]:
        """Build the column of a message; return its number and the message's."""
        self._count(path, depth)
        number, message = next(self._column_numbers), next(self._message_numbers)
        times = within.get(found.full_name, 0) + 1
        fields = self._fields(found, path, depth, within | {found.full_name: times})
        kind, rendering = self._kind(found, fields)
        children = tuple(field.column for _, field in fields)
        self.columns[number] = ProtobufColumn(
            Storage.RECORD, kind, path, nullable, children=children, rendering=rendering
        )
        rivals = _rivals(fields)
        whole = [field._replace(rivals=rivals.get(field.column, ())) for _, field in fields]
        self.messages[message] = Message(tuple(sorted(whole)), number)
        return number, message

    def _count(self, path: str, depth: int) -> None:
        self._steps += 1
        if self._steps > MAX_STEPS or depth > MAX_NESTING:
            raise SchemaError(f"field '{path}': the message is too large, or nested more than {MAX_NESTING} deep")

    def _fields(
        self, message: Descriptor, path: str, depth: int, within: dict[str, int]
    ) -> list[tuple[FieldDescriptor, Field]]:
        found = [(each, self._field(each, path_below(path, each.name), depth + 1, within)) for each in message.fields]
        return [(each, field) for each, field in found if field is not None]

    def _is_left_out(self, field: FieldDescriptor, path: str, within: dict[str, int]) -> bool:
        """Return whether a field is left out because its message recurs too often."""
        inner = field.message_type
        if inner is not None and inner.GetOptions().map_entry:
            inner = inner.fields_by_number[2].message_type
        times = 0 if inner is None else within.get(inner.full_name, 0)
        if times and not self._recursion:
            raise SchemaError(
                f"field '{path}': the message {for_log(inner.full_name)} is recursive, and Spark's types are not. Give a "
                "reader's schema without it, or set recursive_field_max_depth in from_confluent_protobuf"
            )
        return bool(times) and times >= self._recursion

    def _kind(self, message: Descriptor, fields: list[tuple[FieldDescriptor, Field]]) -> tuple[pa.DataType, Rendering]:
        rendering = rendering_of(message)
        if message.full_name in TIMES and rendering is not Rendering.PLAIN:
            return TIMES[message.full_name]
        columns = [(each.name, self.columns[field.column]) for each, field in fields]
        if rendering is Rendering.WRAPPED:
            return columns[0][1].kind, rendering
        struct_of = [pa.field(name, column.kind, column.nullable and not column.required) for name, column in columns]
        return pa.struct(struct_of), rendering

    def _field(self, field: FieldDescriptor, path: str, depth: int, within: dict[str, int]) -> Field | None:
        if self._is_left_out(field, path, within):
            return None
        if not is_repeated(field):
            return self._one(field, path, depth, within, nullable=field.has_presence)
        self._count(path, depth)
        number = next(self._column_numbers)
        kind: pa.DataType
        entry = field.message_type
        if entry is not None and entry.GetOptions().map_entry:
            sides = self._fields(entry, path, depth, within)
            message = next(self._message_numbers)
            fields = sorted((each for _, each in sides), key=lambda each: each.number)
            self.messages[message] = Message(tuple(fields), number)
            children = tuple(each.column for each in fields)
            key, value = (self.columns[child] for child in children)
            kind = pa.map_(key.kind, pa.field("value", value.kind, False))  # type: ignore[call-overload]
            found = Field(field.number, Form.MESSAGE, number, message, repeated=True)
        else:
            item = self._one(field, path + "[]", depth, within, nullable=False)
            children = (item.column,)
            kind = pa.list_(pa.field("element", self.columns[item.column].kind, False))
            found = item._replace(column=number, repeated=True)
        self.columns[number] = ProtobufColumn(Storage.ARRAY, kind, path, children=children)
        return found

    def _one(self, field: FieldDescriptor, path: str, depth: int, within: dict[str, int], *, nullable: bool) -> Field:
        """Build the column of a field's value, or of an item. Keys and values of maps are never null."""
        in_map = field.containing_type.GetOptions().map_entry
        nullable = nullable and not in_map
        if field.message_type is not None:
            built = self.message(field.message_type, path, depth, within, nullable=nullable)
            form = Form.GROUP if field.type == _GROUP else Form.MESSAGE
            if is_required(field):
                self.columns[built[0]] = self.columns[built[0]]._replace(required=True)
            return Field(field.number, form, *built)
        self._count(path, depth)
        number = next(self._column_numbers)
        plain = PLAIN[field.type]
        given = field.has_default_value and field.containing_oneof is None and not is_repeated(field)
        required = is_required(field)
        present = nullable and (required or not given)
        default = b"" if present or is_repeated(field) else _default(field, plain.storage)
        names, known = _symbols(field)
        self.columns[number] = ProtobufColumn(
            plain.storage, plain.kind, path, present, required, (), default, plain.rendering, names
        )
        return Field(field.number, plain.form, number, NO_MESSAGE, known=known)


def is_repeated(field: FieldDescriptor) -> bool:
    """Return whether a field is a list or a map. Newer versions of `protobuf` have no `label`."""
    return bool(field.is_repeated) if hasattr(field, "is_repeated") else field.label == field.LABEL_REPEATED


def is_required(field: FieldDescriptor) -> bool:
    """Return whether a message without the field is not valid."""
    return bool(field.is_required) if hasattr(field, "is_required") else field.label == field.LABEL_REQUIRED


def _default(field: FieldDescriptor, storage: Storage) -> bytes:
    """Return the value of an absent field as an item of its column."""
    value = field.default_value
    if storage is Storage.BYTES:
        return value if isinstance(value, bytes) else value.encode()
    if storage is Storage.FLOAT:
        return struct.pack("<f", value)
    if storage is Storage.DOUBLE:
        return struct.pack("<d", value)
    if storage is Storage.BOOLEAN:
        return b"\x01" if value else b"\x00"
    return (int(value) & ((1 << 64) - 1)).to_bytes(8, "little")


def _symbols(field: FieldDescriptor) -> tuple[tuple[tuple[int, str], ...], tuple[int, ...]]:
    """Return the names of an enum by their numbers, the first of each number, and the numbers if it is closed."""
    if field.enum_type is None:
        return (), ()
    names: dict[int, str] = {}
    for each in field.enum_type.values:
        names.setdefault(each.number, each.name)
    return tuple(sorted(names.items())), tuple(sorted(names)) if field.enum_type.is_closed else ()


def _rivals(fields: list[tuple[FieldDescriptor, Field]]) -> dict[int, tuple[int, ...]]:
    """Return the columns of the other fields of a field's oneof, by its column."""
    oneofs: dict[str, list[int]] = {}
    for each, field in fields:
        if each.containing_oneof is not None:
            oneofs.setdefault(each.containing_oneof.name, []).append(field.column)
    return {
        column: tuple(other for other in columns if other != column)
        for columns in oneofs.values()
        for column in columns
        if len(columns) > 1
    }
