"""The Avro schema of an Arrow type, for columns that bring none (Avro 1.12 specification; Spark's to_avro has the same types)."""

from __future__ import annotations

import re
from typing import Any, cast

import pyarrow as pa

from spark_producer.errors import SchemaError
from spark_producer.schemas.texts import path_below, shown_type

Schema = str | list[Any] | dict[str, Any]
"""An Avro schema as JSON has it."""

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
"""What Avro takes as the name of a field or record."""


def avro_schema(kind: pa.DataType, name: str) -> Schema:
    """Return the schema of values of an Arrow type. Nullable fields become `["null", …]` with the default null.

    Args:
        kind: A type as Spark's structs have it: numbers, texts, bytes, decimals, dates, timestamps in microseconds, lists, maps
            with string keys, and structs of these.
        name: The name of the record; those in its fields are `<name>_<field>`.

    Raises:
        SchemaError: There is no such type in Avro, or no such name; the text names the field.
    """
    return _Naming().schema_of(kind, name, name)


def name_of(text: str) -> str:
    """Return a name that Avro takes for a topic's: every other character becomes `_`."""
    found = re.sub(r"[^A-Za-z0-9_]", "_", text)
    return found if NAME.fullmatch(found) else f"_{found}"


class _Naming:
    """Gives each record of one schema a name of its own."""

    def __init__(self) -> None:
        self._taken: set[str] = set()

    def schema_of(self, kind: pa.DataType, name: str, path: str) -> Schema:
        plain = plain_schema(kind)
        if plain is not None:
            return plain
        if isinstance(kind, pa.StructType):
            return self._record(kind, name, path)
        if pa.types.is_list(kind) or pa.types.is_large_list(kind):
            item = cast("pa.ListType[Any]", kind).value_field
            return {"type": "array", "items": self._nullable(item, name, f"{path}[]")}
        if pa.types.is_map(kind):
            entry = kind
            if not is_text(entry.key_type):
                raise SchemaError(
                    f"field '{path}' is a map whose keys are {shown_type(entry.key_type)}: Avro's are strings; cast them"
                )
            return {"type": "map", "values": self._nullable(entry.item_field, name, f"{path}{{}}")}
        raise SchemaError(
            f"field '{path}' has type {shown_type(kind)}, which Avro does not have: cast it, or leave it out"
        )

    def _record(self, kind: pa.StructType, name: str, path: str) -> Schema:
        while name in self._taken:
            name += "_"
        self._taken.add(name)
        fields: list[dict[str, Any]] = []
        for field in (kind.field(place) for place in range(kind.num_fields)):
            below = path_below(path, field.name)
            if not NAME.fullmatch(field.name):
                raise SchemaError(
                    f"field '{below}' cannot be an Avro field: its name must be letters, digits and '_', and not begin with a "
                    "digit; rename it"
                )
            if field.name in {each["name"] for each in fields}:
                raise SchemaError(f"field '{below}' is there twice; rename one of them")
            found: dict[str, Any] = {"name": field.name, "type": self._nullable(field, f"{name}_{field.name}", below)}
            fields.append(found | ({"default": None} if field.nullable else {}))
        return {"type": "record", "name": name, "fields": fields}

    def _nullable(self, field: pa.Field[Any], name: str, path: str) -> Schema:
        if pa.types.is_null(field.type):
            return "null"
        inner = self.schema_of(field.type, name, path)
        return ["null", inner] if field.nullable else inner


def plain_schema(kind: pa.DataType) -> Schema | None:
    """Return the schema of a type that holds no other; None for those that do, or that Avro does not have."""
    for is_it, schema in _PLAIN:
        if is_it(kind):
            return schema
    if pa.types.is_decimal128(kind):
        return {"type": "bytes", "logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
    if pa.types.is_timestamp(kind) and kind.unit == "us":
        return {"type": "long", "logicalType": "timestamp-micros" if kind.tz else "local-timestamp-micros"}
    if pa.types.is_time64(kind):
        return {"type": "long", "logicalType": "time-micros"}
    return None


def is_text(kind: pa.DataType) -> bool:
    """Whether an Arrow type is a string, or a dictionary of strings."""
    inner = kind.value_type if isinstance(kind, pa.DictionaryType) else kind
    return bool(pa.types.is_string(inner) or pa.types.is_large_string(inner))


def is_binary(kind: pa.DataType) -> bool:
    """Whether an Arrow type is binary, or a dictionary of these."""
    inner = kind.value_type if isinstance(kind, pa.DictionaryType) else kind
    return bool(pa.types.is_binary(inner) or pa.types.is_large_binary(inner))


def is_int(kind: pa.DataType) -> bool:
    """Whether an Arrow type is an integer that Avro's int holds."""
    return bool(pa.types.is_int8(kind) or pa.types.is_int16(kind) or pa.types.is_int32(kind))


_PLAIN: tuple[tuple[Any, Schema], ...] = (
    (pa.types.is_boolean, "boolean"),
    (is_int, "int"),
    (pa.types.is_int64, "long"),
    (pa.types.is_float32, "float"),
    (pa.types.is_float64, "double"),
    (is_text, "string"),
    (is_binary, "bytes"),
    (pa.types.is_date32, {"type": "int", "logicalType": "date"}),
)
