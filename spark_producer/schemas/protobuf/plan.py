"""The plan by which a column is encoded as Protobuf: its Arrow type matched with a message, before the first row."""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import pyarrow as pa

from spark_producer.common.escape import for_log
from spark_producer.errors import SchemaError
from spark_producer.kernel.avro_nodes import ArrowLayout, AvroNode
from spark_producer.kernel.avro_program import MAX_NESTING
from spark_producer.kernel.protobuf_nodes import Oneof, ProtobufNode, Source, Wrapping
from spark_producer.kernel.protobuf_program import WIRE_TYPES, Form, Rendering, WireType
from spark_producer.schemas.plan import check_fields
from spark_producer.schemas.protobuf.descriptors import Descriptor, FieldDescriptor
from spark_producer.schemas.protobuf.message_types import PLAIN, is_repeated, is_required, rendering_of
from spark_producer.schemas.scalar_types import type_mismatch
from spark_producer.schemas.texts import list_names, path_below
from spark_producer.schemas.types import is_binary, is_text

_FILL = "set fillMissingFields=true to leave it out of the messages"
_ITEM_NULL = "it is null, and items of a repeated field cannot be null"
_ENTRY_NULL = "it is null, and keys and values of a map cannot be null"
_REQUIRED_NULL = "it is null, but its field is required"
_INT32 = -(1 << 31), (1 << 31) - 1
_RANGES = {
    **dict.fromkeys((Form.INT32, Form.SINT32, Form.SFIXED32), _INT32),
    **dict.fromkeys((Form.UINT32, Form.FIXED32), (0, (1 << 32) - 1)),
}
_WIDTHS = {WireType.FIXED32: 4, WireType.FIXED64: 8}
_SCALARS: dict[Form, tuple[Any, ArrowLayout]] = {
    Form.BOOL: (pa.types.is_boolean, ArrowLayout.BOOLEAN),
    Form.FLOAT: (pa.types.is_float32, ArrowLayout.FLOAT),
    Form.DOUBLE: (lambda kind: pa.types.is_floating(kind) or is_whole(kind), ArrowLayout.DOUBLE),
}
_TIMES: dict[Rendering, tuple[Any, Source]] = {
    Rendering.TIMESTAMP: (lambda kind: pa.types.is_timestamp(kind) and kind.unit == "us" and kind.tz, Source.TIMESTAMP),
    Rendering.DURATION: (lambda kind: pa.types.is_duration(kind) and kind.unit == "us", Source.DURATION),
}
_TYPE_NAMES = (
    "", "double", "float", "int64", "uint64", "int32", "fixed64", "fixed32", "bool", "string", "group", "message", "bytes",
    "uint32", "enum", "sfixed32", "sfixed64", "sint32", "sint64",
)  # fmt: skip
"""The names of types by their numbers (`FieldDescriptorProto.Type`)."""


def plan_of(message: Descriptor, kind: pa.DataType, path: str, *, fill: bool = False) -> ProtobufNode:
    """Return the plan for values of an Arrow type. Fields are found by name; `path` is the column's, for messages.

    With `fill`, a field of the message that the column lacks is absent. So is one that would begin a message within itself
    again: columns end somewhere.

    Raises:
        SchemaError: message and type do not match; the error has the field and both types.
    """
    if pa.types.is_null(kind):
        return ProtobufNode(Source.NOTHING, path)
    try:
        return _Planner(fill).row(message, kind, path)
    except RecursionError:
        raise SchemaError(f"field '{path}' or its message is nested too deeply") from None


def is_whole(kind: pa.DataType) -> bool:
    """Return whether an Arrow type is one of Spark's whole numbers."""
    return bool(pa.types.is_signed_integer(kind))


class _Position(NamedTuple):
    """The position of a field: its path, its nesting, and the messages that it is within."""

    path: str
    depth: int = 0
    within: frozenset[str] = frozenset()


class _Planner:
    def __init__(self, fill: bool) -> None:
        self._fill = fill

    def row(self, message: Descriptor, kind: pa.DataType, path: str) -> ProtobufNode:
        return self._message(message, kind, _Position(path))

    def _message(self, message: Descriptor, kind: pa.DataType, at: _Position) -> ProtobufNode:
        """Return the plan of a message, without a tag and what surrounds it."""
        if at.depth > MAX_NESTING:
            raise SchemaError(
                f"field '{at.path}' is nested too deeply: the maximum is {MAX_NESTING} messages, arrays and maps"
            )
        if isinstance(kind, pa.StructType):
            return self._struct(message, kind, at)
        rendering = rendering_of(message)
        if rendering is Rendering.WRAPPED:
            return ProtobufNode(Source.WRAPPED, at.path, children=(self._single(message.fields[0], kind, at),))
        if rendering in _TIMES and _TIMES[rendering][0](kind):
            children = (ProtobufNode(Source.SCALAR, at.path, each.number << 3) for each in message.fields)
            return ProtobufNode(_TIMES[rendering][1], at.path, children=tuple(children))
        raise type_mismatch(at.path, kind, f"the message '{for_log(message.full_name)}'")

    def _struct(self, message: Descriptor, kind: pa.StructType, at: _Position) -> ProtobufNode:
        fields = sorted(message.fields, key=lambda each: int(each.number))
        ours = {kind.field(index).name: kind.field(index) for index in range(kind.num_fields)}
        check_fields(kind, [each.name for each in message.fields], at.path)
        within = at.within | {message.full_name}
        children, found = [], []
        for field in fields:
            below = _Position(path_below(at.path, field.name), at.depth + 1, within)
            if field.name in ours:
                children.append(self._field(field, ours[field.name].type, below))
                found.append(field)
            else:
                self._check_missing(field, below, ours)
        names = tuple(each.name for each in found)
        return ProtobufNode(Source.STRUCT, at.path, children=tuple(children), names=names, oneofs=_oneofs(found))

    def _check_missing(self, field: FieldDescriptor, at: _Position, ours: dict[str, Any]) -> None:
        """Refuse a field that the column lacks, unless it may be absent."""
        lacks = f"field '{at.path}' of the message is not in the column, whose fields are {list_names(ours)}"
        if is_required(field):
            raise SchemaError(f"{lacks}, and it is required. Add it")
        inner = field.message_type
        if inner is not None and inner.GetOptions().map_entry:
            inner = inner.fields_by_number[2].message_type
        if not self._fill and (inner is None or inner.full_name not in at.within):
            raise SchemaError(f"{lacks}. Add it, or {_FILL}")

    def _field(self, field: FieldDescriptor, kind: pa.DataType, at: _Position) -> ProtobufNode:
        if pa.types.is_null(kind):
            return ProtobufNode(Source.NOTHING, at.path, null_reason=_REQUIRED_NULL if is_required(field) else "")
        if not is_repeated(field):
            return self._single(field, kind, at)
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            return self._map(field, kind, at)
        if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)):
            raise type_mismatch(at.path, kind, f"a repeated field of {_type_name(field)}")
        below = at._replace(path=for_log(f"{at.path}[]"), depth=at.depth + 1)
        item = self._single(field, cast("pa.ListType[Any]", kind).value_type, below)
        item = item._replace(implicit=False, null_reason=_ITEM_NULL)
        if not field.is_packed:
            return ProtobufNode(Source.LIST, at.path, children=(item,))
        tag = field.number << 3 | WireType.BYTES
        return ProtobufNode(Source.LIST, at.path, tag, Wrapping.LENGTH, children=(item._replace(tag=0),))

    def _map(self, field: FieldDescriptor, kind: pa.DataType, at: _Position) -> ProtobufNode:
        if not pa.types.is_map(kind):
            raise type_mismatch(at.path, kind, "a map")
        below = at._replace(path=for_log(f"{at.path}{{}}"), depth=at.depth + 1)
        entry = field.message_type
        sides = zip(
            (entry.fields_by_number[1], entry.fields_by_number[2]), (kind.key_type, kind.item_type), strict=True
        )
        pair = (self._single(side, inner, below) for side, inner in sides)
        children = tuple(each._replace(implicit=False, null_reason=_ENTRY_NULL) for each in pair)
        tag = field.number << 3 | WireType.BYTES
        item = ProtobufNode(Source.STRUCT, below.path, tag, Wrapping.LENGTH, children=children)
        return ProtobufNode(Source.MAP, at.path, children=(item,))

    def _single(self, field: FieldDescriptor, kind: pa.DataType, at: _Position) -> ProtobufNode:
        """Return the plan of one value of a field, with its tag."""
        null_reason = _REQUIRED_NULL if is_required(field) else ""
        if pa.types.is_null(kind):
            return ProtobufNode(Source.NOTHING, at.path, null_reason=null_reason)
        if field.message_type is not None:
            node = self._message(field.message_type, kind, at)
            group = _TYPE_NAMES[field.type] == "group"
            tag = field.number << 3 | (WireType.START if group else WireType.BYTES)
            wrapping = Wrapping.GROUP if group else Wrapping.LENGTH
            return node._replace(tag=tag, wrapping=wrapping, null_reason=null_reason)
        node = _enum(field, kind, at.path) if field.enum_type is not None else _scalar(field, kind, at.path)
        wire = WIRE_TYPES.get(PLAIN[field.type].form, WireType.VARINT)
        return node._replace(tag=field.number << 3 | wire, implicit=not field.has_presence, null_reason=null_reason)


def _oneofs(fields: list[FieldDescriptor]) -> tuple[Oneof, ...]:
    """Return the oneofs of which several fields are among these."""
    members: dict[str, list[int]] = {}
    for position, field in enumerate(fields):
        if field.containing_oneof is not None:
            members.setdefault(field.containing_oneof.name, []).append(position)
    return tuple(
        Oneof(
            tuple(positions),
            f"several fields of the oneof '{for_log(name)}' are set: {list_names(fields[each].name for each in positions)}",
        )
        for name, positions in members.items()
        if len(positions) > 1
    )


def _type_name(field: FieldDescriptor) -> str:
    if field.message_type is not None and _TYPE_NAMES[field.type] == "message":
        return f"the message '{for_log(field.message_type.full_name)}'"
    return _TYPE_NAMES[field.type]


def _scalar(field: FieldDescriptor, kind: pa.DataType, path: str) -> ProtobufNode:
    form, name = PLAIN[field.type].form, _TYPE_NAMES[field.type]
    node = ProtobufNode(Source.SCALAR, path, width=_WIDTHS.get(WIRE_TYPES.get(form, WireType.VARINT), 0))
    if form is Form.BYTES:
        if name == "string" and is_text(kind):
            return node._replace(scalar=AvroNode(ArrowLayout.TEXT, path))
        if name == "bytes" and (is_binary(kind) or is_text(kind)):
            return node._replace(scalar=AvroNode(ArrowLayout.BYTES, path))
        raise type_mismatch(path, kind, name)
    if form in _SCALARS:
        accepts, layout = _SCALARS[form]
        if not accepts(kind):
            raise type_mismatch(path, kind, name)
        return node._replace(scalar=AvroNode(layout, path, reason=f"{name} cannot represent it exactly"))
    unsigned = PLAIN[field.type].rendering is Rendering.UNSIGNED
    if unsigned and pa.types.is_decimal128(kind) and kind.scale == 0:
        return node._replace(source=Source.UNSIGNED)
    if not is_whole(kind):
        raise type_mismatch(path, kind, name)
    zigzag = form in (Form.SINT32, Form.SINT64)
    low, high = (0, (1 << 63) - 1) if unsigned else _RANGES.get(form, (None, None))
    return node._replace(scalar=_whole(path, kind, low, high, name), zigzag=zigzag)


def _whole(path: str, kind: pa.DataType, low: int | None, high: int | None, name: str) -> AvroNode:
    """Return how whole numbers are read, with a check of each if the column's type has others than the field's."""
    most = 1 << kind.bit_width - 1
    if low is None or high is None or (low <= -most and high >= most - 1):
        return AvroNode(ArrowLayout.LONG, path)
    return AvroNode(ArrowLayout.LONG, path, low=low, high=high, reason=f"it is out of the range of {name}")


def _enum(field: FieldDescriptor, kind: pa.DataType, path: str) -> ProtobufNode:
    enum = field.enum_type
    if not (is_text(kind) or is_whole(kind)):
        raise type_mismatch(path, kind, f"the enum '{for_log(enum.full_name)}', which takes strings and whole numbers")
    reason = f"the enum '{for_log(enum.full_name)}' does not have it"
    symbols = tuple((each.name, each.number) for each in enum.values)
    scalar = AvroNode(ArrowLayout.ENUM, path, reason=reason)
    return ProtobufNode(Source.ENUM, path, scalar=scalar, symbols=symbols, closed=enum.is_closed)
