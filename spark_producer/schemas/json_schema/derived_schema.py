"""The JSON Schema of an Arrow type, for columns without a given one. Connect's annotations keep the widths of numbers."""

from __future__ import annotations

from typing import Any, cast

import pyarrow as pa

from spark_producer.common.escape import for_log
from spark_producer.errors import SchemaError
from spark_producer.schemas.json_schema.column_types import DECIMAL_TITLE
from spark_producer.schemas.texts import arrow_type_name, is_printable, path_below
from spark_producer.schemas.types import is_binary, is_text

DIALECT = "http://json-schema.org/draft-07/schema#"
"""The draft that Confluent's serialisers write by default."""

NULL: dict[str, Any] = {"type": "null"}


def json_schema(kind: pa.DataType, path: str, title: str | None = None) -> dict[str, Any]:
    """Return the schema of values of an Arrow type, such as Spark's structs have. Fields that may be null may also be absent.

    Args:
        kind: The type.
        path: The column's name, for messages.
        title: The title of the schema, which is its name in the strategies of subjects.

    Raises:
        SchemaError: JSON has no such type; the message has the field.
    """
    named = {} if title is None else {"title": title}
    return {"$schema": DIALECT, **named, **_schema(kind, path)}


def _schema(kind: pa.DataType, path: str) -> dict[str, Any]:
    for is_it, schema in _PLAIN:
        if is_it(kind):
            return dict(schema)
    if pa.types.is_decimal128(kind):
        parameters = {"scale": str(kind.scale), "connect.decimal.precision": str(kind.precision)}
        return {"type": "number", "title": DECIMAL_TITLE, "connect.type": "bytes", "connect.parameters": parameters}
    if pa.types.is_timestamp(kind):
        return {"type": "string", "format": "date-time" if kind.tz else "date-time-local"}
    if isinstance(kind, pa.StructType):
        return _object(kind, path)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        item = cast("pa.ListType[Any]", kind).value_field
        return {"type": "array", "items": _nullable(item, for_log(f"{path}[]"))}
    if pa.types.is_map(kind):
        if not is_text(kind.key_type):
            raise SchemaError(
                f"field '{path}' is a map whose keys are {arrow_type_name(kind.key_type)}: names in JSON are strings. Cast them"
            )
        return {"type": "object", "additionalProperties": _nullable(kind.item_field, for_log(f"{path}{{}}"))}
    raise SchemaError(
        f"field '{path}' has type {arrow_type_name(kind)}, which JSON does not have. Cast it, or leave it out"
    )


def _object(kind: pa.StructType, path: str) -> dict[str, Any]:
    """Return the schema of a struct. It takes no other names, since only then may later versions have further fields."""
    fields = [kind.field(index) for index in range(kind.num_fields)]
    properties: dict[str, Any] = {}
    for field in fields:
        below = path_below(path, field.name)
        if not field.name or not is_printable(field.name):
            raise SchemaError(f"field '{below}' has no printable name. Rename it")
        if field.name in properties:
            raise SchemaError(f"field '{below}' is in the column twice. Rename one of them")
        properties[field.name] = _nullable(field, below)
    required = [field.name for field in fields if not field.nullable and not pa.types.is_null(field.type)]
    needed = {"required": required} if required else {}
    return {"type": "object", "properties": properties, **needed, "additionalProperties": False}


def _nullable(field: pa.Field[Any], path: str) -> dict[str, Any]:
    inner = _schema(field.type, path)
    return {"oneOf": [NULL, inner]} if field.nullable and inner != NULL else inner


_PLAIN: tuple[tuple[Any, dict[str, Any]], ...] = (
    (pa.types.is_null, NULL),
    (pa.types.is_boolean, {"type": "boolean"}),
    (pa.types.is_int8, {"type": "integer", "connect.type": "int8"}),
    (pa.types.is_int16, {"type": "integer", "connect.type": "int16"}),
    (pa.types.is_int32, {"type": "integer", "connect.type": "int32"}),
    (pa.types.is_int64, {"type": "integer", "connect.type": "int64"}),
    (pa.types.is_float32, {"type": "number", "connect.type": "float32"}),
    (pa.types.is_float64, {"type": "number", "connect.type": "float64"}),
    (is_text, {"type": "string"}),
    (is_binary, {"type": "string", "contentEncoding": "base64"}),
    (pa.types.is_date32, {"type": "string", "format": "date"}),
    (pa.types.is_time64, {"type": "string", "format": "time-local"}),
    (pa.types.is_duration, {"type": "string"}),
)
