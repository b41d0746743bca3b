"""A function over Spark columns, for other sinks than this one, with the same encoder and the same bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from spark_producer.errors import RecordError
from spark_producer.kernel.arrays import ArrowArray
from spark_producer.schemas.column_format import ColumnFormat, encode_column
from spark_producer.schemas.plan import parse_schema, plan_of
from spark_producer.schemas.types import avro_schema
from spark_producer.schemas.wire_format import prefix_of

if TYPE_CHECKING:
    from pyspark.sql import Column


def to_confluent_avro(
    column: Column | str, schema_id: int, schema: str | None = None, *, fill_missing_fields: bool = False
) -> Column:
    """Return a column of Avro in Confluent's wire format: a zero, the schema's id in four bytes, and the value. Null stays null.

    No registry is used: the caller has registered the schema and knows its id.

    Args:
        column: A column, mostly a struct, or its name.
        schema_id: The id under which the registry has the schema, 0 to 2147483647.
        schema: The Avro schema of that id as JSON; by default it follows from the column's type (docs/avro.md).
        fill_missing_fields: Whether fields of `schema` that the column lacks get their default, or null.

    Raises:
        ValueError: the id is out of range.
        SchemaError: `schema` is not an Avro schema; or, in tasks, column and schema do not match.
        RecordError: in tasks, a value does not fit its schema; the message names the field.
    """
    from pyspark.sql.pandas.functions import arrow_udf

    if not 0 <= schema_id < 1 << 31:
        raise ValueError(f"schema_id must lie between 0 and 2147483647, not {schema_id}")
    prefix = prefix_of(schema_id)
    if schema is not None:
        parse_schema(schema)

    def encode(values: ArrowArray) -> ArrowArray:
        return _encoded(values, prefix, schema, fill_missing_fields)

    encode.__annotations__ = {
        "values": pa.Array,
        "return": pa.Array,
    }  # Spark reads them, and accepts no type variables

    found: Column = arrow_udf(encode, "binary")(column)  # type: ignore[call-overload]  # in the stubs the kind is no default
    return found


def _encoded(values: ArrowArray, prefix: bytes, schema: str | None, fill: bool) -> ArrowArray:
    wanted = avro_schema(values.type, "value") if schema is None else parse_schema(schema)
    encoded, unfit = encode_column(ColumnFormat(prefix, plan_of(wanted, values.type, "value", fill=fill)), values)
    if encoded is None:
        raise RecordError(f"a value does not fit its Avro schema: field '{unfit[0].path}': {unfit[0].reason}")
    return encoded
