"""The logical types of a Parquet file that Parquet's own types do not express: Spark's intervals and VARIANT, and INT96.

Spark keeps the types of its columns in the footer. INT96, its default form of timestamps, is a moment in time (with a zone).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import pyarrow as pa
from pyarrow import parquet

from spark_producer.common.escape import for_log

_SPARK_SCHEMA = b"org.apache.spark.sql.parquet.row.metadata"
"""The key in the footer under which Spark (ParquetReadSupport) keeps its schema as JSON."""

_DAY_TO_SECOND = "interval day to second"


class LogicalTypes(NamedTuple):
    """The schema of the batches of a file, and the reasons why columns of other types cannot be written, by name."""

    schema: pa.Schema
    unwritable: dict[str, str]

    def batches(self, found: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield batches with the logical types; no value is copied."""
        for batch in found:
            yield batch if batch.schema.equals(self.schema) else batch.cast(self.schema)


def logical_types(file: parquet.ParquetFile) -> LogicalTypes:
    """Return the logical types of the columns of a file."""
    columns = [file.metadata.schema.column(at) for at in range(file.metadata.num_columns)]
    is_int96 = iter([column.physical_type == "INT96" for column in columns])
    spark = _spark_fields(file.metadata.metadata)
    fields, unwritable = [], {}
    for field in file.schema_arrow:
        planner = _Column(is_int96)
        fields.append(field.with_type(planner.logical_type(field.type, spark.get(field.name))))
        if planner.unwritable:
            unwritable[field.name] = (
                f"it has Spark's type {for_log(planner.unwritable)}, which Parquet stores in another form: "
                "cast it to string in Spark, or leave it out"
            )
    return LogicalTypes(pa.schema(fields), unwritable)


def _spark_fields(metadata: dict[bytes, bytes] | None) -> dict[str, Any]:
    """Return Spark's types in its JSON form, by the names of the columns; empty if Spark did not write the file."""
    try:
        return _fields(json.loads((metadata or {}).get(_SPARK_SCHEMA, b"{}")))
    except (ValueError, RecursionError):
        return {}


def _fields(spark: Any) -> dict[str, Any]:
    found = spark.get("fields") if isinstance(spark, dict) else None
    named = [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []
    return {each["name"]: each.get("type") for each in named if isinstance(each.get("name"), str)}


class _Column:
    """Traverses the type of a column. `is_int96` has an element for each leaf of Parquet's schema, in order."""

    def __init__(self, is_int96: Iterator[bool]) -> None:
        self._is_int96 = is_int96
        self.unwritable = ""

    def logical_type(self, kind: Any, spark: Any) -> Any:
        """Return the logical type of an Arrow type; `spark` is Spark's type, or None if that is unknown."""
        if spark == "variant":
            self.unwritable = "variant"
        parts = spark if isinstance(spark, dict) else {}
        if isinstance(kind, pa.StructType):
            inner = _fields(spark)
            return pa.struct([self._field(field, inner.get(field.name)) for field in kind])
        if pa.types.is_map(kind):
            key = self._field(kind.key_field, parts.get("keyType"))
            return pa.map_(key, self._field(kind.item_field, parts.get("valueType")), kind.keys_sorted)
        if pa.types.is_list(kind):
            return pa.list_(self._field(kind.value_field, parts.get("elementType")))
        if pa.types.is_large_list(kind):
            return pa.large_list(self._field(kind.value_field, parts.get("elementType")))
        if pa.types.is_fixed_size_list(kind):
            return pa.list_(self._field(kind.value_field, parts.get("elementType")), kind.list_size)
        return self._leaf(kind, spark)

    def _field(self, field: Any, spark: Any) -> Any:
        return field.with_type(self.logical_type(field.type, spark))

    def _leaf(self, kind: Any, spark: Any) -> Any:
        is_int96 = next(self._is_int96, False)
        if is_int96 and pa.types.is_timestamp(kind):
            return pa.timestamp(kind.unit, "UTC")
        if isinstance(spark, str) and spark.startswith("interval"):
            if spark == _DAY_TO_SECOND and pa.types.is_int64(kind):
                return pa.duration("us")
            self.unwritable = spark
        return kind
