"""The Arrow types of Spark's types, for the plan of a column before the first row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    ShortType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from spark_producer.common.escape import for_log
from spark_producer.errors import SchemaError
from spark_producer.schemas.texts import path_below

_PLAIN: dict[type[DataType], Callable[[], pa.DataType]] = {
    BooleanType: pa.bool_,
    ByteType: pa.int8,
    ShortType: pa.int16,
    IntegerType: pa.int32,
    LongType: pa.int64,
    FloatType: pa.float32,
    DoubleType: pa.float64,
    StringType: pa.string,
    BinaryType: pa.binary,
    DateType: pa.date32,
    DayTimeIntervalType: lambda: pa.duration("us"),
    NullType: pa.null,
    TimestampType: lambda: pa.timestamp("us", "UTC"),
    TimestampNTZType: lambda: pa.timestamp("us"),
}


def arrow_type(kind: DataType, path: str) -> pa.DataType:
    """Return the Arrow type of a Spark type, with the nullability of its fields.

    Raises:
        SchemaError: no schema has the type, such as an interval of months or a VARIANT; the message has the field.
    """
    if isinstance(kind, StructType):
        return pa.struct(
            [_field(each.name, each.dataType, each.nullable, path_below(path, each.name)) for each in kind.fields]
        )
    if isinstance(kind, ArrayType):
        return pa.list_(_field("element", kind.elementType, kind.containsNull, f"{path}[]"))
    if isinstance(kind, MapType):
        value: Any = _field(
            "value", kind.valueType, kind.valueContainsNull, f"{path}{{}}"
        )  # the stubs take a type alone
        found: pa.DataType = pa.map_(arrow_type(kind.keyType, f"{path}{{}}"), value)
        return found
    if isinstance(kind, DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    if type(kind).__name__ == "TimeType":  # Spark has it since 4.1
        return pa.time64("ns")
    for spark, arrow in _PLAIN.items():
        if isinstance(kind, spark):
            return arrow()
    raise SchemaError(
        f"field '{path}' has type {for_log(kind.simpleString())}, which no schema has. Cast it, or leave it out"
    )


def _field(name: str, kind: DataType, nullable: bool, path: str) -> pa.Field[Any]:
    return pa.field(name, arrow_type(kind, path), nullable)
