"""Reads one task on an executor: its offset ranges, as RecordBatches of Spark's columns."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from spark_producer.common.escape import escaping_logger
from spark_producer.common.isolation_level import IsolationLevel
from spark_producer.consumer.read_ranges import read_ranges
from spark_producer.consumer.settings import FetchSettings
from spark_producer.datasource.interpreter import gc_freeze_on_second_task, limit_malloc_trim
from spark_producer.datasource.read.source_settings import SourceSettings
from spark_producer.datasource.read.task_ranges import TopicRangesPartition
from spark_producer.datasource.read.worker.spark_columns import SparkColumns
from spark_producer.network import ConnectionSettings

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
    found = read_ranges(fetch_settings(settings), partition.ranges, columns.needed, partition.topic_ids)
    for topic_partition, batch in found:
        rows += batch.num_rows
        yield columns.convert(topic_partition, batch)
    logger.info("read %d records of %d topic-partitions", rows, len(partition.ranges))


def fetch_settings(settings: SourceSettings) -> FetchSettings:
    """Return how a task fetches.

    Raises:
        ConfigError: as `ConnectionSettings.from_config`.
    """
    config = settings.config
    return FetchSettings(
        connection=ConnectionSettings.from_config(config),
        isolation=IsolationLevel.of(config.isolation_level),
        min_bytes=config.fetch_min_bytes,
        max_bytes=config.fetch_max_bytes,
        max_wait_ms=config.fetch_max_wait_ms,
        partition_bytes=config.max_partition_fetch_bytes,
        client_rack=config.client_rack,
        check_crcs=config.check_crcs,
        fail_on_data_loss=settings.source.fail_on_data_loss,
        timeout=config.default_api_timeout_ms / 1000,
    )
