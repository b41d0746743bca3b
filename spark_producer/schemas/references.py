"""The schemas that a schema of a registry refers to, whatever their format."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from spark_producer.common.escape import for_log
from spark_producer.errors import ConfigError, RegistryError

MAX_REFERENCES = 100
"""Maximum schemas that one schema refers to, directly or not, a request each."""

MAX_REFERRED_BYTES = 16 << 20
"""Maximum characters of the schemas that one schema refers to."""


class UnknownSchema(RegistryError):
    """The registry has no schema with an id, or one of another format, or one that is not complete."""


class SchemaReference(NamedTuple):
    """A schema that another one refers to: the name by which it does, and the subject and version that hold it."""

    name: str
    subject: str
    version: int


class ReferredSchema(NamedTuple):
    """The text of a schema, and the schemas that it refers to."""

    text: str
    references: Sequence[SchemaReference] = ()


def referred_schemas(
    references: Sequence[SchemaReference], schema_of: Callable[[SchemaReference], ReferredSchema], what: str
) -> dict[str, str]:
    """Return the texts of all schemas that a schema refers to, directly or not, by the names under which it does.

    Of several references with one name the first counts, as in Confluent's clients for Java.

    Args:
        references: The references of the schema itself.
        schema_of: Returns the schema of a reference; it raises `UnknownSchema` if there is none.
        what: The schema, for messages.

    Raises:
        UnknownSchema: a schema refers to itself, or to too many others.
    """
    found: dict[str, str] = {}

    def visit(inner: Sequence[SchemaReference], path: tuple[tuple[str, int], ...]) -> None:
        for each in inner:
            below = (*path, (each.subject, each.version))
            if below[-1] in path:
                circle = " -> ".join(f"{for_log(subject)} {version}" for subject, version in below)
                raise UnknownSchema(f"{what} has circular references: {circle}")
            if each.name in found:
                continue
            if len(found) == MAX_REFERENCES:
                raise UnknownSchema(f"{what} refers to more than {MAX_REFERENCES} other schemas")
            schema = schema_of(each)
            found[each.name] = schema.text
            if sum(map(len, found.values())) > MAX_REFERRED_BYTES:
                raise UnknownSchema(
                    f"{what} is too large: the maximum is {MAX_REFERRED_BYTES >> 20} MiB with what it refers to"
                )
            visit(schema.references, below)

    visit(references, ())
    return found


def parse_references(text: str | None, option: str) -> tuple[SchemaReference, ...]:
    """Return the references of an option's text, a JSON list as that of Confluent's `value.refs`; none for None.

    Raises:
        ConfigError: the text is not a list of objects with `name`, `subject` and `version`.
    """
    if text is None:
        return ()
    try:
        given = json.loads(text)
        found = tuple(SchemaReference(each["name"], each["subject"], each["version"]) for each in given)
        if (
            isinstance(given, list)
            and all(map(is_valid_reference, found))
            and len({each.name for each in found}) == len(found)
        ):
            return found
    except (ValueError, TypeError, KeyError, RecursionError):
        pass
    raise ConfigError(
        f'{option} must be a JSON list such as [{{"name": "air.Airport", "subject": "airports-value", "version": 1}}], with '
        "each name once, and -1 for the latest version"
    )


def is_valid_reference(each: SchemaReference) -> bool:
    """Return whether a reference has a name, a subject and a version, -1 for the latest."""
    texts = isinstance(each.name, str) and isinstance(each.subject, str) and bool(each.name and each.subject)
    return texts and type(each.version) is int and (each.version > 0 or each.version == -1)


def with_references(text: str, references: Mapping[str, str]) -> str:
    """Return a schema and those that it refers to as one text, for formats whose schemas cannot be put together."""
    return json.dumps({"schema": text, "references": dict(references)})
