"""How a column is written by a JSON Schema: which nulls are written, and what is checked of its values."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any, cast

import pyarrow as pa

from spark_producer.common.escape import for_log
from spark_producer.errors import SchemaError
from spark_producer.record.rendering import KeptFields
from spark_producer.schemas.json_schema.derived_schema import NULL, json_schema
from spark_producer.schemas.json_schema.documents import Schema, SchemaDocument, checked, list_of, object_of, type_names
from spark_producer.schemas.json_schema.encoding import JsonNode, JsonPlan, unfit_rows
from spark_producer.schemas.texts import arrow_type_name, list_names, path_below
from spark_producer.schemas.types import is_binary, is_text

MAX_STEPS = 100_000
"""Maximum schemas that are visited for one column, about a second's work."""


_BESIDE = frozenset(
    ("additionalProperties", "anyOf", "const", "contentEncoding", "enum", "format", "items", "oneOf", "patternProperties",
    "prefixItems", "properties", "required", "type")
)  # fmt: skip
"""The rules about types and fields, which may stand beside alternatives."""

_FILL = "set fillMissingFields=true to fill in its default, or null"


def json_plan(text: str, kind: pa.DataType, path: str, *, validate: bool = False, fill: bool = False) -> JsonPlan:
    """Return the plan for values of an Arrow type. Fields are found by name; `path` is the column's, for messages.

    With `fill`, a required field that the column lacks gets its default, or null. Other fields are absent.

    Raises:
        SchemaError: the schema is not valid, or does not match the type; the message has the field and both types.
    """
    document = SchemaDocument(text, "the schema")
    try:
        node = _Planner(document, fill).plan(document.root, kind, path)
    except RecursionError:
        raise SchemaError(f"field '{path}' or its schema is nested too deeply") from None
    return JsonPlan(node, _kept(node, kind), text if validate else None)


def derived_plan(kind: pa.DataType, path: str) -> JsonPlan:
    """Return the plan for values of an Arrow type by the schema that follows from it.

    Raises:
        SchemaError: JSON has no such type; the message has the field.
    """
    return json_plan(json.dumps(json_schema(kind, path)), kind, path)


def _kept(node: JsonNode, kind: Any) -> KeptFields:
    """Return the fields whose nulls are written: those that must be present, and may be null."""
    if isinstance(kind, pa.StructType) and (node.children or node.constants):
        fields = [kind.field(index) for index in range(kind.num_fields)]
        both = list(zip(fields, node.children, node.required, strict=True))
        below = {field.name: _kept(child, field.type) for field, child, _ in both}
        names = frozenset(field.name for field, child, needed in both if needed and child.takes_null)
        return KeptFields(names, below, dict(node.constants))
    if node.children:
        item = kind.item_type if pa.types.is_map(kind) else kind.value_type
        return KeptFields(below={"": _kept(node.children[0], item)})
    return KeptFields()


class _Planner:
    def __init__(self, document: SchemaDocument, fill: bool) -> None:
        self._document = document
        self._fill = fill
        self._steps = 0

    def plan(self, schema: object, kind: pa.DataType, path: str) -> JsonNode:
        self._count(path)
        found = checked(schema, path, "the schema")
        if isinstance(found, dict) and "$ref" in found:
            found, _ = self._document.target(found, path)
        if found is False:
            raise SchemaError(f"field '{path}': the schema takes no value there. Leave it out")
        if found is True:
            return JsonNode(path)
        if isinstance(found.get("allOf"), list):
            found = self._merged(found, path)
        for keyword in ("oneOf", "anyOf"):
            if isinstance(found.get(keyword), list):
                return self._choice(found, keyword, kind, path)
        return self._plain(found, kind, path)

    def _count(self, path: str) -> None:
        self._steps += 1
        if self._steps > MAX_STEPS:
            raise SchemaError(f"field '{path}': the schema is too large, or can be matched in too many ways")

    def _choice(self, schema: dict[str, Any], keyword: str, kind: pa.DataType, path: str) -> JsonNode:
        """Return the plan of the first branch that takes all values of the type, or of the first one that matches.

        The rules beside the branches apply with each of them.
        """
        branches: list[Any] = schema[keyword]
        beside = {name: each for name, each in schema.items() if name in _BESIDE and name != keyword}
        takes_null = any(self._takes_null(each, path) for each in branches) and self._takes_null(beside, path)
        if pa.types.is_null(kind) and takes_null:
            return JsonNode(path)
        if pa.types.is_null(kind):
            raise SchemaError(f"field '{path}' has type void, which no alternative of the schema accepts")
        nodes, reasons = [], []
        for branch in branches:
            if branch == NULL:
                continue
            try:
                nodes.append(self.plan({"allOf": [beside, branch]} if beside else branch, kind, path))
            except SchemaError as error:
                reasons.append(str(error))
        if not nodes:
            if len(set(reasons)) == 1:
                raise SchemaError(reasons[0])
            raise SchemaError(
                f"field '{path}' has type {arrow_type_name(kind)}, which no alternative of the schema accepts"
            )
        best = next((each for each in nodes if each.symbols is None), nodes[0])
        if len(nodes) > 1 and best.symbols is not None:
            best = best._replace(symbols=frozenset().union(*(each.symbols or () for each in nodes)))
        return best._replace(takes_null=takes_null)

    def _takes_null(self, schema: object, path: str) -> bool:
        try:
            return self.plan(schema, pa.null(), path).takes_null
        except SchemaError:
            return False

    def _merged(self, schema: dict[str, Any], path: str) -> dict[str, Any]:
        """Return the rules of `allOf` as one schema, as far as they are about types and fields."""
        found: dict[str, Any] = {name: each for name, each in schema.items() if name != "allOf"}
        for branch in list_of(schema, "allOf", path):
            self._count(path)
            part = checked(branch, path, "the schema")
            if isinstance(part, dict) and "$ref" in part:
                part, _ = self._document.target(part, path)
            if isinstance(part, dict) and "allOf" in part:
                part = self._merged(part, path)
            if isinstance(part, dict):
                found = _joined(found, part, path)
            elif not part:
                raise SchemaError(f"field '{path}': the schema takes no value there. Leave it out")
        return found

    def _plain(self, schema: dict[str, Any], kind: pa.DataType, path: str) -> JsonNode:
        names = type_names(schema, path)
        takes_null = (names is None or "null" in names) and _allows(schema, None)
        if pa.types.is_null(kind):
            if not takes_null:
                raise _mismatch(path, kind, schema)
            return JsonNode(path)
        allowed = _names(kind) if names is None else [each for each in _names(kind) if each in names]
        if not allowed or not _has_values(schema, allowed):
            raise _mismatch(path, kind, schema)
        node = JsonNode(path, takes_null)
        if is_text(kind):
            return node._replace(symbols=_symbols(schema))
        if isinstance(kind, pa.StructType):
            return self._struct(schema, kind, node)
        if pa.types.is_list(kind) or pa.types.is_large_list(kind):
            items = schema.get("items", True)
            if isinstance(items, list) or schema.get("prefixItems"):
                return node
            field = cast("pa.ListType[Any]", kind).value_field
            return node._replace(children=(self._item(items, field, for_log(f"{path}[]")),))
        if pa.types.is_map(kind):
            return self._map(schema, kind, node)
        return node._replace(rfc_3339=_checked_form(schema, kind, path))

    def _item(self, schema: object, field: pa.Field[Any], path: str) -> JsonNode:
        """Return the plan of items or values. If they are all null, only an empty list or map may fit."""
        try:
            return self.plan(schema, field.type, path)
        except SchemaError:
            if not pa.types.is_null(field.type):
                raise
            return JsonNode(path, takes_null=False)

    def _map(self, schema: dict[str, Any], kind: Any, node: JsonNode) -> JsonNode:
        if not is_text(kind.key_type):
            raise SchemaError(
                f"field '{node.path}' is a map whose keys are {arrow_type_name(kind.key_type)}: names in JSON are strings. "
                "Cast them"
            )
        more = schema.get("additionalProperties", True)
        if more is False and not schema.get("patternProperties"):
            known = list_names(object_of(schema, "properties", node.path))
            raise SchemaError(
                f"field '{node.path}' is a map, but the schema takes only the fields {known}. Make it a struct"
            )
        values = [more] if more is not False else []
        for keyword in ("properties", "patternProperties"):
            values += object_of(schema, keyword, node.path).values()
        below = for_log(f"{node.path}{{}}")
        value = self._item({"allOf": values} if len(values) > 1 else values[0], kind.item_field, below)
        return node._replace(children=(value,), names=tuple(dict.fromkeys(_required(schema, node.path))))

    def _struct(self, schema: dict[str, Any], kind: pa.StructType, node: JsonNode) -> JsonNode:
        properties, required = object_of(schema, "properties", node.path), _required(schema, node.path)
        names = [kind.field(index).name for index in range(kind.num_fields)]
        for name in names:
            if names.count(name) > 1:
                raise SchemaError(f"field '{path_below(node.path, name)}' is in the column twice. Rename one of them")
        missing = [name for name in dict.fromkeys(required) if name not in names]
        constants = tuple((name, self._missing(properties.get(name, True), name, names, node.path)) for name in missing)
        children = tuple(self._fields(schema, properties, required, kind, node.path))
        return node._replace(children=children, required=tuple(name in required for name in names), constants=constants)

    def _missing(self, schema: object, name: str, names: list[str], path: str) -> str:
        """Return the JSON of a required field that the column lacks: its default, or null."""
        below = path_below(path, name)
        found = checked(schema, below, "the schema")
        target = self._document.target(found, below)[0] if isinstance(found, dict) and "$ref" in found else found
        given = [each["default"] for each in (found, target) if isinstance(each, dict) and "default" in each]
        takes_null = self._takes_null(found, below)
        if self._fill and (given or takes_null):
            return self._default(found, given[0], below) if given else "null"
        advice = f"Add it, or {_FILL}" if given or takes_null else "Add it"
        raise SchemaError(
            f"field '{below}' is required by the schema, but not in the column, whose fields are {list_names(names)}. {advice}"
        )

    def _default(self, schema: Schema, value: Any, path: str) -> str:
        """Return a default as JSON, after a check that the schema takes it."""
        try:
            column: Any = pa.array([value])
            if not pa.types.is_null(column.type) and not unfit_rows(self.plan(schema, column.type, path), column):
                return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
            if value is None and self.plan(schema, column.type, path).takes_null:
                return "null"
        except (SchemaError, ValueError, TypeError, OverflowError):
            pass
        raise SchemaError(
            f"field '{path}': the schema's default is not a value of its type. Add the field to the column"
        )

    def _fields(
        self, schema: dict[str, Any], properties: dict[str, Any], required: list[Any], kind: pa.StructType, path: str
    ) -> Iterator[JsonNode]:
        others: Schema = schema.get("additionalProperties", not properties or bool(schema.get("patternProperties")))
        for field in (kind.field(index) for index in range(kind.num_fields)):
            below = path_below(path, field.name)
            if field.name not in properties and others is False:
                raise SchemaError(
                    f"field '{below}' is not in the schema, whose fields are {list_names(properties)}. Leave it out"
                )
            if pa.types.is_null(field.type) and field.name not in required:
                yield JsonNode(below)  # it is never written
            else:
                yield self.plan(properties.get(field.name, others), field.type, below)


def _required(schema: dict[str, Any], path: str) -> list[str]:
    found = list_of(schema, "required", path)
    if not all(isinstance(each, str) for each in found):
        raise SchemaError(f"field '{path}': required of the schema is not a list of names. Correct the schema")
    return found


def _joined(first: dict[str, Any], second: dict[str, Any], path: str) -> dict[str, Any]:
    """Return the rules of two schemas that both apply."""
    found = {**first, **second}
    for each in (first, second):
        _required(each, path), object_of(each, "properties", path), list_of(each, "enum", path), type_names(each, path)
    for name in first.keys() & second.keys() & _JOINS.keys():
        found[name] = _JOINS[name](first[name], second[name])
    return found


def _joined_types(first: Any, second: Any) -> list[Any]:
    one, other = ([each] if isinstance(each, str) else each for each in (first, second))
    whole = ["integer"] if {"integer", "number"} & set(one) and {"integer", "number"} & set(other) else []
    return [each for each in one if each in other] or (whole if "integer" in (*one, *other) else [])


def _joined_schemas(first: Any, second: Any) -> Any:
    return False if first is False or second is False else {"allOf": [first, second]}


def _joined_properties(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    both = {name: {"allOf": [first[name], second[name]]} for name in first.keys() & second.keys()}
    return {**first, **second, **both}


_JOINS: dict[str, Callable[[Any, Any], Any]] = {
    "additionalProperties": _joined_schemas,
    "enum": lambda first, second: [each for each in first if each in second],
    "items": _joined_schemas,
    "properties": _joined_properties,
    "required": lambda first, second: [*first, *second],
    "type": _joined_types,
}
"""How rules are joined that two schemas have; of others the second one counts."""


def _names(kind: pa.DataType) -> tuple[str, ...]:
    """Return the names of a schema's types that take all values of an Arrow type."""
    if pa.types.is_boolean(kind):
        return ("boolean",)
    if pa.types.is_integer(kind):
        return ("integer", "number")
    if pa.types.is_decimal(kind):
        return ("integer", "number") if kind.scale == 0 else ("number",)
    if pa.types.is_floating(kind):
        return ("number",)
    if isinstance(kind, pa.StructType) or pa.types.is_map(kind):
        return ("object",)
    return ("array",) if pa.types.is_list(kind) or pa.types.is_large_list(kind) else ("string",)


def _allows(schema: dict[str, Any], value: object) -> bool:
    """Return whether `enum` and `const` take a value."""
    values = schema.get("enum")
    return (not isinstance(values, list) or value in values) and schema.get("const", value) == value


def _has_values(schema: dict[str, Any], names: Iterable[str]) -> bool:
    """Return whether `enum` and `const` take a value of one of these types."""
    values = [schema["const"]] if "const" in schema else schema.get("enum")
    if not isinstance(values, list):
        return True
    kinds = tuple(each for name in names for each in _PYTHON[name])
    return any(isinstance(each, kinds) and (bool in kinds or not isinstance(each, bool)) for each in values)


_PYTHON: dict[str, tuple[type, ...]] = {
    "array": (list,), "boolean": (bool,), "integer": (int, float), "number": (int, float), "object": (dict,), "string": (str,),
}  # fmt: skip


def _symbols(schema: dict[str, Any]) -> frozenset[str] | None:
    values = [schema["const"]] if "const" in schema else schema.get("enum")
    return None if not isinstance(values, list) else frozenset(each for each in values if isinstance(each, str))


_FORMATS: dict[str, tuple[Any, str]] = {
    "date": (pa.types.is_date, "a date"),
    "date-time": (lambda kind: pa.types.is_timestamp(kind) and kind.tz is not None, "a timestamp"),
}
"""The formats that the texts of columns must have, and the types of these columns. A string is taken as it is."""


def _checked_form(schema: dict[str, Any], kind: pa.DataType, path: str) -> bool:
    """Return whether a value's text must be that of RFC 3339.

    Raises:
        SchemaError: texts of the type do not have the format, or the encoding, of the schema.
    """
    if is_binary(kind) != (schema.get("contentEncoding") == "base64") and not _allows_base64(schema, kind):
        wanted = "bytes in base64" if schema.get("contentEncoding") == "base64" else "strings"
        raise SchemaError(f"field '{path}' has type {arrow_type_name(kind)}, but the schema says {wanted}. Cast it")
    form = schema.get("format")
    if not isinstance(form, str) or form not in _FORMATS or "string" not in _names(kind):
        return False
    is_it, what = _FORMATS[form]
    if not is_it(kind):
        raise SchemaError(
            f"field '{path}' has type {arrow_type_name(kind)}, but the schema says the format {form}: {what}, or a string of it. "
            "Cast it"
        )
    return True


def _allows_base64(schema: dict[str, Any], kind: pa.DataType) -> bool:
    """Return whether bytes become base64 although the schema does not say so: it does not say anything else."""
    return is_binary(kind) and "contentEncoding" not in schema and "format" not in schema


def _mismatch(path: str, kind: pa.DataType, schema: dict[str, Any]) -> SchemaError:
    given = schema.get("type")
    names = list_names([given] if isinstance(given, str) else given or ["a value of enum or const"])
    return SchemaError(
        f"field '{path}' has type {arrow_type_name(kind)}, but the schema says {names}. Cast it, or change the schema"
    )
