"""The plan of a write on the driver: options, schema and cluster are checked, then Spark gets the writer.

This runs in Spark's planner process, and for a stream also in the commit process, once for each micro-batch.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping

from pyspark.sql.types import StructType

from spark_producer.config import is_set, parse_sink_options
from spark_producer.config.dead_letter_rules import check_dead_letters
from spark_producer.config.exactly_once_rules import TRANSACTION_TIMEOUT, check_exactly_once
from spark_producer.datasource.interpreter import freeze_once
from spark_producer.datasource.write.driver.cluster_check import check_cluster, check_stream
from spark_producer.datasource.write.driver.schema import check_schema, has_formats
from spark_producer.datasource.write.task_settings import TaskSettings
from spark_producer.datasource.write.writers import BatchWriter, StreamWriter
from spark_producer.errors import ConfigError


def batch_writer(options: Mapping[str, str], schema: StructType, *, overwrite: bool) -> BatchWriter:
    """Return the writer of a batch write.

    Raises:
        ConfigError, SchemaError: an option or a column is wrong. BrokersUnreachable, TopicNotFound: the cluster does not
        answer, or does not have the topic. RegistryError: the Schema Registry does not answer, or refuses.
    """
    if overwrite:
        raise ConfigError(
            'a topic cannot be overwritten: records can only be appended. Use mode("append"), the only save mode, although '
            "Spark's own message names Overwrite too"
        )
    settings = _checked_settings(options, schema, streaming=False)
    sink = settings.sink
    check_cluster(
        settings.config, sink.topic, dead_letters=sink.dead_letter_topic, max_block_set=is_set(options, "max.block.ms")
    )
    freeze_once()
    return BatchWriter(settings)


def stream_writer(options: Mapping[str, str], schema: StructType) -> StreamWriter:
    """Return the writer of a micro-batch.

    Raises: as `batch_writer`.
    """
    settings = _checked_settings(options, schema, streaming=True)
    check_stream(settings.config, settings.sink, max_block_set=is_set(options, "max.block.ms"))
    freeze_once()
    return StreamWriter(settings)


def _checked_settings(options: Mapping[str, str], schema: StructType, *, streaming: bool) -> TaskSettings:
    from spark_producer.partitioner import (
        resolve_partitioner,
    )  # it imports numpy and pyarrow, which the lookup of a format does not need

    config, sink, registry = parse_sink_options(options)
    resolve_partitioner(config.partitioner_class)
    timeout_unset = not is_set(options, TRANSACTION_TIMEOUT)
    check_exactly_once(config, sink, streaming=streaming, transaction_timeout_unset=timeout_unset)
    check_dead_letters(config, sink)
    check_schema(schema, sink)
    settings = TaskSettings(
        config,
        sink,
        buffer_memory_unset=not is_set(options, "buffer.memory"),
        transaction_timeout_unset=timeout_unset,
        streaming=streaming,
    )
    if sink.dead_letter_topic is not None:
        settings = settings._replace(write_id=uuid.uuid4().hex)
    if not has_formats(sink):
        return settings
    from spark_producer.datasource.write.column_formats import choose_formats  # it imports pyarrow too

    return settings._replace(formats=choose_formats(schema, config, sink, registry))
