"""The columns that a read decodes from Avro: their schemas, and Spark's types for them, on the driver."""

from __future__ import annotations

import contextlib

from pyspark.sql.types import DataType, StructType

from spark_producer.config import ConsumerConfig, RegistryOptions, SourceOptions
from spark_producer.config.subscription import Assign, Subscribe, subscription
from spark_producer.datasource.read.columns import all_nullable
from spark_producer.errors import ConfigError, RegistryError, SchemaError
from spark_producer.schemas.column_reader import ColumnReader, column_kind, subject_schemas
from spark_producer.schemas.reader_types import TypeRules
from spark_producer.schemas.schema_selection import schema_text
from spark_producer.schemas.writer_schemas import RegistryAccess, WriterSchemas

NOT_FOUND = 404


def column_readers(
    config: ConsumerConfig, source: SourceOptions, registry: RegistryOptions, schema: StructType | None = None
) -> dict[str, ColumnReader]:
    """Return how the columns with the format `avro` are decoded, by their names. The registry is asked for their subjects.

    With the schema of the read only its columns are looked up, and the newest version of the subject with the column's type is
    taken: a newer one may have been registered since the query got its schema.

    Raises:
        ConfigError: a schema is missing, or the registry's client is not installed. SchemaError: a reader's schema is not valid,
            or Spark has no such type. RegistryError: the registry cannot be reached, or has no schema for the column.
    """
    allowed = tuple(rule.strip() for rule in config.secrets_allow.split(",") if rule.strip())
    access = RegistryAccess(registry, allowed, config.default_api_timeout_ms / 1000)
    wanted = None if schema is None else {field.name: field.dataType for field in schema}
    return {
        name: _reader(name, given, source, access, None if wanted is None else wanted[name])
        for name, (form, given) in source.formats.items()
        if form == "avro" and (wanted is None or name in wanted)
    }


def spark_type(reader: ColumnReader) -> DataType:
    """Return Spark's type of a decoded column."""
    from pyspark.sql.pandas.types import from_arrow_type  # it imports pandas' parts of PySpark

    return from_arrow_type(column_kind(reader))


def _reader(
    name: str, given: str | None, source: SourceOptions, access: RegistryAccess, wanted: DataType | None
) -> ColumnReader:
    schema = None if given is None else schema_text(given, f"{name}ReaderSchema")
    topic = _only_topic(source)
    known: dict[int, str] = {}
    if topic is not None:
        try:
            latest, known = subject_schemas(access, f"{topic}-{name}")
            schema = schema or latest
        except RegistryError as error:
            if schema is None or error.status != NOT_FOUND:
                raise  # a given schema needs no subject: tasks ask for the ids of values
    if schema is None:
        raise ConfigError(
            f"{name}Format=avro needs {name}ReaderSchema for a read of several topics: each of them has a subject of its own"
        )
    reader = ColumnReader(name, schema, TypeRules(), source.mode, WriterSchemas(known, access))
    kind = all_nullable(spark_type(reader))
    if given is None and wanted is not None and kind != all_nullable(wanted):
        return _version_of(reader, list(known.values()), wanted) or reader
    return reader


def _version_of(reader: ColumnReader, versions: list[str], wanted: DataType) -> ColumnReader | None:
    """Return the reader with the newest of some schemas whose type is `wanted`, or None."""
    for text in reversed(versions):
        other = reader._replace(schema=text)
        with contextlib.suppress(SchemaError):
            if all_nullable(spark_type(other)) == all_nullable(wanted):
                return other
    return None


def _only_topic(source: SourceOptions) -> str | None:
    """Return the topic of a read, or None if it has several."""
    match subscription(source):
        case Subscribe(topics):
            names = set(topics)
        case Assign(topic_partitions):
            names = {each.topic for each in topic_partitions}
        case _:
            names = set()
    return names.pop() if len(names) == 1 else None
