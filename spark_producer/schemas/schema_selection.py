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
from spark_producer.schemas.registry import RegisteredSchema, Registry
from spark_producer.schemas.subjects import subject_of
from spark_producer.schemas.types import Schema, avro_schema, name_of
from spark_producer.schemas.wire_format import parse_indexes, prefix_of

MAX_FILE_BYTES = 1 << 20
"""The most bytes of a schema's file: no schema that people write is larger."""


class SchemaLookup(NamedTuple):
    """What the registry is asked: the id of a schema under a subject, or, if `schema` is None, its latest schema."""

    options: RegistryOptions
    subject: str
    schema: str | None


Ask = Callable[[SchemaLookup], RegisteredSchema]
"""Whoever asks the registry, or remembers what it said."""


def column_format(
    wish: ColumnOptions, kind: pa.DataType | None, topic: str | None, options: RegistryOptions, ask: Ask
) -> ColumnFormat | None:
    """Return the format of a column, or None if its bytes go out as they are.

    Args:
        wish: What the options say of it.
        kind: Its type; None only if it is not Avro.
        topic: The topic of all rows, or None.
        options: How the registry is asked.
        ask: Who asks it.

    Raises:
        ConfigError: An option is wrong.
        SchemaError: The column and its schema disagree, or there is no Avro for its type.
        RegistryError: as `Registry`.
    """
    if not wish.avro:
        if wish.schema_id is None:
            return None
        indexes = parse_indexes(f"{wish.column}MessageIndexes", wish.indexes)
        return ColumnFormat(prefix_of(wish.schema_id, indexes))
    assert kind is not None
    given = None if wish.schema is None else parse_schema(_schema_text(wish), f"{wish.column}Schema")
    schema: Schema
    if wish.schema_id is not None:
        assert given is not None
        schema, schema_id = given, wish.schema_id
    elif options.use_latest_version:
        found = ask(SchemaLookup(options, subject_of(wish, topic, None), None))
        schema, schema_id = parse_schema(found.text or "", "the registry's latest schema"), found.schema_id
    else:
        subject = subject_of(wish, topic, given)
        schema = (
            avro_schema(kind, name_of(f"{topic}_{wish.column}" if topic else wish.column)) if given is None else given
        )
        plan_of(
            schema, kind, wish.column, fill=wish.fill
        )  # the registry must not get a schema that the column does not fit
        schema_id = ask(SchemaLookup(options, subject, json.dumps(schema, separators=(",", ":")))).schema_id
    return ColumnFormat(prefix_of(schema_id), plan_of(schema, kind, wish.column, fill=wish.fill))


def answer(registry: Registry, question: SchemaLookup) -> RegisteredSchema:
    """Ask the registry: once for each question.

    Raises:
        SchemaIncompatible, RegistryError: as `Registry`.
    """
    if question.schema is None:
        return registry.latest(question.subject)
    if question.options.auto_register_schemas:
        return registry.register(question.subject, question.schema)
    return registry.lookup(question.subject, question.schema)


def _schema_text(wish: ColumnOptions) -> str:
    """Return the JSON of a schema that is given itself, or by the path of its file."""
    text = (wish.schema or "").strip()
    if text.startswith(("{", "[", '"')) or not text.endswith((".avsc", ".json")):
        return text
    path = Path(text)
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise ConfigError(f"{wish.column}Schema: {text} is larger than {MAX_FILE_BYTES >> 20} MiB")
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no UTF-8 text"
        raise ConfigError(f"{wish.column}Schema: the file {text!r} cannot be read on the driver: {reason}") from None
