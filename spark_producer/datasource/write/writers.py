"""The writers for batch and streaming, which Spark pickles, with common code for tasks and commits."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from spark_producer.datasource.error_boundary import hide_internal_traceback
from spark_producer.datasource.interpreter import freeze_once
from spark_producer.datasource.spark_compat import DataSourceStreamArrowWriter
from spark_producer.datasource.task_format import StampedTask
from spark_producer.datasource.task_start import acknowledge_in_task
from spark_producer.datasource.write.driver.commit import ReportedWrite, TaskReport, abort, commit
from spark_producer.datasource.write.task_settings import TaskSettings

if TYPE_CHECKING:  # neither the format lookup nor the commit handles rows
    import pyarrow as pa
    from pyspark.accumulators import Accumulator


class _Writer(StampedTask):
    """A writer that begins an exactly-once write when Spark pickles it for the tasks.

    Pickling is the only hook that Spark calls once per batch before its tasks start. It also creates a writer for the commit of
    each micro-batch, and pickles one twice.
    """

    follower: Accumulator[Any] | None = None
    """The accumulator that sends reports of writes to the program that follows them (`datasource.follow`)."""

    def __init__(self, settings: TaskSettings) -> None:
        self.settings = settings

    def __getstate__(self) -> dict[str, Any]:
        if self._is_exactly_once and self.settings.handle is None:
            from spark_producer.datasource.write.driver.exactly_once_write import begin_write

            self.settings = begin_write(self.settings)
        return self.__dict__

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore the writer in a task (executor), or in the commit of a batch write (driver), which needs no network."""
        super().__setstate__(state)
        if TaskContext.get() is not None:
            acknowledge_in_task()

    @hide_internal_traceback
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write one partition of the DataFrame or micro-batch (executor)."""
        # Imported in the first task: the planner and the commit process need no producer (`python -m benchmarks.imports`).
        from spark_producer.datasource.write.worker.task import write_task

        started, context = time.time(), TaskContext.get()
        report = write_task(self.settings, iterator)
        query = None if context is None else context.getLocalProperty("sql.streaming.queryId")
        return dataclasses.replace(report, started=started, query=query)

    @property
    def _is_exactly_once(self) -> bool:
        return self.settings.sink.exactly_once_id is not None

    def _commit(self, messages: list[WriterCommitMessage | None], what: str, batch: int | None = None) -> None:
        if self._is_exactly_once:
            from spark_producer.datasource.write.driver.exactly_once_write import commit_write

            reported = commit_write(self.settings, messages, what)
        else:
            reported = commit(messages, what)
        self._publish(reported, messages, what, batch)
        freeze_once()

    def _abort(self, messages: list[WriterCommitMessage | None], what: str, batch: int | None = None) -> None:
        if self._is_exactly_once:
            from spark_producer.datasource.write.driver.exactly_once_write import abort_write

            reported = abort_write(self.settings, messages, what)
        else:
            reported = abort(messages, what)
        self._publish(reported, messages, what, batch)

    def _publish(
        self, reported: ReportedWrite, messages: list[WriterCommitMessage | None], what: str, batch: int | None
    ) -> None:
        """Publish the report of the write, if a program follows it or `reportPath` is set."""
        if self.follower is None and self.settings.sink.report_path is None:
            return
        from spark_producer.datasource.write.driver.write_reports import publish

        reports = [message for message in messages if isinstance(message, TaskReport)]
        publish(reported, reports, what, batch, self.settings, self.follower)


class BatchWriter(_Writer, DataSourceArrowWriter):  # type: ignore[misc]  # `write` takes batches, as in pyspark itself
    """The writer of `df.write.format("pyproducer")`."""

    @hide_internal_traceback
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Commit what exactly-once tasks have written, and log it, when every task has succeeded (driver)."""
        self._commit(messages, "batch write")

    @hide_internal_traceback
    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Abort what exactly-once tasks have written, else log what stays in Kafka, when a task has failed for good (driver)."""
        self._abort(messages, "batch write")


class StreamWriter(_Writer, DataSourceStreamArrowWriter):  # type: ignore[misc]  # as above
    """The writer of `df.writeStream.format("pyproducer")`."""

    @hide_internal_traceback
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Commit what exactly-once tasks have written, and log it, when every task of the micro-batch has succeeded (driver)."""
        self._commit(messages, f"micro-batch {batchId}", batchId)

    @hide_internal_traceback
    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Abort what exactly-once tasks have written, else log what stays in Kafka, when the micro-batch has failed (driver)."""
        self._abort(messages, f"micro-batch {batchId}", batchId)
