"""The types that a Parquet file means and that Parquet's own types do not say: Spark's intervals and VARIANT, and INT96.

Spark keeps the types of its columns in the footer. INT96, in which it writes timestamps by default, is a moment in time for it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import pyarrow as pa
from pyarrow import parquet

from spark_producer.common.escape import for_log

_SPARK_SCHEMA = b"org.apache.spark.sql.parquet.row.metadata"
"""Where Spark's class ParquetReadSupport keeps its schema, as JSON."""

_DAY_TO_SECOND = "interval day to second"


class MeantTypes(NamedTuple):
    """The schema that the batches of a file are to have, and why columns of other types cannot be written, by their names."""

    schema: pa.Schema
    unwritable: dict[str, str]

    def batches(self, found: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield batches in the types that are meant; no value is copied."""
        for batch in found:
            yield batch if batch.schema.equals(self.schema) else batch.cast(self.schema)


def meant_types(file: parquet.ParquetFile) -> MeantTypes:
    """Return the types that the columns of a file are to have."""
    columns = [file.metadata.schema.column(at) for at in range(file.metadata.num_columns)]
    old_times = iter([column.physical_type == "INT96" for column in columns])
    spark = _spark_fields(file.metadata.metadata)
    fields, unwritable = [], {}
    for field in file.schema_arrow:
        planner = _Column(old_times)
        fields.append(field.with_type(planner.meant(field.type, spark.get(field.name))))
        if planner.unwritable:
            unwritable[field.name] = (
                f"it has Spark's type {for_log(planner.unwritable)}, which Parquet keeps in another form: "
                "cast it to string in Spark, or leave it out"
            )
    return MeantTypes(pa.schema(fields), unwritable)


def _spark_fields(metadata: dict[bytes, bytes] | None) -> dict[str, Any]:
    """Return Spark's types as its JSON has them, by the names of the columns; none, if it has not written the file."""
    try:
        return _fields(json.loads((metadata or {}).get(_SPARK_SCHEMA, b"{}")))
    except (ValueError, RecursionError):
        return {}


def _fields(spark: Any) -> dict[str, Any]:
    found = spark.get("fields") if isinstance(spark, dict) else None
    named = [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []
    return {each["name"]: each.get("type") for each in named if isinstance(each.get("name"), str)}


class _Column:
    """Goes through the type of a column. `old_times` says of each of Parquet's leaves, in their order, whether it is INT96."""

    def __init__(self, old_times: Iterator[bool]) -> None:
        self._old_times = old_times
        self.unwritable = ""

    def meant(self, kind: Any, spark: Any) -> Any:
        """Return the type that is meant by an Arrow type; `spark` is Spark's, None if it is not known."""
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
        return field.with_type(self.meant(field.type, spark))

    def _leaf(self, kind: Any, spark: Any) -> Any:
        is_old_time = next(self._old_times, False)
        if is_old_time and pa.types.is_timestamp(kind):
            return pa.timestamp(kind.unit, "UTC")
        if isinstance(spark, str) and spark.startswith("interval"):
            if spark == _DAY_TO_SECOND and pa.types.is_int64(kind):
                return pa.duration("us")
            self.unwritable = spark
        return kind
