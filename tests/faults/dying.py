"""A data source whose workers die by SIGKILL in the middle of their first attempt.

Owns: when and how they die. Must not know: who writes again, or how often.

Importable in Spark's workers.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StructType

from spark_producer.datasource import PyProducerDataSource
from spark_producer.datasource.write.task_settings import TaskSettings
from spark_producer.datasource.write.worker.task import cached_producer, worker_config
from spark_producer.datasource.write.writers import BatchWriter

FORMAT = "pyproducer_dying"
FATAL_BATCH = 5


class DyingWriter(BatchWriter):
    """Writes as it should, but dies before the last Arrow batches of a first attempt, with earlier ones acknowledged."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:  # type: ignore[override]  # as pyspark's own
        return super().write(mortal(iterator, self.settings))


def mortal(batches: Iterator[pa.RecordBatch], settings: TaskSettings) -> Iterator[pa.RecordBatch]:
    context = TaskContext.get()
    assert context is not None
    for number, batch in enumerate(batches):
        if number == FATAL_BATCH and context.attemptNumber() == 0:
            cached_producer(worker_config(settings)).flush()
            os.kill(os.getpid(), signal.SIGKILL)
        yield batch


class DyingDataSource(PyProducerDataSource):
    """`format("pyproducer_dying")`."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def writer(self, schema: StructType, overwrite: bool) -> DyingWriter:
        return DyingWriter(super().writer(schema, overwrite).settings)
