"""A JSON Schema together with the schemas that it refers to by `$ref`: one document, whose references are all within it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import urljoin

from spark_producer.errors import SchemaError

_DATA = frozenset({"const", "default", "enum", "examples"})
"""Keywords whose values are data: a `$ref` within them refers to nothing."""

_BY_NAME = frozenset({"$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties", "properties"})
"""Keywords whose values are schemas by names, which are no keywords."""


def complete_json_schema(text: str, references: Mapping[str, str], what: str) -> str:
    """Return a schema that has the other schemas in `$defs`, by the names of their references, and refers to them there.

    A `$ref` is that of a reference if its address is the name, as it is written or resolved against the `$id` of the schema that
    has it, or the `$id` of the other schema. Within the other schemas `#/…` becomes the path in the whole document.

    Args:
        text: The schema as JSON.
        references: The texts of the other schemas, by the names of the references.
        what: The schema, for messages.

    Raises:
        SchemaError: a text is not JSON, or is nested too deeply, or its `$defs` is not an object.
    """
    if not references:
        return text
    own = _parsed(text, what)
    others = {name: _parsed(other, f"'{name}', to which {what} refers,") for name, other in references.items()}
    paths = {name: "#/$defs/" + name.replace("~", "~0").replace("/", "~1") for name in others}
    addresses = {address: paths[name] for name, other in others.items() for address in (_id(other), name) if address}
    try:
        joined = {name: _moved(other, addresses, _id(other), paths[name]) for name, other in others.items()}
        found = _moved(own, addresses, _id(own), "#")
    except RecursionError:
        raise SchemaError(f"{what} is nested too deeply") from None
    if not isinstance(found, dict):
        return text  # `true` and `false` refer to nothing
    own_definitions = found.get("$defs", {})
    if not isinstance(own_definitions, dict):
        raise SchemaError(f"{what} is not a JSON Schema: its $defs is not an object")
    found["$defs"] = own_definitions | joined
    return json.dumps(found, separators=(",", ":"))


def _parsed(text: str, what: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise SchemaError(f"{what} is not JSON") from None


def _id(schema: Any) -> str:
    found = schema.get("$id", schema.get("id")) if isinstance(schema, dict) else None
    return found.rstrip("#") if isinstance(found, str) else ""


def _moved(schema: Any, addresses: Mapping[str, str], base: str, path: str) -> Any:
    """Return a schema that is at `path` of the document, with references to paths of the document."""
    found = _with_paths(schema, addresses, base, path)
    if path != "#" and isinstance(found, dict):
        found.pop("$id", None)
        found.pop("$schema", None)
        if isinstance(found.get("id"), str):
            del found["id"]
    return found


def _with_paths(schema: Any, addresses: Mapping[str, str], base: str, path: str) -> Any:
    if isinstance(schema, list):
        return [_with_paths(each, addresses, base, path) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found: dict[str, Any] = {}
    for name, value in schema.items():
        if name == "$ref" and isinstance(value, str):
            found[name] = _path(value, addresses, base, path)
        elif name in _BY_NAME and isinstance(value, dict):
            found[name] = {each: _with_paths(inner, addresses, base, path) for each, inner in value.items()}
        else:
            found[name] = value if name in _DATA else _with_paths(value, addresses, base, path)
    return found


def _path(reference: str, addresses: Mapping[str, str], base: str, path: str) -> str:
    """Return the path in the document to which a `$ref` refers; other addresses stay as they are."""
    address, _, inner = reference.partition("#")
    if not address:
        return path + inner if inner.startswith("/") or not inner else reference
    for each in (address, urljoin(base, address)):
        if each == base:
            return path + inner
        if each in addresses:
            return addresses[each] + inner
    return reference
