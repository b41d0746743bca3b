"""The plan of a read on the driver: options and schema are checked, then Spark gets the reader."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql.types import DataType, StructType

from spark_producer.config import SourceOptions, parse_source_options
from spark_producer.config.offset_limits import ending_limit, starting_limit
from spark_producer.config.subscription import subscription
from spark_producer.datasource.read.columns import check_columns, default_columns
from spark_producer.datasource.read.driver.rate_limit import seconds_of
from spark_producer.datasource.read.readers import BatchReader
from spark_producer.datasource.read.source_settings import SourceSettings
from spark_producer.datasource.read.stream_readers import StreamReader, stream_reader_of
from spark_producer.datasource.spark_compat import HAS_READ_LIMITS
from spark_producer.errors import ConfigError


def default_schema(options: Mapping[str, str]) -> StructType:
    """Return the columns of a read for which the user gave no schema.

    Raises:
        ConfigError: an option is wrong. SchemaError, RegistryError: as `column_readers`.
    """
    settings = _settings(options)
    return default_columns(settings.source, _types(settings))


def batch_reader(options: Mapping[str, str], schema: StructType) -> BatchReader:
    """Return the reader of a batch.

    Raises:
        ConfigError, SchemaError: an option or a column is wrong. RegistryError: as `column_readers`.
    """
    settings = _settings(options)
    starting_limit(settings.source, streaming=False)
    ending_limit(settings.source)
    check_columns(schema, settings.source, _types(settings))
    return BatchReader(settings, schema)


def stream_reader(options: Mapping[str, str], schema: StructType) -> StreamReader:
    """Return the reader of a stream.

    Raises:
        ConfigError, SchemaError: an option or a column is wrong. RegistryError: as `column_readers`.
    """
    settings = _settings(options)
    _check_stream(settings.source)
    starting_limit(settings.source, streaming=True)
    check_columns(schema, settings.source, _types(settings))
    return stream_reader_of(settings, schema)


def _check_stream(source: SourceOptions) -> None:
    limits = {
        "maxOffsetsPerTrigger": source.max_offsets_per_trigger,
        "minOffsetsPerTrigger": source.min_offsets_per_trigger,
    }
    given = [name for name, value in limits.items() if value is not None]
    if given and not HAS_READ_LIMITS:
        raise ConfigError(
            f"{given[0]} needs Spark 4.2 or newer: earlier versions pass no limits to Python data sources. Leave it out, or "
            "upgrade Spark"
        )
    seconds_of("maxTriggerDelay", source.max_trigger_delay)


def _settings(options: Mapping[str, str]) -> SourceSettings:
    config, source, registry = parse_source_options(options)
    subscription(source)
    if "avro" not in (source.value_format, source.key_format):
        return SourceSettings(config, source)
    from spark_producer.datasource.read.avro_columns import column_readers  # it needs Arrow

    return SourceSettings(config, source, column_readers(config, source, registry))


def _types(settings: SourceSettings) -> dict[str, DataType]:
    """Return the types of the columns that are decoded."""
    if not settings.decoded:
        return {}
    from spark_producer.datasource.read.avro_columns import spark_type

    return {name: spark_type(reader) for name, reader in settings.decoded.items()}
