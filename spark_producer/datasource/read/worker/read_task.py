"""Reads one task on an executor: its offset ranges, as RecordBatches of Spark's columns."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from spark_producer.common.escape import escaping_logger
from spark_producer.consumer.connections import ConnectionCache
from spark_producer.consumer.read_ranges import CONNECTIONS, read_ranges
from spark_producer.consumer.settings import FetchSettings
from spark_producer.datasource.engine import is_sail
from spark_producer.datasource.interpreter import gc_freeze_on_second_task, limit_malloc_trim
from spark_producer.datasource.read.source_settings import SourceSettings
from spark_producer.datasource.read.task_ranges import TopicRangesPartition
from spark_producer.datasource.read.worker.spark_columns import SparkColumns

logger = escaping_logger("pyproducer")


def read_task(settings: SourceSettings, schema: StructType, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """Yield the records of a task's ranges with the columns of `schema`, in the order of offsets in each topic-partition.

    A partition of another class has nothing to read: Spark makes one if the driver planned no task.

    Raises:
        The errors of `read_ranges`. RecordError: a timestamp is beyond those of Spark.
    """
    if not isinstance(partition, TopicRangesPartition):
        return
    gc_freeze_on_second_task()
    limit_malloc_trim()
    columns = SparkColumns(schema, settings.decoded or {})
    rows = 0
    fetching = FetchSettings.from_config(settings.config, fail_on_data_loss=settings.source.fail_on_data_loss)
    connections = ConnectionCache() if is_sail() else CONNECTIONS
    for topic_partition, batch in read_ranges(
        fetching, partition.ranges, columns.needed, partition.topic_ids, connections
    ):
        rows += batch.num_rows
        yield columns.convert(topic_partition, batch)
    if connections is not CONNECTIONS:
        connections.clear()
    logger.info("read %d records of %d topic-partitions", rows, len(partition.ranges))
