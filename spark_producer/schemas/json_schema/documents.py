"""The text of a JSON Schema as parsed JSON, and the references inside it."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import unquote

from spark_producer.common.escape import for_log
from spark_producer.errors import SchemaError

Schema = bool | dict[str, Any]
"""A JSON Schema as parsed JSON."""

MAX_REFERRED = 100
"""Maximum references that lead from one to the next."""


class SchemaDocument:
    """A JSON Schema, with the definitions that it refers to.

    Raises:
        SchemaError: the text is not JSON, or not a schema; the message calls it `what`.
    """

    def __init__(self, text: str, what: str) -> None:
        self.root = parse_json_schema(text, what)
        self._what = what

    def target(self, schema: dict[str, Any], path: str) -> tuple[Schema, str]:
        """Return the schema that `$ref` leads to, and its pointer; `path` is the field's, for messages.

        Raises:
            SchemaError: it leads out of the document, or nowhere.
        """
        found: Schema = schema
        pointer = ""
        for _ in range(MAX_REFERRED):
            if not isinstance(found, dict) or "$ref" not in found:
                return found, pointer
            pointer = found["$ref"]
            found = self._at(pointer, path)
        raise SchemaError(f"field '{path}': {self._what} has circular references. Correct the schema")

    def _at(self, pointer: object, path: str) -> Schema:
        if not isinstance(pointer, str) or not (pointer == "#" or pointer.startswith("#/")):
            raise SchemaError(
                f"field '{path}': {self._what} refers to {for_log(str(pointer))!r}, which is not inside it. Put the "
                "definition into it, below definitions or $defs"
            )
        found: Any = self.root
        for step in pointer.split("/")[1:]:
            name = unquote(step).replace("~1", "/").replace("~0", "~")
            if isinstance(found, dict) and name in found:
                found = found[name]
            elif isinstance(found, list) and name.isdecimal() and len(name) < 10 and int(name) < len(found):
                found = found[int(name)]
            else:
                raise SchemaError(
                    f"field '{path}': {self._what} refers to {for_log(pointer)!r}, which it does not define. Correct it"
                )
        return checked(found, path, self._what)


def object_of(schema: dict[str, Any], keyword: str, path: str, what: str = "the schema") -> dict[str, Any]:
    """Return the object of a keyword, an empty one if the schema lacks it; `path` is the field's, for messages.

    Raises:
        SchemaError: it is not an object.
    """
    found = schema.get(keyword, {})
    if not isinstance(found, dict):
        raise SchemaError(f"field '{path}': {keyword} of {what} is not an object. Correct the schema")
    return found


def list_of(schema: dict[str, Any], keyword: str, path: str, what: str = "the schema") -> list[Any]:
    """Return the list of a keyword, an empty one if the schema lacks it; `path` is the field's, for messages.

    Raises:
        SchemaError: it is not a list.
    """
    found = schema.get(keyword, [])
    if not isinstance(found, list):
        raise SchemaError(f"field '{path}': {keyword} of {what} is not a list. Correct the schema")
    return found


def type_names(schema: dict[str, Any], path: str) -> list[str] | None:
    """Return the names of types that a schema allows; None if it does not say.

    Raises:
        SchemaError: it names something else.
    """
    if "type" not in schema:
        return None
    given = schema["type"]
    names = [given] if isinstance(given, str) else given
    if not isinstance(names, list) or not all(isinstance(each, str) and each in _NAMES for each in names):
        raise SchemaError(f"field '{path}': the schema has the unknown type {for_log(str(given))}. Correct the schema")
    return names


_NAMES = frozenset(("null", "boolean", "integer", "number", "string", "array", "object"))


def parse_json_schema(text: str, what: str) -> Schema:
    """Return a JSON Schema from its text.

    Raises:
        SchemaError: the text is not JSON, or not a schema; the message calls it `what`.
    """
    try:
        found = json.loads(text)
    except ValueError as error:
        raise SchemaError(f"{what} is not JSON: {error}. Give a JSON Schema, or the path of its .json file") from None
    except RecursionError:
        raise SchemaError(f"{what} is nested too deeply") from None
    if not isinstance(found, bool | dict):
        raise SchemaError(f"{what} is not a JSON Schema: it is {type(found).__name__}, not an object or a boolean")
    return found


def checked(schema: object, path: str, what: str) -> Schema:
    """Return a part of a schema, which must be a schema itself.

    Raises:
        SchemaError: it is neither an object nor a boolean.
    """
    if not isinstance(schema, bool | dict):
        raise SchemaError(f"field '{path}': {what} has {type(schema).__name__} in place of a schema. Correct it")
    return schema
