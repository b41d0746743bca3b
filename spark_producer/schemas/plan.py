"""The plan by which a column is encoded: its Arrow type matched with an Avro schema, field by field, before the first row."""

from __future__ import annotations

import json
from typing import Any, NamedTuple, cast

import pyarrow as pa

from spark_producer.common.escape import for_log
from spark_producer.errors import SchemaError
from spark_producer.kernel.avro_nodes import NO_MARK, ArrowLayout, AvroNode
from spark_producer.schemas.defaults import MAX_FILLED_BYTES, encoded_default, is_optional
from spark_producer.schemas.names import FORMS, NAMED, PRIMITIVE, full_name, named_types, resolve_name, space_of
from spark_producer.schemas.scalar_types import Planned, is_number, scalar_node, type_mismatch, type_name
from spark_producer.schemas.texts import arrow_type_name, is_printable, list_names, path_below
from spark_producer.schemas.types import Schema, is_text

_MAX_STEPS = 100_000
"""Maximum types that are visited for one column, about a second's work."""

_MAX_BRANCHES = 64
"""Maximum branches of a union, so that an index has one byte; handwritten ones have fewer."""

MAX_DEPTH = 64
"""Maximum nesting of records, arrays and maps. A schema that refers to itself is as deep as the column."""

_FILL = "set fillMissingFields=true to fill in its default, or null"


def parse_schema(text: str, what: str = "the schema") -> Schema:
    """Return an Avro schema from its JSON; the name of a primitive type needs no quotes.

    Raises:
        SchemaError: the text is not JSON, or not a schema; the message calls it `what`.
    """
    if text.strip() in PRIMITIVE:
        return text.strip()
    try:
        found = json.loads(text)
    except ValueError as error:
        raise SchemaError(f"{what} is not JSON: {error}") from None
    except RecursionError:
        raise SchemaError(f"{what} is nested too deeply") from None
    if not isinstance(found, str | list | dict):
        raise SchemaError(f"{what} is not an Avro schema: it is {type(found).__name__}, not a string, list or object")
    return found


def plan_of(schema: Schema, kind: pa.DataType, path: str, *, fill: bool = False) -> AvroNode:
    """Return the plan for values of an Arrow type. Fields are found by name; `path` is the column's, for messages.

    A null of the whole column needs no union in the schema, since such a row has no bytes. With `fill`, a field of the schema
    that the column lacks gets its default, or null.

    Raises:
        SchemaError: schema and type do not match; the message has the field and both types.
    """
    if pa.types.is_null(kind):
        return AvroNode(ArrowLayout.CONSTANT, path)
    try:
        return _Planner(schema, fill).plan(schema, kind, _Position(path)).node
    except RecursionError:
        raise SchemaError(f"field '{path}' or its schema is nested too deeply") from None


class _Position(NamedTuple):
    """A position in a schema: the field's path, the namespace, and the nesting. `narrow` as in `scalar_node`."""

    path: str
    space: str = ""
    depth: int = 0
    narrow: bool = False


class _Planner:
    """Plans for one schema, with its named types and the bounds on its size."""

    def __init__(self, schema: Schema, fill: bool) -> None:
        self._named = named_types(schema)
        self._fill = fill
        self._filled = 0
        self._steps = 0

    def plan(self, schema: Schema, kind: pa.DataType, at: _Position) -> Planned:
        self._steps += 1
        if self._steps > _MAX_STEPS:  # unions of unions multiply
            raise SchemaError(
                f"field '{at.path}': the schema is too large, or its unions can be matched in too many ways"
            )
        if at.depth > MAX_DEPTH:
            raise SchemaError(
                f"field '{at.path}' is nested too deeply: the maximum is {MAX_DEPTH} records, arrays and maps"
            )
        if isinstance(schema, list):
            return self._union(schema, kind, at)
        if not isinstance(schema, str | dict):  # the annotation is not checked: JSON can have any type here
            raise SchemaError(
                f"field '{at.path}': the schema has {type(schema).__name__} in place of a type. Correct it"
            )
        known, at = self._resolved(schema, at)
        form = known.get("type")
        if isinstance(form, dict | list) or (isinstance(form, str) and form not in FORMS):
            return self.plan(form, kind, at)
        if pa.types.is_null(kind) or form == "null":
            return _of_nulls(known, kind, at)
        if form in ("record", "error"):
            return self._record(known, kind, at)
        if form == "array":
            return self._array(known, kind, at)
        if form == "map":
            return self._map(known, kind, at)
        return scalar_node(known, kind, at.path, narrow=at.narrow)

    def _resolved(self, schema: str | dict[str, Any], at: _Position) -> tuple[dict[str, Any], _Position]:
        """Return the definition of a type, and the position with the namespace within it."""
        if isinstance(schema, str):
            if schema in PRIMITIVE:
                return {"type": schema}, at
            found = resolve_name(schema, at.space, self._named)
            if found is None:
                raise SchemaError(
                    f"field '{at.path}': the schema refers to the type '{for_log(schema)}', which it does not define"
                )
            return found[0], at._replace(space=found[1])
        if schema.get("type") in _NAMED_FORMS:
            if not isinstance(schema.get("name"), str) or not schema["name"]:
                raise SchemaError(f"field '{at.path}': the schema has a {schema['type']} without a name")
            return schema, at._replace(space=space_of(full_name(schema, at.space)))
        return schema, at

    def _union(self, branches: list[Any], kind: pa.DataType, at: _Position) -> Planned:
        if len(branches) > _MAX_BRANCHES:
            raise SchemaError(
                f"field '{at.path}': a union of {len(branches)} types is not supported; the maximum is {_MAX_BRANCHES}"
            )
        bare = [_unwrapped(branch) for branch in branches]
        if any(isinstance(branch, list) for branch in bare):
            raise SchemaError(f"field '{at.path}': the schema has a union directly in a union, which Avro forbids")
        null = next((index for index, branch in enumerate(bare) if branch == {"type": "null"}), None)
        if pa.types.is_null(kind):
            if null is None:
                raise type_mismatch(at.path, kind, f"one of {list_names(_labels(bare))}, none of which is null")
            return Planned(AvroNode(ArrowLayout.CONSTANT, at.path, constant=bytes((2 * null,))), 0, total=True)
        narrow = sum(isinstance(branch, dict) and is_number(branch) for branch in bare) > 1
        found, reasons = [], []
        for index, branch in enumerate(branches):
            if index != null:
                try:
                    one = self.plan(branch, kind, at._replace(narrow=narrow))
                    found.append(one._replace(node=one.node._replace(value_mark=2 * index)))
                except SchemaError as error:
                    reasons.append(str(error))
        if not found:
            no_branch = f"field '{at.path}' has type {arrow_type_name(kind)}, which no type of the union accepts"
            raise SchemaError(reasons[0] if len(reasons) == 1 else no_branch)
        others = _labels([branch for index, branch in enumerate(bare) if index != null])
        return _choice(found, NO_MARK if null is None else 2 * null, at.path, others)

    def _record(self, schema: dict[str, Any], kind: pa.DataType, at: _Position) -> Planned:
        if not isinstance(kind, pa.StructType):
            raise type_mismatch(at.path, kind, f"the {type_name(schema)}")
        fields = schema.get("fields")
        if not isinstance(fields, list) or not all(
            isinstance(each, dict) and is_printable(each.get("name")) and "type" in each for each in fields
        ):
            raise SchemaError(
                f"field '{at.path}': the schema's {type_name(schema)} has no list of fields with names and types"
            )
        ours = {kind.field(index).name: kind.field(index) for index in range(kind.num_fields)}
        check_fields(kind, [each["name"] for each in fields], at.path)
        children: list[Planned] = []
        names: list[str | None] = []
        for field in fields:
            below = _Position(path_below(at.path, field["name"]), at.space, at.depth + 1)
            column = ours.get(field["name"])
            if column is None:
                children.append(self._missing(field, below, ours))
                names.append(None)
            else:
                one = self.plan(field["type"], column.type, below)
                takes_null = one.node.null_mark != NO_MARK or one.node.shape is ArrowLayout.CONSTANT
                children.append(one._replace(total=one.total and (takes_null or not column.nullable)))
                names.append(field["name"])
        node = AvroNode(ArrowLayout.RECORD, at.path, children=tuple(each.node for each in children), names=tuple(names))
        return Planned(node, sum(each.cost for each in children), all(each.total for each in children))

    def _missing(self, field: dict[str, Any], at: _Position, ours: dict[str, Any]) -> Planned:
        """Return the plan of a field that the column lacks."""
        if not self._fill or not is_optional(field):
            advice = f"Add it, or {_FILL}" if is_optional(field) else "Add it"
            raise SchemaError(
                f"field '{at.path}' of the schema is not in the column, whose fields are {list_names(ours)}. {advice}"
            )
        constant = encoded_default(field, at.space, self._named, at.path)
        self._filled += len(constant)
        if self._filled > MAX_FILLED_BYTES:
            raise SchemaError(
                f"field '{at.path}': the defaults of fields that the column lacks have more than {MAX_FILLED_BYTES} bytes. "
                "Add them to the column"
            )
        return Planned(AvroNode(ArrowLayout.CONSTANT, at.path, constant=constant), 1, total=True)

    def _array(self, schema: dict[str, Any], kind: pa.DataType, at: _Position) -> Planned:
        if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)):
            raise type_mismatch(at.path, kind, "an array")
        field = cast("pa.ListType[Any]", kind).value_field
        item = self._item(_inner(schema, "items", at.path), field, f"{at.path}[]", at)
        return item._replace(node=AvroNode(ArrowLayout.ARRAY, at.path, children=(item.node,)))

    def _map(self, schema: dict[str, Any], kind: pa.DataType, at: _Position) -> Planned:
        if not pa.types.is_map(kind) or not is_text(kind.key_type):
            raise type_mismatch(at.path, kind, "a map, whose keys are strings")
        path = f"{at.path}{{}}"
        value = self._item(_inner(schema, "values", at.path), kind.item_field, path, at)
        return value._replace(
            node=AvroNode(ArrowLayout.MAP, at.path, children=(AvroNode(ArrowLayout.TEXT, for_log(path)), value.node))
        )

    def _item(self, schema: Schema, field: pa.Field[Any], path: str, at: _Position) -> Planned:
        """Return the plan of an array's or map's items. If the column's items are all null, only an empty array or map fits."""
        below = _Position(for_log(path), at.space, at.depth + 1)
        try:
            one = self.plan(schema, field.type, below)
        except SchemaError:
            if not pa.types.is_null(field.type):
                raise
            reason = "it is null, and its schema does not take null"
            return Planned(AvroNode(ArrowLayout.CONSTANT, below.path, reason=reason), 0, total=False)
        takes_null = one.node.null_mark != NO_MARK or one.node.shape is ArrowLayout.CONSTANT
        return one._replace(total=one.total and (takes_null or not field.nullable))


def _choice(found: list[Planned], null_mark: int, path: str, labels: list[str]) -> Planned:
    """Return the plan of a union: each value gets the nearest branch that accepts it, and of equally near ones the first."""
    found = sorted(found, key=lambda each: each.cost)
    needed = next((index + 1 for index, each in enumerate(found) if each.total), len(found))
    nearest = found[0]
    if needed == 1:
        return nearest._replace(node=nearest.node._replace(null_mark=null_mark))
    node = AvroNode(
        ArrowLayout.UNION,
        path,
        null_mark,
        children=tuple(each.node for each in found[:needed]),
        reason=f"no type of its union accepts it: {list_names(labels)}",
    )
    return Planned(node, nearest.cost, found[needed - 1].total)


def _of_nulls(schema: dict[str, Any], kind: pa.DataType, at: _Position) -> Planned:
    """Return the plan of a null column or null type, which match only each other; it has no bytes."""
    if not (pa.types.is_null(kind) and schema.get("type") == "null"):
        raise type_mismatch(at.path, kind, type_name(schema))
    return Planned(AvroNode(ArrowLayout.CONSTANT, at.path), 0, total=True)


def check_fields(kind: pa.StructType, theirs: list[str], path: str) -> None:
    """Refuse duplicate fields, and fields of the column that the schema lacks."""
    known = set(theirs)
    if len(known) < len(theirs):
        twice = next(name for index, name in enumerate(theirs) if name in theirs[:index])
        raise SchemaError(f"field '{path_below(path, twice)}' is in the schema twice. Rename one of them there")
    seen: set[str] = set()
    for name in (kind.field(index).name for index in range(kind.num_fields)):
        if name in seen:
            raise SchemaError(f"field '{path_below(path, name)}' is in the column twice. Rename one of them")
        seen.add(name)
        if name not in known:
            raise SchemaError(
                f"field '{path_below(path, name)}' is not in the schema, whose fields are {list_names(theirs)}. Leave it out"
            )


def _unwrapped(schema: object) -> object:
    """Return a branch of a union in its simplest form: `{"type": {"type": "int"}}` and `"int"` become `{"type": "int"}`."""
    while isinstance(schema, dict) and isinstance(schema.get("type"), dict | list):
        schema = schema["type"]
    if isinstance(schema, dict) and schema.get("type") == "null":
        return {"type": "null"}
    return {"type": schema} if isinstance(schema, str) else schema


def _labels(branches: list[object]) -> list[str]:
    return [type_name(branch) if isinstance(branch, dict) else for_log(str(branch)) for branch in branches]


def _inner(schema: dict[str, Any], part: str, path: str) -> Schema:
    if part not in schema:
        raise SchemaError(f"field '{path}': its type {schema['type']} lacks '{part}'. Correct the schema")
    return cast("Schema", schema[part])


_NAMED_FORMS = tuple(NAMED)
"""A tuple, since a hostile schema may have a list or an object as its type, and these have no hash."""
