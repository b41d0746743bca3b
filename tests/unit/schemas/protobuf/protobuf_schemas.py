"""Schemas of Protobuf and values of their messages, drawn at random.

Owns: the descriptors of a file, and messages whose fields are set. Must not know: how they are decoded.
"""

from __future__ import annotations

from typing import Any

from google.protobuf.descriptor_pb2 import FileDescriptorProto
from hypothesis import strategies as st

from tests.unit.schemas.protobuf.judging import NUMBERS, WRAPPERS

LABELS = {"optional": 1, "required": 2, "repeated": 3}
INTEGERS = {
    "int32": 32, "sint32": 32, "sfixed32": 32, "int64": 64, "sint64": 64, "sfixed64": 64,
    "uint32": -32, "fixed32": -32, "uint64": -64, "fixed64": -64,
}  # fmt: skip
SCALARS = (*INTEGERS, "float", "double", "bool", "string", "bytes", "enum")
KEYS = (*INTEGERS, "bool", "string")
OWN = ("Timestamp", "Duration", *sorted(WRAPPERS))
MAX_NUMBER = 20
"""Few numbers, so that other schemas have fields of the same ones."""


@st.composite
def files(draw: st.DrawFn, *, maps: bool = True, required: bool = True) -> Any:
    """A file whose message `M0` may have the messages `M1` and `M2`."""
    modern = draw(st.booleans())
    file = FileDescriptorProto(name="drawn.proto", syntax="proto3" if modern else "proto2")
    file.dependency.extend(f"google/protobuf/{own}.proto" for own in ("timestamp", "duration", "wrappers"))
    enum = file.enum_type.add(name="E")
    for number in draw(st.lists(st.integers(-5, 300), unique=True, max_size=3).map(lambda found: [0, *found])):
        if number not in [each.number for each in enum.value]:
            enum.value.add(name=f"V{number}".replace("-", "m"), number=number)
    count = draw(st.integers(1, 3))
    for index in range(count):
        message = file.message_type.add(name=f"M{index}")
        numbers = draw(st.lists(st.integers(1, MAX_NUMBER), unique=True, min_size=1, max_size=6))
        oneof = draw(st.booleans())
        for number in numbers:
            _field(
                draw, message, number, inner=count - index - 1, modern=modern, maps=maps, required=required, oneof=oneof
            )
        if oneof and not any(each.HasField("oneof_index") for each in message.field):
            del message.oneof_decl[:]
        for field in message.field:
            if field.proto3_optional:
                field.oneof_index = len(message.oneof_decl)
                message.oneof_decl.add(name=f"_{field.name}")
    return file


def _field(
    draw: st.DrawFn,
    message: Any,
    number: int,
    *,
    inner: int,
    modern: bool,
    maps: bool,
    required: bool,
    oneof: bool,
) -> None:
    kinds = [*SCALARS, "own", *["message"] * (3 * bool(inner)), *["map"] * maps]
    kinds += ["group"] * (not modern and bool(inner))
    kind = draw(st.sampled_from(kinds))
    field = message.field.add(name=f"f{number}", number=number, label=LABELS["optional"])
    if kind == "map":
        field.label = LABELS["repeated"]
        _map(draw, message, field, inner)
        return
    _type(draw, field, kind, message, inner)
    label = draw(st.sampled_from(["optional", "optional", "repeated", "oneof", "required", "modern"]))
    if label == "repeated":
        field.label = LABELS["repeated"]
        if field.type not in (NUMBERS[each] for each in ("string", "bytes", "message", "group")):
            field.options.packed = draw(st.booleans())
    elif label == "oneof" and oneof:
        if not message.oneof_decl:
            message.oneof_decl.add(name="choice")
        field.oneof_index = 0
    elif label == "required" and required and not modern:
        field.label = LABELS["required"]
    elif label == "modern" and modern and field.type != NUMBERS["message"]:
        field.proto3_optional = True
    elif kind in INTEGERS and not modern and draw(st.booleans()):
        field.default_value = "7"
    elif kind == "string" and not modern and draw(st.booleans()):
        field.default_value = "né"


def _type(draw: st.DrawFn, field: Any, kind: str, message: Any, inner: int) -> None:
    field.type = NUMBERS["message" if kind == "own" else kind]
    if kind == "own":
        field.type_name = f".google.protobuf.{draw(st.sampled_from(OWN))}"
    elif kind == "enum":
        field.type_name = ".E"
    elif kind in ("message", "group"):
        own = int(message.name.removeprefix("M"))
        field.type_name = f".M{draw(st.integers(own + 1, own + inner))}"


def _map(draw: st.DrawFn, message: Any, field: Any, inner: int) -> None:
    entry = message.nested_type.add(name=f"F{field.number}Entry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, label=1, type=NUMBERS[draw(st.sampled_from(KEYS))])
    value = entry.field.add(name="value", number=2, label=1)
    _type(draw, value, draw(st.sampled_from([*SCALARS, "own", *["message"] * bool(inner)])), message, inner)
    field.type, field.type_name = NUMBERS["message"], f".{message.name}.{entry.name}"


@st.composite
def messages(draw: st.DrawFn, kind: Any) -> Any:
    """A message of this class, of which some fields are set."""
    found = kind()
    for field in kind.DESCRIPTOR.fields:
        if draw(st.booleans()):
            _set(draw, found, field)
    return found


def _set(draw: st.DrawFn, message: Any, field: Any) -> None:
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        key, value = (field.message_type.fields_by_name[name] for name in ("key", "value"))
        target = getattr(message, field.name)
        for each in draw(st.lists(scalars(key), max_size=3)):
            if value.message_type is None:
                target[each] = draw(scalars(value))
            else:
                _fill(draw, target[each])
    elif field.is_repeated:
        for _ in range(draw(st.integers(0, 3))):
            if field.message_type is None:
                getattr(message, field.name).append(draw(scalars(field)))
            else:
                _fill(draw, getattr(message, field.name).add())
    elif field.message_type is None:
        setattr(message, field.name, draw(scalars(field)))
    else:
        getattr(message, field.name).SetInParent()
        _fill(draw, getattr(message, field.name))


def _fill(draw: st.DrawFn, message: Any) -> None:
    name = message.DESCRIPTOR.full_name
    if name in ("google.protobuf.Timestamp", "google.protobuf.Duration"):
        message.seconds = draw(st.integers(-(10**10), 10**10))
        low = 0 if name.endswith("Timestamp") else 1 - 10**9
        message.nanos = draw(st.integers(low, 10**9 - 1))
        return
    for field in message.DESCRIPTOR.fields:
        if draw(st.booleans()):
            _set(draw, message, field)


def scalars(field: Any) -> st.SearchStrategy[Any]:
    """Values of a field without a message."""
    name = next(each for each, number in NUMBERS.items() if number == field.type)
    if name in INTEGERS:
        bits = INTEGERS[name]
        low, high = (0, (1 << -bits) - 1) if bits < 0 else (-(1 << bits - 1), (1 << bits - 1) - 1)
        return st.integers(0, 3) | st.integers(low, high)
    if name == "enum":
        known = st.sampled_from([each.number for each in field.enum_type.values])
        return known if field.enum_type.is_closed else known | st.integers(-(1 << 31), (1 << 31) - 1)
    return {
        "float": st.floats(width=32), "double": st.floats(), "bool": st.booleans(), "string": st.text(max_size=5),
        "bytes": st.binary(max_size=5),
    }[name]  # fmt: skip
