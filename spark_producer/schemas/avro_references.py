"""An Avro schema together with the types that it refers to in other schemas: one schema that defines all of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from spark_producer.errors import SchemaError
from spark_producer.schemas.names import FORMS, NAMED, PRIMITIVE, NamedTypes, full_name, named_types, space_of
from spark_producer.schemas.plan import parse_schema
from spark_producer.schemas.types import Schema


def complete_avro_schema(text: str, references: Mapping[str, str], what: str) -> str:
    """Return a schema that defines each type of other schemas where it first refers to it.

    Types have the names of their own schemas. The name of a reference counts too, if it is another one than that of its type.

    Args:
        text: The schema as JSON.
        references: The texts of the other schemas, by the names of the references.
        what: The schema, for messages.

    Raises:
        SchemaError: a text is not an Avro schema, or is nested too deeply.
    """
    if not references:
        return text
    schema = parse_schema(text, what)
    known = named_types(schema)
    joiner = _Joiner(known)
    try:
        for name, other in references.items():
            joiner.add(name, parse_schema(other, f"{name!r}, to which {what} refers,"))
        return json.dumps(joiner.joined(schema, ""), separators=(",", ":"))
    except RecursionError:
        raise SchemaError(f"{what} is nested too deeply") from None


class _Joiner:
    """Joins schemas. `own` has the types that the schema itself defines; they stay where they are."""

    def __init__(self, own: NamedTypes) -> None:
        self._types = dict(own)
        self._full = {name: name for name in own}
        """The full names of types, by the names that refer to them."""
        self._own = frozenset(own)
        self._defined = set(own)

    def add(self, name: str, schema: Schema) -> None:
        """Add the types of another schema, to which a reference of this name refers."""
        for full, definition in named_types(schema).items():
            self._types.setdefault(full, definition)
            self._full.setdefault(full, full)
        if isinstance(schema, dict) and _is_named(schema):
            self._full.setdefault(name, full_name(schema))

    def joined(self, schema: Any, space: str) -> Any:
        """Return a part of a schema in a namespace, with the definitions of types that are not defined yet."""
        if isinstance(schema, list):
            return [self.joined(each, space) for each in schema]
        if isinstance(schema, str) and schema not in PRIMITIVE:
            return self._referred(schema, space)
        if not isinstance(schema, dict):
            return schema
        if not _is_named(schema):
            return self._parts(schema, space)
        full = full_name(schema, space)
        if full in self._own and self._types[full] is schema:
            return self._parts(schema, space_of(full))
        return self._named(full)

    def _referred(self, name: str, space: str) -> Any:
        for each in (name if "." in name or not space else f"{space}.{name}", name):
            if each in self._full:
                return self._named(self._full[each])
        return name

    def _named(self, full: str) -> Any:
        """Return the name of a type that is defined, or its definition."""
        if full in self._defined or full not in self._types:  # a type at a place that has none is the schema's fault
            return full
        self._defined.add(full)
        space, _, name = full.rpartition(".")
        return self._parts(self._types[full], space) | {"name": name, "namespace": space}

    def _parts(self, schema: dict[str, Any], space: str) -> dict[str, Any]:
        found = dict(schema)
        for part in ("type", "items", "values"):
            if part in schema and not (part == "type" and isinstance(schema[part], str) and schema[part] in FORMS):
                found[part] = self.joined(schema[part], space)
        fields = schema.get("fields")
        if isinstance(fields, list):
            found["fields"] = [self._parts(each, space) if isinstance(each, dict) else each for each in fields]
        return found


def _is_named(schema: dict[str, Any]) -> bool:
    form = schema.get("type")
    return isinstance(form, str) and form in NAMED and isinstance(schema.get("name"), str)
