"""The columns that a read decodes by a schema: their schemas, and Spark's types for them, on the driver."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from pyspark.sql.types import DataType, StructType

from spark_producer.config import ConsumerConfig, RegistryOptions, SourceOptions
from spark_producer.config.registry_table import read_column
from spark_producer.config.subscription import Assign, Subscribe, subscription
from spark_producer.datasource.read.columns import all_nullable
from spark_producer.errors import ConfigError, RegistryError, SchemaError
from spark_producer.schemas.column_reader import ColumnReader, Reader, column_kind, complete_schema, subject_schemas
from spark_producer.schemas.json_schema.column_reader import json_schema_reader
from spark_producer.schemas.protobuf.column_reader import ReaderSchema, protobuf_reader
from spark_producer.schemas.reader_types import TypeRules
from spark_producer.schemas.references import SchemaReference, parse_references
from spark_producer.schemas.registry import AVRO, JSON, PROTOBUF, SchemaKey
from spark_producer.schemas.schema_lookup import schema_text
from spark_producer.schemas.subjects import subject_of
from spark_producer.schemas.writer_schemas import RegistryAccess, WriterSchemas

NOT_FOUND = 404

_KINDS = {"avro": AVRO, "protobuf": PROTOBUF, "json-schema": JSON}
"""The registry's name of each format."""


def column_readers(
    config: ConsumerConfig, source: SourceOptions, registry: RegistryOptions, schema: StructType | None = None
) -> dict[str, Reader]:
    """Return how the columns with a format are decoded, by their names. The registry is asked for their subjects.

    With the schema of the read only its columns are looked up, and the newest version of the subject with the column's type is
    taken: a newer one may have been registered since the query got its schema.

    Raises:
        ConfigError: a schema is missing, or the registry's client or Protobuf's compiler is not installed. SchemaError: a
            reader's schema is not valid, or Spark has no such type. RegistryError: the registry cannot be reached, or has no
            schema for the column.
    """
    allowed = tuple(rule.strip() for rule in config.secrets_allow.split(",") if rule.strip())
    access = RegistryAccess(registry, allowed, config.default_api_timeout_ms / 1000)
    wanted = None if schema is None else {field.name: field.dataType for field in schema}
    return {
        name: _reader(name, given, source, access, None if wanted is None else wanted[name])
        for name, (form, given) in source.formats.items()
        if form != "raw" and (wanted is None or name in wanted)
    }


def spark_type(reader: Reader) -> DataType:
    """Return Spark's type of a decoded column."""
    from pyspark.sql.pandas.types import from_arrow_type  # it imports pandas' parts of PySpark

    return from_arrow_type(column_kind(reader))


def _reader(
    name: str, given: str | None, source: SourceOptions, access: RegistryAccess, wanted: DataType | None
) -> Reader:
    form = source.formats[name][0]
    access = access._replace(kind=_KINDS[form])
    schema, references = _given(name, given, source, access)
    by_header = access.options.searches_headers(name)
    latest, known = _subject(name, source, access, needed=schema is None)
    if schema is None and latest is None:
        raise ConfigError(
            f"{name}Format={form} needs {name}ReaderSchema for a read of several topics: each of them has a subject of its own"
        )

    def reader_of(registered: str | None) -> Reader:
        if form == "protobuf":
            message = ReaderSchema(schema, source.messages[name], complete=bool(references))
            found = protobuf_reader(name, message, source.mode, known, access, registered)
            return found._replace(by_header=by_header)
        if form == "json-schema":
            validate = access.options.json_fail_invalid_schema
            read = json_schema_reader(name, schema or registered, source.mode, known, access, validate=validate)
            return read._replace(by_header=by_header)
        writers = WriterSchemas(known, access)
        return ColumnReader(name, schema or registered or "", TypeRules(), source.mode, writers, by_header)

    reader = reader_of(latest)
    kind = all_nullable(spark_type(reader))
    if given is None and wanted is not None and kind != all_nullable(wanted):
        return _version_of(reader_of, list(known.values()), wanted) or reader
    return reader


def _given(
    name: str, given: str | None, source: SourceOptions, access: RegistryAccess
) -> tuple[str | None, tuple[SchemaReference, ...]]:
    """Return the given reader's schema with those that it refers to, and the references."""
    if given is None:
        return None, ()
    option = f"{name}ReaderSchemaReferences"
    listed = source.references[name]
    references = parse_references(None if listed is None else schema_text(listed, option), option)
    text = schema_text(given, f"{name}ReaderSchema")
    return complete_schema(access, text, references, f"{name}ReaderSchema") if references else text, references


def _subject(
    name: str, source: SourceOptions, access: RegistryAccess, *, needed: bool
) -> tuple[str | None, dict[SchemaKey, str]]:
    """Return the latest schema of a column's subject and its versions by their ids and GUIDs; nothing for several topics."""
    topic = _only_topic(source)
    if topic is None:
        return None, {}
    try:
        return subject_schemas(access, subject_of(read_column(name, access.options), topic, None))
    except RegistryError as error:
        if needed or error.status != NOT_FOUND:
            raise  # a given schema needs no subject: tasks ask for the ids of values
        return None, {}


def _version_of(reader_of: Callable[[str], Reader], versions: list[str], wanted: DataType) -> Reader | None:
    """Return the reader with the newest of some schemas whose type is `wanted`, or None."""
    for text in reversed(versions):
        with contextlib.suppress(SchemaError):
            other = reader_of(text)
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
