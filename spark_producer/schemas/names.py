"""The named types of an Avro schema, and the resolution of references to them (Avro 1.12 specification, Names)."""

from __future__ import annotations

from typing import Any

from spark_producer.schemas.types import Schema

PRIMITIVE = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
NAMED = frozenset({"record", "error", "enum", "fixed"})
"""The types that have a name; `error` is a record of Avro's protocols."""

FORMS = PRIMITIVE | NAMED | {"array", "map"}
"""All types but unions; another text is the name of a type."""

NamedTypes = dict[str, dict[str, Any]]
"""The definition of each named type of a schema, by its full name."""


def full_name(schema: dict[str, Any], space: str = "") -> str:
    """Return the name of a named type with its namespace; `space` is the enclosing one."""
    name = str(schema["name"])
    if "." in name:
        return name
    own = schema.get("namespace", space)
    return f"{own}.{name}" if own else name


def space_of(name: str) -> str:
    """Return the namespace within the type with this full name."""
    return name.rpartition(".")[0]


def named_types(schema: Schema) -> NamedTypes:
    """Return all types that a schema defines, also in branches and fields that a value lacks."""
    found: NamedTypes = {}
    left: list[tuple[object, str]] = [(schema, "")]
    seen: set[tuple[int, str]] = set()
    while left:
        each, space = left.pop()
        if (id(each), space) in seen:
            continue
        seen.add((id(each), space))
        if isinstance(each, list):
            left += [(branch, space) for branch in each]
        elif isinstance(each, dict):
            form = each.get("type")
            if isinstance(form, str) and form in NAMED and isinstance(each.get("name"), str):
                full = full_name(each, space)
                found.setdefault(full, each)
                space = space_of(full)
            fields = each.get("fields")
            inner = (
                [field.get("type") for field in fields if isinstance(field, dict)] if isinstance(fields, list) else []
            )
            left += [(part, space) for part in (form, each.get("items"), each.get("values"), *inner)]
    return found


def resolve_name(name: str, space: str, named: NamedTypes) -> tuple[dict[str, Any], str] | None:
    """Return the type that a name refers to in a namespace, and the namespace within it; None if the name is undefined."""
    full = name if "." in name or not space else f"{space}.{name}"
    for each in (full, name):
        if each in named:
            return named[each], space_of(each)
    return None
