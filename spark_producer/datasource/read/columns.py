"""The columns of the source: Spark's names and types for them, and the check of a schema that the user gives."""

from __future__ import annotations

import difflib
from collections.abc import Mapping

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from spark_producer.config import SourceOptions
from spark_producer.errors import SchemaError

HEADERS = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))

COLUMNS: dict[str, DataType] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "headers": HEADERS,
}
"""The columns of Spark's Kafka source, in its order; `headers` only with `includeHeaders`."""

MAY_BE_NULL = ("key", "value", "headers")
"""The columns in which a record can have null."""


def default_columns(source: SourceOptions, decoded: Mapping[str, DataType] | None = None) -> StructType:
    """Return the schema of a read for which the user gave none; `decoded` has the types of columns that are decoded."""
    types = decoded or {}
    names = [name for name in COLUMNS if name != "headers" or source.include_headers]
    return StructType([StructField(name, types.get(name, COLUMNS[name])) for name in names])


def check_columns(schema: StructType, source: SourceOptions, decoded: Mapping[str, DataType] | None = None) -> None:
    """Check a schema: it may leave out columns and order them, and only what it names is decoded.

    Raises:
        SchemaError: no columns, an unknown or repeated one, one of another type, or `headers` without `includeHeaders`.
    """
    if not schema.fields:
        raise SchemaError(f"the schema of the read has no columns. Name some of {', '.join(COLUMNS)}")
    for field in schema.fields:
        known = (decoded or {}).get(field.name, COLUMNS.get(field.name))
        if known is None:
            raise SchemaError(_unknown(field.name))
        if field.name == "headers" and not source.include_headers:
            raise SchemaError('column \'headers\' needs .option("includeHeaders", "true")')
        if all_nullable(field.dataType) != all_nullable(known):
            raise SchemaError(
                f"column {field.name!r} of the schema has type {field.dataType.simpleString()}, but is read as "
                f"{known.simpleString()}. Read it so, and cast it afterwards"
            )
        if field.name in MAY_BE_NULL and not field.nullable:
            raise SchemaError(
                f"column {field.name!r} of the schema is NOT NULL, but records may have none. Leave it out"
            )
    if len(set(schema.fieldNames())) < len(schema.fields):
        raise SchemaError(f"two columns have the same name among {', '.join(schema.fieldNames())}. Drop one of them")


def all_nullable(kind: DataType) -> DataType:
    """Return a type all of whose fields may be null, as Spark may have made it."""
    if isinstance(kind, StructType):
        return StructType([StructField(field.name, all_nullable(field.dataType)) for field in kind])
    if isinstance(kind, ArrayType):
        return ArrayType(all_nullable(kind.elementType))
    return MapType(kind.keyType, all_nullable(kind.valueType)) if isinstance(kind, MapType) else kind


def _unknown(name: str) -> str:
    near = difflib.get_close_matches(name, COLUMNS, n=1, cutoff=0.6)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    return f"a read has no column {name!r}.{hint} The columns are {', '.join(COLUMNS)}"
