"""The readers of batches and streams, which Spark pickles for the tasks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from spark_producer.datasource.error_boundary import hide_internal_traceback, hide_traceback_of_iterator
from spark_producer.datasource.interpreter import freeze_once
from spark_producer.datasource.read.pushed_filters import PushedFilters
from spark_producer.datasource.read.source_settings import SourceSettings
from spark_producer.datasource.task_format import StampedTask
from spark_producer.datasource.task_start import acknowledge_in_task

if TYPE_CHECKING:  # neither the lookup of a format nor the driver of a stream handles rows
    import pyarrow as pa


class BatchReader(StampedTask, DataSourceReader):
    """The reader of `spark.read.format("pyproducer")`."""

    def __init__(self, settings: SourceSettings, schema: StructType) -> None:
        self.settings = settings
        self.schema = schema
        self.filters = PushedFilters()
        self.__dict__["pushFilters"] = self.filters  # not a method: see `pushed_filters`

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore the reader in a task (executor)."""
        super().__setstate__(state)
        acknowledge_in_task()

    @hide_internal_traceback
    def partitions(self) -> list[InputPartition]:
        """Ask the cluster for offsets, and return the ranges of each task (driver)."""
        from spark_producer.datasource.read.driver.batch_plan import plan_batch

        planned = plan_batch(self.settings, self.filters)
        freeze_once()
        return list(planned)

    @hide_traceback_of_iterator
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the ranges of one task (executor), and yield their rows."""
        from spark_producer.datasource.read.worker.read_task import read_task

        return read_task(self.settings, self.schema, partition)
