"""The checks of a DataFrame's schema, which run on the driver before any task: its columns and their Spark types."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    IntegerType,
    LongType,
    MapType,
    NumericType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
    VariantType,
)

from spark_producer.config import SinkOptions
from spark_producer.errors import SchemaError

MAX_TYPE_LENGTH = 100
"""Maximum characters of a type in a message, since a struct may have hundreds of fields."""

_NESTED = (StructType, ArrayType, MapType, VariantType)
_PLAIN = (NumericType, BooleanType, DateType, TimestampType, TimestampNTZType)
_CASTS: Mapping[str, tuple[tuple[type[DataType], ...], str]] = {
    "value": (_PLAIN, "string"),
    "key": (_PLAIN, "string"),
    "topic": ((*_PLAIN, BinaryType), "string"),
    "partition": ((NumericType, StringType), "int"),
    "timestamp": ((DateType, TimestampNTZType, StringType), "timestamp"),
}
"""By column: the types that a cast can convert, and the target type of that cast."""


def has_formats(sink: SinkOptions) -> bool:
    """Return whether a column is encoded by a schema, or framed with a schema id."""
    encoded = {sink.value_format, sink.key_format} != {"raw"}
    return encoded or sink.value_schema_id is not None or sink.key_schema_id is not None


def check_schema(schema: StructType, sink: SinkOptions) -> None:
    """Check names and types of all columns. A column that is encoded may have any type; its plan is checked afterwards.

    Raises:
        SchemaError: no columns, no `value`, an unknown column, a wrong type, or no way to know the topic.
    """
    if not schema.fields:
        raise SchemaError("the DataFrame has no columns; it needs at least 'value', string or binary")
    encoded = [name for name, form in (("value", sink.value_format), ("key", sink.key_format)) if form != "raw"]
    for field in schema.fields:
        if field.name not in COLUMNS:
            raise SchemaError(_unknown(field.name))
        accepts, description = COLUMNS[field.name]
        if field.name in encoded:
            continue
        if not accepts(field.dataType):
            raise SchemaError(
                f"column {field.name!r} has type {_shown(field.dataType)}; it must be {description}"
                + _remedy(field.name, field.dataType)
            )
    names = set(schema.fieldNames())
    if len(names) < len(schema.fields):
        raise SchemaError(f"two columns have the same name among {', '.join(schema.fieldNames())}. Drop one of them")
    if "value" not in names:
        raise SchemaError("column 'value' is missing: it holds the record's value, string or binary")
    if "key" not in names and (sink.key_format != "raw" or sink.key_schema_id is not None):
        raise SchemaError(
            "keyFormat and keySchemaId are for the column 'key', which is missing. Add it, or drop the option"
        )
    if sink.topic is None and "topic" not in names:
        raise SchemaError("no topic is given. Set .option(\"topic\", …), or add a string column 'topic'")


def _unknown(name: str) -> str:
    near = difflib.get_close_matches(name.lower(), COLUMNS, n=1, cutoff=0.6)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    known = ", ".join(COLUMNS)
    return (
        f"unknown column {name!r}.{hint} The columns are {known}. Drop or rename it, or put all into the value: "
        "spark_producer.as_records(df)"
    )


def _remedy(name: str, kind: DataType) -> str:
    """Return the advice how to convert a column, if one function of Spark can do it, otherwise an empty text."""
    if name in ("value", "key") and isinstance(kind, _NESTED):
        how = f"Write to_json({name}) as {name}"
        return f'. {how}, or set .option("{name}Format", "avro")' if isinstance(kind, StructType) else f". {how}"
    kinds, target = _CASTS.get(name, ((), ""))
    return f". Write cast({name} as {target}) as {name}" if isinstance(kind, kinds) else ""


def _shown(kind: DataType) -> str:
    text = kind.simpleString()
    return text if len(text) <= MAX_TYPE_LENGTH else f"{text[:MAX_TYPE_LENGTH]}…"


def _is_bytes(kind: DataType) -> bool:
    return isinstance(kind, StringType | BinaryType)


def _is_headers(kind: DataType) -> bool:
    if isinstance(kind, MapType):
        return isinstance(kind.keyType, StringType) and _is_bytes(kind.valueType)
    if not isinstance(kind, ArrayType) or not isinstance(kind.elementType, StructType):
        return False
    entry = {field.name: field.dataType for field in kind.elementType.fields}
    return set(entry) == {"key", "value"} and isinstance(entry["key"], StringType) and _is_bytes(entry["value"])


COLUMNS: Mapping[str, tuple[Callable[[DataType], bool], str]] = {
    "value": (_is_bytes, "string or binary"),
    "key": (_is_bytes, "string or binary"),
    "topic": (lambda kind: isinstance(kind, StringType), "string"),
    "partition": (lambda kind: isinstance(kind, IntegerType), "int"),
    "headers": (
        _is_headers,
        "array<struct<key: string, value: binary>> or map<string, binary>, values string or binary",
    ),
    "timestamp": (
        lambda kind: isinstance(kind, TimestampType | LongType),
        "timestamp, or bigint of milliseconds since 1970",
    ),
}
"""Column → the check of its Spark type, and a description of the types that it may have. `record.columns` has the Arrow types."""
