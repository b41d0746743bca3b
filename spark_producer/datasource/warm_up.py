"""Starts the Python processes of a batch write before the first write needs them, by a write that sends nothing.

Spark keeps its Python processes for later writes with the same purpose and environment. A registered data source has another
environment than an installed one. So the warm-up takes a write's way through Spark, with a registered data source of its own, and
each process imports what a write imports there.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from spark_producer.datasource.registration import make_active, register_once

if TYPE_CHECKING:
    import pyarrow as pa

ROWS = 4096
"""More rows than an application has cores: Spark makes a task for each core."""


class WarmUpSource(DataSource):
    """The data source of the warm-up, which can be written only."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format, which Spark shows as that of the job."""
        return "pyproducer-warm-up"

    def writer(self, schema: StructType, overwrite: bool) -> WarmUpWriter:  # noqa: ARG002 - Spark's signature
        """Return the writer, after the imports of a write's planner."""
        import spark_producer.datasource.write.planning  # noqa: F401

        return WarmUpWriter()


class WarmUpWriter(DataSourceArrowWriter):
    """A writer that imports what a write imports, and sends nothing."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:  # type: ignore[override]  # as in `writers`
        """Consume the rows, after the imports of a task (executor)."""
        import spark_producer.datasource.write.worker.task  # noqa: F401

        for _ in iterator:
            pass
        return WriterCommitMessage()

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:  # noqa: ARG002 - Spark's signature
        """Import what a commit imports (driver)."""
        import spark_producer.datasource.write.writers  # noqa: F401


def start_warm_up(spark: SparkSession) -> threading.Thread:
    """Start the write in a thread of its own, which does not keep the program from ending; return the thread.

    The calling thread registers the source: two threads at once may change the level of Spark's logger for good.
    """
    register_once(spark, WarmUpSource)
    thread = threading.Thread(target=_write_nothing, args=(spark,), name="pyproducer warm-up", daemon=True)
    thread.start()
    return thread


def _write_nothing(spark: SparkSession) -> None:
    """Write rows with the data source of the warm-up."""
    make_active(spark)
    spark.range(ROWS).write.format(WarmUpSource.name()).mode("append").save()
