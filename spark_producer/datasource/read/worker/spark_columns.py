"""Converts the columns of records to those of Spark, by the column."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.sql.types import StructType

from spark_producer.common.cluster import TopicPartition
from spark_producer.datasource.spark_compat import arrow_schema
from spark_producer.errors import RecordError
from spark_producer.kernel.arrays import buffer_of, numbers

if TYPE_CHECKING:
    from spark_producer.datasource.read.worker.column_decoding import ColumnDecoding
    from spark_producer.schemas.column_reader import Reader

_SOURCES = {
    "key": "key",
    "value": "value",
    "offset": "offset",
    "timestamp": "timestamp",
    "timestampType": "timestamp_type",
    "headers": "headers",
}
"""The column of a record by that of Spark. The others are the same in all rows of a RecordBatch."""

MAX_TIMESTAMP = ((1 << 63) - 1) // 1000
"""Maximum milliseconds since 1970 of a timestamp of Spark, which has microseconds in 64 bits."""


class SparkColumns:
    """The conversion for one schema of Spark. `needed` has the columns of records that it takes.

    `decoded` has the columns that are decoded, by their names.
    """

    def __init__(self, schema: StructType, decoded: Mapping[str, Reader] | None = None) -> None:
        self._schema = arrow_schema(schema)
        names = frozenset(_SOURCES[name] for name in self._schema.names if name in _SOURCES)
        self._decoding: ColumnDecoding | None = None
        if decoded:
            from spark_producer.datasource.read.worker.column_decoding import (
                ColumnDecoding,  # reads of bytes do without it
            )

            self._decoding = ColumnDecoding(decoded, self._schema.names)
            names |= self._decoding.needed
        self.needed = names or frozenset({"offset"})  # without a column a RecordBatch has no rows
        self._constants: dict[str, tuple[object, Any]] = {}
        """The newest value and array of the columns with one value, by name."""

    def convert(self, topic_partition: TopicPartition, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows of `batch`, which are of one topic-partition, with Spark's columns.

        Raises:
            RecordError: a timestamp is beyond those of Spark. And as `ColumnDecoding.column`.
        """
        arrays = [self._column(field, topic_partition, batch) for field in self._schema]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _column(self, field: pa.Field[Any], topic_partition: TopicPartition, batch: pa.RecordBatch) -> Any:
        if self._decoding is not None and field.name in self._decoding:
            return self._decoding.column(field, topic_partition, batch)
        match field.name:
            case "topic":
                return self._constant(field, topic_partition.topic, batch.num_rows)
            case "partition":
                return self._constant(field, topic_partition.partition, batch.num_rows)
            case "timestamp":
                return _timestamps(batch.column("timestamp"), field.type, topic_partition)
            case "headers":
                return _headers(batch.column("headers"), field.type)
        return batch.column(_SOURCES[field.name])

    def _constant(self, field: pa.Field[Any], value: object, rows: int) -> Any:
        known, array = self._constants.get(field.name, (None, None))
        if known != value or len(array) < rows:
            array = _repeated(value, rows)
            self._constants[field.name] = value, array
        return array.slice(0, rows)


def _repeated(value: object, rows: int) -> Any:
    """Return a column with one value, a text or a number of 32 bits. (`pa.scalar` imports pandas.)"""
    if isinstance(value, int):
        return pa.Array.from_buffers(pa.int32(), rows, [None, buffer_of(np.full(rows, value, np.int32))])
    text = str(value).encode()
    ends = np.arange(rows + 1, dtype=np.int32) * np.int32(len(text))
    return pa.Array.from_buffers(pa.string(), rows, [None, buffer_of(ends), pa.py_buffer(text * rows)])


def _timestamps(column: Any, kind: pa.DataType, topic_partition: TopicPartition) -> Any:
    """Return milliseconds as Spark's timestamps, which have microseconds."""
    milliseconds = numbers(column)
    extremes = (int(milliseconds.min()), int(milliseconds.max())) if len(milliseconds) else ()
    for extreme in extremes:
        if abs(extreme) > MAX_TIMESTAMP:
            raise RecordError(
                f"reading {topic_partition} failed: a record has timestamp {extreme} ms, which Spark's type does not have. "
                "Give the read a schema without the column timestamp, or end it before that record"
            )
    return pa.Array.from_buffers(kind, len(milliseconds), [None, buffer_of(milliseconds * 1000)])


def _headers(column: Any, kind: Any) -> Any:
    """Return headers as Spark's source has them: null if a record has none."""
    entries, offsets = column.values, numbers(column.offsets)
    fields = list(kind.value_type)
    items = pa.StructArray.from_arrays([entries.field("key"), entries.field("value")], fields=fields)
    has_some = np.packbits(offsets[1:] != offsets[:-1], bitorder="little")
    return pa.Array.from_buffers(kind, len(column), [buffer_of(has_some), buffer_of(offsets)], children=[items])
