"""The choice of a column's schema and id, on the driver: from the column, from an option, or from the registry."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from spark_producer.config import RegistryOptions
from spark_producer.config.registry_table import ColumnOptions
from spark_producer.errors import ConfigError
from spark_producer.schemas.column_format import ColumnFormat
from spark_producer.schemas.plan import parse_schema, plan_of
from spark_producer.schemas.references import SchemaReference
from spark_producer.schemas.registry import AVRO, RegisteredSchema, Registry
from spark_producer.schemas.subjects import subject_of
from spark_producer.schemas.types import Schema, avro_schema, name_of
from spark_producer.schemas.wire_format import parse_indexes, prefix_of

MAX_FILE_BYTES = 1 << 20
"""Maximum size of a schema file in bytes; handwritten schemas are smaller."""


class SchemaLookup(NamedTuple):
    """A request to the registry: the id of a schema under a subject, or, if `schema` is None, the subject's latest schema.

    `kind` is the format of the schema, as in `Registry`, and `references` are the schemas that it refers to.
    """

    options: RegistryOptions
    subject: str
    schema: str | None
    kind: str = AVRO
    references: tuple[SchemaReference, ...] = ()


FindSchema = Callable[[SchemaLookup], RegisteredSchema]
"""Returns the registry's result for a lookup, or a cached one."""


def column_format(
    column: ColumnOptions,
    kind: pa.DataType | None,
    topic: str | None,
    options: RegistryOptions,
    find_schema: FindSchema,
) -> ColumnFormat | None:
    """Return the format of a column, or None if its bytes are sent as they are.

    Args:
        column: The options of the column.
        kind: The type of the column; None only if it is not encoded as Avro.
        topic: The topic of all rows, or None.
        options: The options of the registry.
        find_schema: Looks schemas up in the registry.

    Raises:
        ConfigError: an option is wrong.
        SchemaError: the column and its schema do not match, or Avro has no such type.
        RegistryError: as `Registry`.
    """
    if not column.avro:
        if column.schema_id is None:
            return None
        indexes = parse_indexes(f"{column.name}MessageIndexes", column.indexes)
        return ColumnFormat(prefix_of(column.schema_id, indexes))
    assert kind is not None
    given = (
        None
        if column.schema is None
        else parse_schema(schema_text(column.schema, f"{column.name}Schema"), f"{column.name}Schema")
    )
    schema: Schema
    if column.schema_id is not None:
        assert given is not None
        schema, schema_id = given, column.schema_id
    elif options.use_latest_version:
        found = find_schema(SchemaLookup(options, subject_of(column, topic, None), None))
        schema, schema_id = parse_schema(found.text or "", "the registry's latest schema"), found.schema_id
    else:
        subject = subject_of(column, topic, given)
        schema = (
            avro_schema(kind, name_of(f"{topic}_{column.name}" if topic else column.name)) if given is None else given
        )
        plan_of(
            schema, kind, column.name, fill=column.fill
        )  # before registration, so that no schema is registered that the column does not fit
        schema_id = find_schema(SchemaLookup(options, subject, json.dumps(schema, separators=(",", ":")))).schema_id
    return ColumnFormat(prefix_of(schema_id), plan_of(schema, kind, column.name, fill=column.fill))


def query_registry(registry: Registry, lookup: SchemaLookup) -> RegisteredSchema:
    """Return the registry's result for a lookup, by one request. The registry has the lookup's format.

    Raises:
        SchemaIncompatible, RegistryError: as `Registry`.
    """
    if lookup.schema is None:
        return registry.latest(lookup.subject)
    if lookup.options.auto_register_schemas:
        return registry.register(lookup.subject, lookup.schema, lookup.references)
    return registry.lookup(lookup.subject, lookup.schema, lookup.references)


def schema_text(given: str, option: str) -> str:
    """Return the text of a schema, which is given itself or by the path of its file; `option` is for messages.

    Raises:
        ConfigError: the file cannot be read, or is too large.
    """
    text = given.strip()
    if text.startswith(("{", "[", '"')) or not text.endswith((".avsc", ".json", ".proto")):
        return text
    path = Path(text)
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise ConfigError(
                f"{option}: the file {text!r} is larger than {MAX_FILE_BYTES >> 20} MiB. Name a schema file"
            )
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ConfigError(f"{option}: the file {text!r} cannot be read on the driver: {reason}") from None
