"""A data source whose stream yields constant rows from memory: the floor under every Python source.

It is a module of its own, because the workers import it. With the option `tricks` its tasks do what ours do for speed beside
reading: they acknowledge the JVM's bytes at once, and exclude what is imported from garbage collection.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows
from pyspark.sql.types import StructType

from spark_producer.config import SourceOptions
from spark_producer.datasource.interpreter import gc_freeze_on_second_task
from spark_producer.datasource.read.columns import default_columns
from spark_producer.datasource.spark_compat import arrow_schema
from spark_producer.datasource.task_start import acknowledge_in_task

Offset = dict[str, int]
"""The rows so far, as `{"rows": 100}`."""


class MemorySource(DataSource):
    """The data source of `format("memory-rows")`; its options are `tasks`, `rows` (of a micro-batch) and `tricks`."""

    @classmethod
    def name(cls) -> str:
        return "memory-rows"

    def schema(self) -> StructType:
        return default_columns(SourceOptions())

    def streamReader(self, schema: StructType) -> MemoryReader:  # noqa: N802 - Spark's name
        return MemoryReader(schema, int(self.options["tasks"]), int(self.options["rows"]), "tricks" in self.options)


class RowsPartition(InputPartition):
    """The rows of one task."""

    def __init__(self, rows: int) -> None:
        self.rows = rows


class MemoryReader(DataSourceStreamReader):
    """Divides the rows of each micro-batch among the tasks."""

    def __init__(self, schema: StructType, tasks: int, rows: int, tricks: bool) -> None:
        self.schema, self.tasks, self.rows, self.tricks = schema, tasks, rows, tricks

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if self.tricks:
            acknowledge_in_task()

    def initialOffset(self) -> Offset:  # noqa: N802 - Spark's name
        return {"rows": 0}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        return ReadMaxRows(self.rows)

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802 - Spark's signature
        return {"rows": start["rows"] + self.rows}

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        return [RowsPartition((end["rows"] - start["rows"]) // self.tasks) for _ in range(self.tasks)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if self.tricks:
            gc_freeze_on_second_task()
        if isinstance(partition, RowsPartition):
            yield constant_rows(self.schema.json(), partition.rows)


@cache
def constant_rows(schema: str, rows: int) -> pa.RecordBatch:
    """Return rows with keys of 9 B and values of 100 B, as those of the topics; the schema is Spark's, as JSON."""
    columns = arrow_schema(StructType.fromJson(json.loads(schema)))
    values: dict[str, object] = {"key": b"k" * 9, "value": b"x" * 100, "topic": "stream"}
    arrays = [pa.array([values.get(field.name, 0)] * rows, field.type) for field in columns]
    return pa.RecordBatch.from_arrays(arrays, schema=columns)
