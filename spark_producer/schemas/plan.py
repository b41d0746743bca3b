"""The plan by which a column is encoded: its Arrow type against an Avro schema, field by field, before any row comes."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, cast

import pyarrow as pa

from spark_producer.errors import SchemaError
from spark_producer.kernel.avro_columns import NO_MARK, AvroNode, Shape
from spark_producer.schemas.types import Schema, is_binary, is_int, is_text, plain_schema

_PRIMITIVE = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
_LONG_NULL = {"type": "null"}
"""Another way to write the type of null, which some tools use."""

_WIDEST_DECIMAL = 1024
"""The bytes of a fixed decimal. A column's have 16; a schema of a gibibyte would take as much for each row."""

_MOST_STEPS = 100_000
"""The types that are looked at for one column, a second or so."""

_LONGEST_UNION = 64
"""The branches of a union whose index is one byte: none that people write has more."""


def parse_schema(text: str, what: str = "the schema") -> Schema:
    """Return an Avro schema from its JSON; the name of a primitive type may stand without quotes.

    Raises:
        SchemaError: It is no JSON, or no schema's form; `what` names it.
    """
    if text.strip() in _PRIMITIVE:
        return text.strip()
    try:
        found = json.loads(text)
    except ValueError as error:
        raise SchemaError(f"{what} is no JSON: {error}") from None
    except RecursionError:
        raise SchemaError(f"{what} is nested too deeply") from None
    if not isinstance(found, str | list | dict):
        raise SchemaError(f"{what} is no Avro schema: it is {type(found).__name__}, and not a string, list or object")
    return found


def plan_of(schema: Schema, kind: pa.DataType, path: str) -> AvroNode:
    """Return the plan for values of an Arrow type. Fields are found by name; `path` is the column's, for messages.

    A null of the whole column needs no union in the schema, since such a row has no bytes.

    Raises:
        SchemaError: Schema and type disagree; the text names the field, and says what each of them has.
    """
    try:
        return _Planner().plan(schema, kind, path, "")
    except RecursionError:
        raise SchemaError(f"field {path!r} or its schema is nested too deeply") from None


class _Planner:
    """Remembers the named types of one schema while it is read."""

    def __init__(self) -> None:
        self._named: dict[str, dict[str, Any]] = {}
        self._steps = 0

    def plan(self, schema: Schema, kind: pa.DataType, path: str, space: str) -> AvroNode:
        self._steps += 1
        if self._steps > _MOST_STEPS:  # unions of unions multiply
            raise SchemaError(f"field {path!r}: the schema is too large, or its unions have too many ways to be read")
        if isinstance(schema, list):
            return self._union(schema, kind, path, space)
        if not isinstance(schema, str | dict):  # JSON may hold anything, whatever is annotated
            raise SchemaError(f"field {path!r}: the schema has {type(schema).__name__} in the place of a type")
        known, space = self._resolved(schema, path, space)
        if isinstance(known, str):
            known = {"type": known}
        form = known.get("type")
        if isinstance(form, dict | list):
            return self.plan(form, kind, path, space)
        if form in ("record", "error"):
            return self._record(known, kind, path, space)
        if form == "array":
            return self._array(known, kind, path, space)
        if form == "map":
            return self._map(known, kind, path, space)
        return _plain(known, kind, path)

    def _resolved(self, schema: str | dict[str, Any], path: str, space: str) -> tuple[str | dict[str, Any], str]:
        """Return a type by its definition, which is remembered, and the namespace inside of it."""
        if isinstance(schema, str):
            if schema in _PRIMITIVE:
                return schema, space
            full = schema if "." in schema or not space else f"{space}.{schema}"
            found = self._named.get(full) or self._named.get(schema)
            if found is None:
                raise SchemaError(
                    f"field {path!r}: the schema names the type {schema!r}, which it has not defined before"
                )
            return found, full.rpartition(".")[0]
        name = schema.get("name")
        if schema.get("type") in ("record", "error", "enum", "fixed"):
            if not isinstance(name, str) or not name:
                raise SchemaError(f"field {path!r}: the schema has a {schema['type']} without a name")
            full = full_name(schema, space)
            self._named[full] = schema
            return schema, full.rpartition(".")[0]
        return schema, space

    def _union(self, branches: list[Any], kind: pa.DataType, path: str, space: str) -> AvroNode:
        if len(branches) > _LONGEST_UNION:
            raise SchemaError(
                f"field {path!r}: a union of {len(branches)} types is not supported, {_LONGEST_UNION} are"
            )
        branches = ["null" if branch == _LONG_NULL else branch for branch in branches]
        null = branches.index("null") if "null" in branches else None
        reasons = []
        chosen: tuple[int, AvroNode] | None = None
        for place, branch in enumerate(branches):
            if branch == "null":
                continue
            try:
                node = self.plan(branch, kind, path, space)
            except SchemaError as error:
                reasons.append(str(error))
                continue
            if chosen is None or (branch == plain_schema(kind) and chosen[1].shape is node.shape):
                chosen = place, node
        if chosen is None:
            told = (
                reasons[0]
                if len(reasons) == 1
                else f"field {path!r} has type {_short(kind)}, which no type of the union takes"
            )
            raise SchemaError(told)
        return chosen[1]._replace(null_mark=NO_MARK if null is None else 2 * null, value_mark=2 * chosen[0])

    def _record(self, schema: dict[str, Any], kind: pa.DataType, path: str, space: str) -> AvroNode:
        if not isinstance(kind, pa.StructType):
            raise _disagree(path, kind, f"the record {schema.get('name')!r}")
        fields = schema.get("fields")
        if not isinstance(fields, list) or not all(
            isinstance(each, dict) and _is_name(each.get("name")) and "type" in each for each in fields
        ):
            raise SchemaError(
                f"field {path!r}: the schema's record {schema.get('name')!r} has no list of fields with names and types"
            )
        ours = [kind.field(place).name for place in range(kind.num_fields)]
        theirs = [each["name"] for each in fields]
        for name in ours:
            if ours.count(name) > 1:
                raise SchemaError(f"field '{path}.{name}' is there twice; rename one of them")
            if name not in theirs:
                raise SchemaError(
                    f"field '{path}.{name}' is not in the schema, whose fields are {', '.join(theirs)}; leave it out"
                )
        children = []
        for field in fields:
            below = f"{path}.{field['name']}"
            if field["name"] not in ours:
                raise SchemaError(
                    f"field {below!r} of the schema is not in the column, whose fields are {', '.join(ours)}; add it"
                )
            children.append(self.plan(field["type"], kind.field(field["name"]).type, below, space))
        return AvroNode(Shape.RECORD, path, children=tuple(children), names=tuple(theirs))

    def _array(self, schema: dict[str, Any], kind: pa.DataType, path: str, space: str) -> AvroNode:
        if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)):
            raise _disagree(path, kind, "an array")
        item = self.plan(_inner(schema, "items", path), cast("pa.ListType[Any]", kind).value_type, f"{path}[]", space)
        return AvroNode(Shape.ARRAY, path, children=(item,))

    def _map(self, schema: dict[str, Any], kind: pa.DataType, path: str, space: str) -> AvroNode:
        if not pa.types.is_map(kind) or not is_text(kind.key_type):
            raise _disagree(path, kind, "a map, whose keys are strings")
        item = kind.item_type
        value = self.plan(_inner(schema, "values", path), item, f"{path}{{}}", space)
        return AvroNode(Shape.MAP, path, children=(AvroNode(Shape.TEXT, f"{path}{{}}"), value))


def full_name(schema: dict[str, Any], space: str = "") -> str:
    """Return the name of a named type with its namespace."""
    name = str(schema["name"])
    if "." in name:
        return name
    own = schema.get("namespace", space)
    return f"{own}.{name}" if own else name


def _is_name(name: object) -> bool:
    return isinstance(name, str) and name.isprintable()


def _inner(schema: dict[str, Any], part: str, path: str) -> Schema:
    if part not in schema:
        raise SchemaError(f"field {path!r}: the schema has an {schema['type']} without {part!r}")
    return cast("Schema", schema[part])


def _plain(schema: dict[str, Any], kind: pa.DataType, path: str) -> AvroNode:
    form, logical = schema.get("type"), schema.get("logicalType")
    if not isinstance(logical, str):
        logical = None  # Avro ignores a logical type that it does not know
    if form == "enum":
        symbols = schema.get("symbols")
        if not isinstance(symbols, list) or not is_text(kind):
            raise _disagree(path, kind, f"the enum {schema.get('name')!r}, which takes strings")
        return AvroNode(Shape.ENUM, path, symbols=tuple(map(str, symbols)))
    if logical == "decimal" and form in ("bytes", "fixed"):
        return _decimal(schema, kind, path)
    if (form, logical) in _TIMES:
        is_it, divisor = _TIMES[str(form), str(logical)]
        if not is_it(kind):
            raise _disagree(path, kind, f"{form} ({logical})")
        return AvroNode(Shape.LONG, path, divisor=divisor)
    if form in _TAKEN:
        for is_it, shape in _TAKEN[form]:
            if is_it(kind):
                return AvroNode(shape, path)
    raise _disagree(path, kind, f"{form}" + (f" ({logical})" if logical else ""))


def _decimal(schema: dict[str, Any], kind: pa.DataType, path: str) -> AvroNode:
    precision, scale = schema.get("precision"), schema.get("scale", 0)
    told = f"decimal({precision}, {scale})"
    if not pa.types.is_decimal128(kind) or not isinstance(precision, int):
        raise _disagree(path, kind, told)
    if kind.scale != scale or kind.precision > precision:
        raise _disagree(path, kind, f"{told}; cast the field to it")
    width = schema.get("size", 0) if schema["type"] == "fixed" else 0
    if not isinstance(width, int) or width < 0 or (schema["type"] == "fixed" and not width):
        raise SchemaError(f"field {path!r}: the schema has a fixed type without a size")
    if width > _WIDEST_DECIMAL:
        raise SchemaError(f"field {path!r}: a decimal of {width} bytes is not supported, {_WIDEST_DECIMAL} are")
    return AvroNode(Shape.DECIMAL, path, width=width)


def _disagree(path: str, kind: pa.DataType, wanted: str) -> SchemaError:
    return SchemaError(f"field {path!r} has type {_short(kind)}, and the schema wants {wanted}")


def _short(kind: pa.DataType) -> str:
    text = str(kind)
    return text if len(text) <= 100 else f"{text[:100]}…"


def _is_instant(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind) and kind.unit == "us" and kind.tz is not None)


def _is_local(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind) and kind.unit == "us" and kind.tz is None)


_Test = Callable[[pa.DataType], bool]

_TIMES: dict[tuple[object, object], tuple[_Test, int]] = {
    ("int", "date"): (pa.types.is_date32, 1),
    ("long", "timestamp-micros"): (_is_instant, 1),
    ("long", "timestamp-millis"): (_is_instant, 1000),
    ("long", "local-timestamp-micros"): (_is_local, 1),
    ("long", "local-timestamp-millis"): (_is_local, 1000),
}
"""Times, and by what Spark's microseconds are divided for each; the rest is dropped, towards the past."""

_TAKEN: dict[object, tuple[tuple[_Test, Shape], ...]] = {
    "boolean": ((pa.types.is_boolean, Shape.BOOLEAN),),
    "int": ((is_int, Shape.LONG),),
    "long": ((is_int, Shape.LONG), (pa.types.is_int64, Shape.LONG)),
    "float": ((pa.types.is_float32, Shape.FLOAT),),
    "double": ((pa.types.is_float64, Shape.DOUBLE), (pa.types.is_float32, Shape.DOUBLE)),
    "string": ((is_text, Shape.TEXT),),
    "bytes": ((is_binary, Shape.BYTES), (is_text, Shape.BYTES)),
}
"""What each of Avro's types takes: its own values, and those that fit into it without a loss."""
