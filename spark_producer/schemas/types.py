"""The Avro schema of an Arrow type, for columns without a given one (Avro 1.12; Spark's to_avro has the same types)."""

from __future__ import annotations

import re
from typing import Any, cast

import pyarrow as pa

from spark_producer.errors import SchemaError
from spark_producer.schemas.texts import arrow_type_name, path_below

Schema = str | list[Any] | dict[str, Any]
"""An Avro schema as parsed JSON."""

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
"""A legal name of a field or record in Avro."""


def avro_schema(kind: pa.DataType, name: str) -> Schema:
    """Return the schema of values of an Arrow type. Nullable fields become `["null", …]` with the default null.

    Args:
        kind: A type of Spark's structs: numbers, texts, bytes, decimals, dates, timestamps in microseconds, lists, maps
            with string keys, and structs of these.
        name: The name of the record; those in its fields are `<name>_<field>`.

    Raises:
        SchemaError: Avro has no such type, or allows no such name; the message has the field.
    """
    return _Naming().schema_of(kind, name, name)


def name_of(text: str) -> str:
    """Return a legal name in Avro for a topic: every illegal character becomes `_`."""
    found = re.sub(r"[^A-Za-z0-9_]", "_", text)
    return found if NAME.fullmatch(found) else f"_{found}"


class _Naming:
    """Builds one schema, with a different name for each record."""

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
                    f"field '{path}' is a map whose keys are {arrow_type_name(entry.key_type)}: keys in Avro are strings. Cast "
                    "them"
                )
            return {"type": "map", "values": self._nullable(entry.item_field, name, f"{path}{{}}")}
        raise SchemaError(
            f"field '{path}' has type {arrow_type_name(kind)}, which Avro does not have. Cast it, or leave it out"
        )

    def _record(self, kind: pa.StructType, name: str, path: str) -> Schema:
        while name in self._taken:
            name += "_"
        self._taken.add(name)
        fields: list[dict[str, Any]] = []
        for field in (kind.field(index) for index in range(kind.num_fields)):
            below = path_below(path, field.name)
            if not NAME.fullmatch(field.name):
                raise SchemaError(
                    f"field '{below}' cannot be an Avro field: its name must be letters, digits and '_', and not begin with a "
                    "digit. Rename it"
                )
            if field.name in {each["name"] for each in fields}:
                raise SchemaError(f"field '{below}' is in the column twice. Rename one of them")
            found: dict[str, Any] = {"name": field.name, "type": self._nullable(field, f"{name}_{field.name}", below)}
            fields.append(found | ({"default": None} if field.nullable else {}))
        return {"type": "record", "name": name, "fields": fields}

    def _nullable(self, field: pa.Field[Any], name: str, path: str) -> Schema:
        if pa.types.is_null(field.type):
            return "null"
        inner = self.schema_of(field.type, name, path)
        return ["null", inner] if field.nullable else inner


def plain_schema(kind: pa.DataType) -> Schema | None:
    """Return the schema of a type without children; None for other types, and for those that Avro does not have."""
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
    """Return whether an Arrow type is a string, or a dictionary of strings."""
    inner = kind.value_type if isinstance(kind, pa.DictionaryType) else kind
    return bool(pa.types.is_string(inner) or pa.types.is_large_string(inner))


def is_binary(kind: pa.DataType) -> bool:
    """Return whether an Arrow type is binary, or a dictionary of binaries."""
    inner = kind.value_type if isinstance(kind, pa.DictionaryType) else kind
    return bool(pa.types.is_binary(inner) or pa.types.is_large_binary(inner))


def is_int(kind: pa.DataType) -> bool:
    """Return whether an Arrow type is an integer of at most 32 bits, as Avro's int."""
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
