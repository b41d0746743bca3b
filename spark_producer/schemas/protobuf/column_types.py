"""The Protobuf schema of an Arrow type, for columns without a given one: the text of a `.proto` file."""

from __future__ import annotations

from typing import Any, cast

import pyarrow as pa

from spark_producer.errors import SchemaError
from spark_producer.schemas.texts import arrow_type_name, path_below
from spark_producer.schemas.types import NAME, is_binary, is_int, is_text

_TIMESTAMP, _DURATION = "google.protobuf.Timestamp", "google.protobuf.Duration"
_FILES = {_TIMESTAMP: "google/protobuf/timestamp.proto", _DURATION: "google/protobuf/duration.proto"}
_PLAIN: tuple[tuple[Any, str], ...] = (
    (pa.types.is_boolean, "bool"),
    (is_int, "int32"),
    (pa.types.is_int64, "int64"),
    (pa.types.is_float32, "float"),
    (pa.types.is_float64, "double"),
    (is_text, "string"),
    (is_binary, "bytes"),
    (lambda kind: kind == pa.decimal128(20, 0), "uint64"),
    (lambda kind: pa.types.is_timestamp(kind) and kind.unit == "us" and kind.tz, _TIMESTAMP),
    (lambda kind: pa.types.is_duration(kind) and kind.unit == "us", _DURATION),
)
_KEYS = frozenset({"bool", "int32", "int64", "uint64", "string"})


def proto_schema(kind: pa.DataType, name: str, path: str) -> str:
    """Return the text of a file in proto3 with one message, whose fields are those of a struct, numbered in their order.

    Fields that may be null are `optional`.

    Args:
        kind: The type of the column.
        name: The name of the message; those in its fields have the names of the fields in CamelCase.
        path: The name of the column in messages.

    Raises:
        SchemaError: Protobuf has no such type, or allows no such name; the error has the field.
    """
    if not isinstance(kind, pa.StructType):
        raise SchemaError(f"field '{path}' has type {arrow_type_name(kind)}, but a Protobuf message needs a struct")
    writer = _Writer()
    lines = writer.message(kind, name, path, frozenset())
    imports = [f'import "{_FILES[each]}";' for each in sorted(writer.used)]
    return "\n".join(['syntax = "proto3";', *imports, *lines, ""])


class _Writer:
    """Writes one file, and keeps which of Protobuf's own messages it uses."""

    def __init__(self) -> None:
        self.used: set[str] = set()

    def message(self, kind: pa.StructType, name: str, path: str, outer: frozenset[str]) -> list[str]:
        """Return the lines of a message; `outer` has the names of those around it, which its own may not have."""
        fields = [kind.field(index) for index in range(kind.num_fields)]
        taken = {name, *outer, *(field.name for field in fields)}
        taken |= {_entry_name(field.name) for field in fields if pa.types.is_map(field.type)}
        _check_names(fields, path)
        inner: list[str] = []
        lines = []
        for number, field in enumerate(fields, 1):
            below = path_below(path, field.name)
            if not NAME.fullmatch(field.name):
                raise SchemaError(
                    f"field '{below}' cannot be a Protobuf field: its name must be letters, digits and '_', and not begin with "
                    "a digit. Rename it"
                )
            if field.name in {each.name for each in fields[: number - 1]}:
                raise SchemaError(f"field '{below}' is in the column twice. Rename one of them")
            own = _camel_case(field.name)
            while own in taken:
                own += "_"
            found = self._field(field, own, below, frozenset({name, *outer}), inner)
            if inner:
                taken.add(own)
            lines += [*inner, f"{found} {field.name} = {number};"]
            inner.clear()
        return [f"message {name} {{", *(f"  {line}" for line in lines), "}"]

    def _field(self, field: pa.Field[Any], own: str, path: str, outer: frozenset[str], inner: list[str]) -> str:
        """Return a field's label and type; a message that it needs goes to `inner`, under the name `own`."""
        kind = field.type
        if pa.types.is_list(kind) or pa.types.is_large_list(kind):
            item = cast("pa.ListType[Any]", kind).value_type
            return f"repeated {self._one(item, own, f'{path}[]', outer, inner)}"
        if pa.types.is_map(kind):
            key = self._one(kind.key_type, own, f"{path}{{}}", outer, inner)
            if key not in _KEYS:
                raise SchemaError(
                    f"field '{path}' is a map whose keys are {arrow_type_name(kind.key_type)}: keys in Protobuf are strings, "
                    "whole numbers or booleans. Cast them"
                )
            return f"map<{key}, {self._one(kind.item_type, own, f'{path}{{}}', outer, inner)}>"
        found = self._one(kind, own, path, outer, inner)
        return f"optional {found}" if field.nullable and not isinstance(kind, pa.StructType) else found

    def _one(self, kind: pa.DataType, own: str, path: str, outer: frozenset[str], inner: list[str]) -> str:
        for is_it, name in _PLAIN:
            if is_it(kind):
                if name in _FILES:
                    self.used.add(name)
                    return f".{name}"
                return name
        if isinstance(kind, pa.StructType):
            inner += self.message(kind, own, path, outer)
            return own
        raise SchemaError(
            f"field '{path}' has type {arrow_type_name(kind)}, which Protobuf does not have there. Cast it, or leave it out"
        )


def _check_names(fields: list[pa.Field[Any]], path: str) -> None:
    """Refuse names that Protobuf takes one by one, but not together, or not for a map."""
    known: dict[str, str] = {}
    for field in fields:
        names = [("JSON", _json_name(field.name))]
        if pa.types.is_map(field.type):
            names.append(("the type of its entries", _entry_name(field.name)))
            if names[1][1][:1].isdigit():
                raise SchemaError(
                    f"field '{path_below(path, field.name)}' cannot be a map in Protobuf, where the name of a map must not begin "
                    "with a digit after '_'. Rename it"
                )
        for what, name in names:
            other = known.setdefault(f"{what} {name}", field.name)
            if other != field.name:
                raise SchemaError(
                    f"field '{path_below(path, field.name)}' cannot be beside '{other}' in Protobuf, where both have the name "
                    f"'{name}' in {what}. Rename one of them"
                )


def _json_name(name: str) -> str:
    """Return the name of a field in Protobuf's JSON, without `_` and with a capital letter after it, as protoc makes it."""
    first, *others = name.split("_")
    return first + "".join(part[:1].upper() + part[1:] for part in others)


def _entry_name(name: str) -> str:
    """Return the name of the message for the entries of a map, as protoc makes it."""
    return "".join(part[:1].upper() + part[1:] for part in name.split("_")) + "Entry"


def _camel_case(name: str) -> str:
    found = "".join(part[:1].upper() + part[1:] for part in name.split("_"))
    return found if found[:1].isalpha() else f"M{found}"
