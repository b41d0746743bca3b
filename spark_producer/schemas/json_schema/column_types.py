"""What the values of a JSON Schema become: the Arrow types of columns, and how their JSON is read."""

from __future__ import annotations

import enum
from typing import Any, NamedTuple

import pyarrow as pa

from spark_producer.common.escape import for_log
from spark_producer.errors import SchemaError
from spark_producer.schemas.json_schema.documents import SchemaDocument, checked, object_of, type_names
from spark_producer.schemas.texts import is_printable, path_below

MAX_DEPTH = 64
"""Maximum nesting of objects and arrays that become columns; deeper ones are refused."""

MAX_NODES = 20_000
"""Maximum columns of one schema, whose definitions may be referred to many times."""

_INT64_MAX = (1 << 63) - 1


class JsonForm(enum.Enum):
    """How the JSON of a value becomes a value of its column."""

    BOOLEAN = "a boolean"
    INTEGER = "an integer"
    NUMBER = "a number"
    DECIMAL = "a decimal number"
    STRING = "a string"
    DATE = "a date"
    TIME = "a date and time with an offset"
    LOCAL_TIME = "a date and time without an offset"
    BASE64 = "bytes in base64"
    TEXT = "any JSON"
    OBJECT = "an object"
    MAP = "an object of any names"
    ARRAY = "an array"


class JsonType(NamedTuple):
    """A column: the form of its JSON, its Arrow type, and those of its children, an object's by their names.

    `path` is that of its field, for messages.
    """

    form: JsonForm
    kind: pa.DataType
    path: str
    names: tuple[str, ...] = ()
    children: tuple[JsonType, ...] = ()


def column_type(document: SchemaDocument, path: str) -> JsonType:
    """Return the column for the values of a schema, whose parts that no type of Spark fits become JSON text.

    Raises:
        SchemaError: the schema is not valid, refers to something outside, or is too deep or too large.
    """
    try:
        return _Types(document).of(document.root, _At(path))
    except RecursionError:
        raise SchemaError(f"field '{path}': the schema is nested too deeply") from None


class _At(NamedTuple):
    """A position: the path, the nesting, and the references that are open."""

    path: str
    depth: int = 0
    opened: frozenset[str] = frozenset()

    def below(self, path: str) -> _At:
        return self._replace(path=path, depth=self.depth + 1)


class _Types:
    def __init__(self, document: SchemaDocument) -> None:
        self._document = document
        self._nodes = 0

    def of(self, schema: object, at: _At) -> JsonType:
        self._nodes += 1
        if self._nodes > MAX_NODES:
            raise SchemaError(f"field '{at.path}': the schema has more than {MAX_NODES} fields")
        if at.depth > MAX_DEPTH:
            raise SchemaError(f"field '{at.path}' is nested too deeply: the maximum is {MAX_DEPTH} objects and arrays")
        found = checked(schema, at.path, "the schema")
        if isinstance(found, dict) and "$ref" in found:
            found, pointer = self._document.target(found, at.path)
            if pointer in at.opened:  # a type of Spark has an end
                return _text(at)
            at = at._replace(opened=at.opened | {pointer})
        if isinstance(found, bool):
            return _text(at)
        for keyword in ("oneOf", "anyOf"):
            if keyword in found and not all(map(_only_restricts, _list(found, keyword, at))):
                return self._alternatives(_list(found, keyword, at), at)
        if "allOf" in found:
            return self._all_of(found, at)
        return self._plain(found, _type_name(found, at), at)

    def _alternatives(self, branches: list[Any], at: _At) -> JsonType:
        """Return the type that all branches but null have, or JSON text."""
        types = [self.of(each, at) for each in branches if not _is_null(each)]
        if types and all(each == types[0] for each in types):
            return types[0]
        numbers = {each.form for each in types}
        if numbers == {JsonForm.INTEGER, JsonForm.NUMBER}:
            return JsonType(JsonForm.NUMBER, pa.float64(), at.path)
        return _text(at)

    def _all_of(self, schema: dict[str, Any], at: _At) -> JsonType:
        """Return the only type, or the object with the fields of all."""
        branches = _list(schema, "allOf", at)
        own = {name: each for name, each in schema.items() if name != "allOf"}
        types = [self.of(each, at) for each in branches if not _only_restricts(each)]
        if "properties" in own or "type" in own:
            types.append(self.of(own, at))
        if len(types) == 1:
            return types[0]
        if not types or any(each.form is not JsonForm.OBJECT for each in types):
            return _text(at)
        fields = {name: child for each in types for name, child in zip(each.names, each.children, strict=True)}
        return _object(fields, at)

    def _plain(self, schema: dict[str, Any], name: str | None, at: _At) -> JsonType:
        if name == "object":
            return self._object(schema, at)
        if name == "array":
            items = schema.get("items")
            if not isinstance(items, bool | dict) or schema.get("prefixItems"):
                return _text(at)
            item = self.of(items, at.below(for_log(f"{at.path}[]")))
            return JsonType(JsonForm.ARRAY, pa.list_(pa.field("element", item.kind)), at.path, (), (item,))
        if name == "string":
            return _string(schema, at)
        if name == "integer":
            return _integer(schema, at)
        if name == "number":
            return _number(schema, at)
        if name == "boolean":
            return JsonType(JsonForm.BOOLEAN, pa.bool_(), at.path)
        return _text(at)

    def _object(self, schema: dict[str, Any], at: _At) -> JsonType:
        fields = object_of(schema, "properties", at.path)
        if fields:
            for name in fields:
                if not is_printable(name) or not name:
                    raise SchemaError(f"field '{at.path}': the schema has a property without a printable name")
            return _object(
                {name: self.of(each, at.below(path_below(at.path, name))) for name, each in fields.items()}, at
            )
        more = schema.get("additionalProperties", True)
        if isinstance(more, bool) or schema.get("patternProperties"):
            return _text(at)
        value = self.of(more, at.below(for_log(f"{at.path}{{}}")))
        field: Any = pa.field("value", value.kind)  # the stubs take a type alone
        kind: pa.DataType = pa.map_(pa.string(), field)
        return JsonType(JsonForm.MAP, kind, at.path, (), (value,))


def _object(fields: dict[str, JsonType], at: _At) -> JsonType:
    kind = pa.struct([pa.field(name, each.kind) for name, each in fields.items()])
    return JsonType(JsonForm.OBJECT, kind, at.path, tuple(fields), tuple(fields.values()))


def _text(at: _At) -> JsonType:
    return JsonType(JsonForm.TEXT, pa.string(), at.path)


def _list(schema: dict[str, Any], keyword: str, at: _At) -> list[Any]:
    found = schema[keyword]
    if not isinstance(found, list) or not found:
        raise SchemaError(f"field '{at.path}': {keyword} of the schema is not a list of schemas. Correct the schema")
    return found


def _only_restricts(schema: object) -> bool:
    """Return whether a branch says nothing about types and fields, such as `{"required": ["a"]}`."""
    return isinstance(schema, dict) and not _TYPING & schema.keys()


_TYPING = frozenset(
    (
        "$ref",
        "additionalProperties",
        "allOf",
        "anyOf",
        "const",
        "enum",
        "items",
        "oneOf",
        "prefixItems",
        "properties",
        "type",
    )
)


def _is_null(schema: object) -> bool:
    return isinstance(schema, dict) and schema.get("type") in ("null", ["null"])


def _type_name(schema: dict[str, Any], at: _At) -> str | None:
    """Return the only type of values that are not null, or None if they have several."""
    names = type_names(schema, at.path)
    if names is None:
        return _implied(schema)
    others = {each for each in names if each != "null"}
    if others == {"integer", "number"}:
        return "number"
    return others.pop() if len(others) == 1 else None


def _implied(schema: dict[str, Any]) -> str | None:
    """Return the type that the other words of a schema without one imply."""
    if "properties" in schema or isinstance(schema.get("additionalProperties"), dict):
        return "object"
    if "items" in schema:
        return "array"
    values = [schema["const"]] if "const" in schema else schema.get("enum")
    if isinstance(values, list) and values:
        kinds = {type(each) for each in values if each is not None}
        if len(kinds) == 1:
            return {str: "string", bool: "boolean", int: "integer", float: "number"}.get(kinds.pop())
    return None


def _string(schema: dict[str, Any], at: _At) -> JsonType:
    if schema.get("contentEncoding") == "base64":
        return JsonType(JsonForm.BASE64, pa.binary(), at.path)
    form = schema.get("format")
    if isinstance(form, str) and form in _FORMATS:
        return JsonType(*_FORMATS[form], at.path)
    return JsonType(JsonForm.STRING, pa.string(), at.path)


def _integer(schema: dict[str, Any], at: _At) -> JsonType:
    """Return a long, the narrower type that Connect's annotation names, or a decimal if the bounds need more than 64 bits."""
    bounds = [schema.get(keyword) for keyword in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")]
    if any(isinstance(each, int) and not -_INT64_MAX - 1 <= each <= _INT64_MAX for each in bounds):
        return JsonType(JsonForm.DECIMAL, pa.decimal128(38, 0), at.path)
    named = schema.get("connect.type")
    kind = _INTEGERS.get(named, pa.int64()) if isinstance(named, str) else pa.int64()
    return JsonType(JsonForm.INTEGER, kind, at.path)


def _number(schema: dict[str, Any], at: _At) -> JsonType:
    """Return a double, or the decimal or float that Connect's annotations name."""
    if schema.get("title") == DECIMAL_TITLE:
        parameters = schema.get("connect.parameters")
        given = parameters if isinstance(parameters, dict) else {}
        try:
            precision, scale = int(given.get("connect.decimal.precision", 38)), int(given["scale"])
            return JsonType(JsonForm.DECIMAL, pa.decimal128(precision, scale), at.path)
        except (KeyError, TypeError, ValueError, OverflowError):
            raise SchemaError(
                f"field '{at.path}': the schema's decimal has no scale within 38 digits in connect.parameters. Correct it"
            ) from None
    kind = pa.float32() if schema.get("connect.type") == "float32" else pa.float64()
    return JsonType(JsonForm.NUMBER, kind, at.path)


DECIMAL_TITLE = "org.apache.kafka.connect.data.Decimal"
"""The title by which Connect marks numbers that are decimals."""

_INTEGERS: dict[str, pa.DataType] = {"int8": pa.int8(), "int16": pa.int16(), "int32": pa.int32()}
_FORMATS: dict[str, tuple[JsonForm, pa.DataType]] = {
    "date": (JsonForm.DATE, pa.date32()),
    "date-time": (JsonForm.TIME, pa.timestamp("us", "UTC")),
    "date-time-local": (JsonForm.LOCAL_TIME, pa.timestamp("us")),
}
