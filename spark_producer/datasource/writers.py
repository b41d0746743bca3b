"""The two writers that Spark pickles, for batch and streaming, which share the code of the task and of the commit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from spark_producer.config import ProducerConfig, SinkOptions
from spark_producer.datasource.commit import abort, commit
from spark_producer.datasource.process import freeze_once
from spark_producer.datasource.surface import told_in_short

if TYPE_CHECKING:  # neither the lookup of formats nor the commit touches rows
    import pyarrow as pa


class TaskSettings(NamedTuple):
    """What travels from the driver to the tasks. `own_memory` is true if the user has not set `buffer.memory`."""

    config: ProducerConfig
    sink: SinkOptions
    own_memory: bool = False


def _write_task(settings: TaskSettings, batches: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
    # Imported in the first task: the planner and the commit process need no producer (`python -m benchmarks.imports`).
    from spark_producer.datasource.task import write_task

    return write_task(settings, batches)


class BatchWriter(DataSourceArrowWriter):
    """The writer of `df.write.format("pyproducer")`."""

    def __init__(self, settings: TaskSettings) -> None:
        self.settings = settings

    @told_in_short
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:  # type: ignore[override]  # as pyspark's own
        """Write one partition of the DataFrame (executor)."""
        return _write_task(self.settings, iterator)

    @told_in_short
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Log what was written, when every task has succeeded (driver)."""
        commit(messages, "batch write")
        freeze_once()

    @told_in_short
    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Log what stays in Kafka, when a task has failed for good (driver)."""
        abort(messages, "batch write")


class StreamWriter(DataSourceStreamArrowWriter):
    """The writer of `df.writeStream.format("pyproducer")`."""

    def __init__(self, settings: TaskSettings) -> None:
        self.settings = settings

    @told_in_short
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:  # type: ignore[override]  # as pyspark's own
        """Write one partition of a micro-batch (executor)."""
        return _write_task(self.settings, iterator)

    @told_in_short
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Log what was written, when every task of the micro-batch has succeeded (driver)."""
        commit(messages, f"micro-batch {batchId}")
        freeze_once()

    @told_in_short
    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Log what stays in Kafka, when the micro-batch has failed (driver)."""
        abort(messages, f"micro-batch {batchId}")
