"""A data source that receives Arrow batches and only counts them, which is the floor under every Python sink.

It is a module of its own, because the workers import it. With the option `tricks` the stream does what ours does for speed beside
writing: its tasks acknowledge the JVM's bytes at once, and its processes exclude what is imported from garbage collection.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from spark_producer.datasource.interpreter import freeze_once, gc_freeze_on_second_task
from spark_producer.datasource.jvm_socket import JvmConnection


@dataclass
class Counted(WriterCommitMessage):
    """The number of rows of one task."""

    rows: int


class CountingSource(DataSource):
    """The data source of `format("counting")`; its option `rows` is the number of rows that a batch write must have."""

    @classmethod
    def name(cls) -> str:
        return "counting"

    def writer(self, schema: StructType, overwrite: bool) -> CountingWriter:
        return CountingWriter(int(self.options["rows"]))

    def streamWriter(self, schema: StructType, overwrite: bool) -> CountingStream:  # noqa: N802 - Spark's name
        if "tricks" in self.options:
            freeze_once()
        return CountingStream("tricks" in self.options)


class CountingWriter(DataSourceArrowWriter):
    """Counts the rows, and checks that none is missing."""

    def __init__(self, expected: int) -> None:
        self._expected = expected

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Counted:  # type: ignore[override]  # as pyspark's own
        return Counted(sum(batch.num_rows for batch in iterator))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        counted = sum(message.rows for message in messages if isinstance(message, Counted))
        if counted != self._expected:
            raise RuntimeError(f"{counted} rows counted instead of {self._expected}")


class CountingStream(DataSourceStreamArrowWriter):
    """Counts the rows of each micro-batch, and checks nothing."""

    def __init__(self, tricks: bool) -> None:
        self._tricks = tricks

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Counted:  # type: ignore[override]  # as pyspark's own
        if not self._tricks:
            return Counted(sum(batch.num_rows for batch in iterator))
        jvm = JvmConnection()
        gc_freeze_on_second_task()
        counted = Counted(sum(batch.num_rows for batch in jvm.answered(iterator)))
        jvm.answer_at_once()
        return counted

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Commit nothing, since this is the floor."""
        if self._tricks:
            freeze_once()
