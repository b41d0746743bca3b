"""Requests to a registry for the schema of a write, and the texts of schemas that users give."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from spark_producer.config import RegistryOptions
from spark_producer.config.registry_table import ColumnOptions
from spark_producer.errors import ConfigError, RegistryError
from spark_producer.schemas.header_writing import SchemaHeader
from spark_producer.schemas.references import SchemaReference, parse_references
from spark_producer.schemas.registry import AVRO, RegisteredSchema, Registry
from spark_producer.schemas.subjects import Subject
from spark_producer.schemas.wire_format import header_name, header_of, prefix_of

MAX_FILE_BYTES = 1 << 20
"""Maximum size of a schema file in bytes; handwritten schemas are smaller."""


class SchemaLookup(NamedTuple):
    """A request to the registry: the id of a schema under a subject, or, if `schema` is None, the subject's latest schema.

    `kind` is the format of the schema, as in `Registry`, and `references` are the schemas that it refers to. With `only_complete`
    the schema is not looked up: the result is its text with what it refers to.
    """

    options: RegistryOptions
    subject: Subject
    schema: str | None
    kind: str = AVRO
    references: tuple[SchemaReference, ...] = ()
    only_complete: bool = False


FindSchema = Callable[[SchemaLookup], RegisteredSchema]
"""Returns the registry's result for a lookup, or a cached one."""


def query_registry(registry: Registry, lookup: SchemaLookup) -> RegisteredSchema:
    """Return the registry's result for a lookup, mostly by one request. The registry has the lookup's format.

    Raises:
        SchemaIncompatible, RegistryError: as `Registry`.
    """
    if lookup.only_complete:
        return RegisteredSchema(0, registry.complete(lookup.schema or "", lookup.references, "the given schema"))
    subject = registry.subject(lookup.subject)
    if lookup.schema is None:
        return registry.latest(subject)
    if lookup.options.auto_register_schemas:
        return registry.register(subject, lookup.schema, lookup.references)
    return registry.lookup(subject, lookup.schema, lookup.references)


def complete_text(
    text: str, column: ColumnOptions, options: RegistryOptions, kind: str, find_schema: FindSchema
) -> tuple[str, tuple[SchemaReference, ...]]:
    """Return a given schema with those that it refers to, as `RegisteredSchema.text`, and the references.

    Raises:
        ConfigError: the option of the references is wrong. RegistryError: as `Registry.complete`.
    """
    name = f"{column.name}SchemaReferences"
    references = parse_references(column.references and schema_text(column.references, name), name)
    if not references:
        return text, references
    found = find_schema(SchemaLookup(options, "", text, kind, references, only_complete=True))
    return found.text or "", references


def column_framing(
    column: ColumnOptions, found: RegisteredSchema, indexes: tuple[int, ...] = ()
) -> tuple[bytes, SchemaHeader | None]:
    """Return the prefix of a column's values, or no bytes and the header that is in its place.

    Raises:
        RegistryError: the registry gives no GUID for the header.
    """
    if not column.by_header:
        return prefix_of(found.schema_id, indexes), None
    if found.guid is None:
        raise RegistryError(
            f"the registry gives no GUIDs, which {column.name}.schema.id.serializer=HeaderSchemaIdSerializer needs. Leave the "
            "option out: then the schema's id is written before each value"
        )
    return b"", SchemaHeader(header_name(column.name), header_of(found.guid, indexes))


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
