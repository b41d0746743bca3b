"""The plan of a read on the driver: options and schema are checked, then Spark gets the reader."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.types import DataType, StructType

from spark_producer.config.source_parsing import parse_source_options
from spark_producer.config.source_rules import check_batch, check_stream
from spark_producer.datasource.read.columns import check_columns, default_columns
from spark_producer.datasource.read.readers import BatchReader
from spark_producer.datasource.read.source_settings import SourceSettings
from spark_producer.datasource.read.stream_readers import RefusedStreamReader, stream_reader_of
from spark_producer.datasource.spark_compat import HAS_READ_LIMITS
from spark_producer.errors import ConfigError, PyProducerError

OF_TABLES = ("provider", "owner")
"""What Spark adds to the options if it asks for the columns of a table that it creates."""


def default_schema(options: Mapping[str, str]) -> StructType:
    """Return the columns of a read for which the user gave no schema.

    Raises:
        ConfigError: an option is wrong, or Spark creates a table. SchemaError, RegistryError: as `column_readers`.
    """
    if all(name in options for name in OF_TABLES):
        raise ConfigError(
            "CREATE TABLE without columns failed: Spark hands its OPTIONS to no read. Use CREATE TEMPORARY VIEW … OPTIONS (…), "
            "or name the columns, as in CREATE TABLE records (value BINARY) USING pyproducer, and give each SELECT its options: "
            "SELECT value FROM records WITH ('kafka.bootstrap.servers' = …)"
        )
    settings = _settings(options)
    return default_columns(settings.source, _types(settings))


def batch_reader(options: Mapping[str, str], schema: StructType) -> BatchReader:
    """Return the reader of a batch.

    Raises:
        ConfigError, SchemaError: an option or a column is wrong. RegistryError: as `column_readers`.
    """
    settings = _settings(options, schema)
    check_batch(settings.source)
    check_columns(schema, settings.source, _types(settings))
    return BatchReader(settings, schema)


def stream_reader(options: Mapping[str, str], schema: StructType) -> DataSourceStreamReader:
    """Return the reader of a stream. The error of a wrong option or column is raised by the first call of the reader.

    Spark's process cannot bear it here: in place of the error it reports an UnboundLocalError of its own
    (`python_streaming_source_runner.py` of 4.0 to 4.3).
    """
    try:
        settings = _settings(options, schema)
        check_stream(settings.source, has_read_limits=HAS_READ_LIMITS)
        check_columns(schema, settings.source, _types(settings))
    except PyProducerError as error:
        return RefusedStreamReader(error)
    return stream_reader_of(settings, schema)


def _settings(options: Mapping[str, str], schema: StructType | None = None) -> SourceSettings:
    config, source, registry = parse_source_options(options)
    if {source.value_format, source.key_format} == {"raw"}:
        return SourceSettings(config, source)
    from spark_producer.datasource.read.decoded_columns import column_readers  # it needs Arrow

    return SourceSettings(config, source, column_readers(config, source, registry, schema))


def _types(settings: SourceSettings) -> dict[str, DataType]:
    """Return the types of the columns that are decoded."""
    if not settings.decoded:
        return {}
    from spark_producer.datasource.read.decoded_columns import spark_type

    return {name: spark_type(reader) for name, reader in settings.decoded.items()}
