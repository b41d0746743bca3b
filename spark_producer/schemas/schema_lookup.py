"""Requests to a registry for the schema of a write, and the texts of schemas that users give."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from spark_producer.config import RegistryOptions
from spark_producer.errors import ConfigError
from spark_producer.schemas.references import SchemaReference
from spark_producer.schemas.registry import AVRO, RegisteredSchema, Registry

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
