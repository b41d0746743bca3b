"""The plan by which a column is encoded: its Arrow type against an Avro schema, field by field, before any row comes."""

from __future__ import annotations

import json
from typing import Any, NamedTuple, cast

import pyarrow as pa

from spark_producer.common.escape import for_log
from spark_producer.errors import SchemaError
from spark_producer.kernel.avro_nodes import NO_MARK, ArrowLayout, AvroNode
from spark_producer.schemas.defaults import MAX_FILLED_BYTES, filling, is_optional
from spark_producer.schemas.names import NAMED, PRIMITIVE, full_name, named_types, referred, space_of
from spark_producer.schemas.plain import Planned, disagree, is_number, plain_node, type_name
from spark_producer.schemas.texts import is_printable, path_below, shown_names, shown_type
from spark_producer.schemas.types import Schema, is_text

_MAX_STEPS = 100_000
"""The types that are looked at for one column, a second or so."""

_MAX_BRANCHES = 64
"""The branches of a union whose index is one byte: none that people write has more."""

MAX_DEPTH = 64
"""How many records, arrays and maps may lie in each other: a schema that refers to itself goes as deep as the column does."""

_FILL = "set fillMissingFields=true, which gives it its default, or null"


def parse_schema(text: str, what: str = "the schema") -> Schema:
    """Return an Avro schema from its JSON; the name of a primitive type may stand without quotes.

    Raises:
        SchemaError: It is no JSON, or no schema's form; `what` names it.
    """
    if text.strip() in PRIMITIVE:
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


def plan_of(schema: Schema, kind: pa.DataType, path: str, *, fill: bool = False) -> AvroNode:
    """Return the plan for values of an Arrow type. Fields are found by name; `path` is the column's, for messages.

    A null of the whole column needs no union in the schema, since such a row has no bytes. With `fill`, a field of the schema
    that the column lacks gets its default, or null.

    Raises:
        SchemaError: Schema and type disagree; the text names the field, and says what each of them has.
    """
    if pa.types.is_null(kind):
        return AvroNode(ArrowLayout.CONSTANT, path)
    try:
        return _Planner(schema, fill).plan(schema, kind, _Spot(path)).node
    except RecursionError:
        raise SchemaError(f"field '{path}' or its schema is nested too deeply") from None


class _Spot(NamedTuple):
    """Where in a schema the planner is: the field's path, the namespace, and how deep. `narrow` as in `plain_node`."""

    path: str
    space: str = ""
    depth: int = 0
    narrow: bool = False


class _Planner:
    """Knows the named types of one schema, and counts what is looked at and filled in."""

    def __init__(self, schema: Schema, fill: bool) -> None:
        self._named = named_types(schema)
        self._fill = fill
        self._filled = 0
        self._steps = 0

    def plan(self, schema: Schema, kind: pa.DataType, at: _Spot) -> Planned:
        self._steps += 1
        if self._steps > _MAX_STEPS:  # unions of unions multiply
            raise SchemaError(
                f"field '{at.path}': the schema is too large, or its unions have too many ways to be read"
            )
        if at.depth > MAX_DEPTH:
            raise SchemaError(
                f"field '{at.path}' is nested too deeply: {MAX_DEPTH} records, arrays and maps may lie in each other"
            )
        if isinstance(schema, list):
            return self._union(schema, kind, at)
        if not isinstance(schema, str | dict):  # JSON may hold anything, whatever is annotated
            raise SchemaError(f"field '{at.path}': the schema has {type(schema).__name__} in the place of a type")
        known, at = self._resolved(schema, at)
        form = known.get("type")
        if isinstance(form, dict | list) or (isinstance(form, str) and form not in _FORMS):
            return self.plan(form, kind, at)
        if pa.types.is_null(kind) or form == "null":
            return _of_nulls(known, kind, at)
        if form in ("record", "error"):
            return self._record(known, kind, at)
        if form == "array":
            return self._array(known, kind, at)
        if form == "map":
            return self._map(known, kind, at)
        return plain_node(known, kind, at.path, narrow=at.narrow)

    def _resolved(self, schema: str | dict[str, Any], at: _Spot) -> tuple[dict[str, Any], _Spot]:
        """Return a type by its definition, and the spot with the namespace inside of it."""
        if isinstance(schema, str):
            if schema in PRIMITIVE:
                return {"type": schema}, at
            found = referred(schema, at.space, self._named)
            if found is None:
                raise SchemaError(
                    f"field '{at.path}': the schema names the type '{for_log(schema)}', which it has not defined"
                )
            return found[0], at._replace(space=found[1])
        if schema.get("type") in _NAMED_FORMS:
            if not isinstance(schema.get("name"), str) or not schema["name"]:
                raise SchemaError(f"field '{at.path}': the schema has a {schema['type']} without a name")
            return schema, at._replace(space=space_of(full_name(schema, at.space)))
        return schema, at

    def _union(self, branches: list[Any], kind: pa.DataType, at: _Spot) -> Planned:
        if len(branches) > _MAX_BRANCHES:
            raise SchemaError(
                f"field '{at.path}': a union of {len(branches)} types is not supported, {_MAX_BRANCHES} are"
            )
        bare = [_unwrapped(branch) for branch in branches]
        if any(isinstance(branch, list) for branch in bare):
            raise SchemaError(
                f"field '{at.path}': the schema has a union directly inside of a union, which Avro forbids"
            )
        null = next((place for place, branch in enumerate(bare) if branch == {"type": "null"}), None)
        if pa.types.is_null(kind):
            if null is None:
                raise disagree(at.path, kind, f"one of {shown_names(_labels(bare))}, none of which is null")
            return Planned(AvroNode(ArrowLayout.CONSTANT, at.path, constant=bytes((2 * null,))), 0, total=True)
        narrow = sum(isinstance(branch, dict) and is_number(branch) for branch in bare) > 1
        found, reasons = [], []
        for place, branch in enumerate(branches):
            if place != null:
                try:
                    one = self.plan(branch, kind, at._replace(narrow=narrow))
                    found.append(one._replace(node=one.node._replace(value_mark=2 * place)))
                except SchemaError as error:
                    reasons.append(str(error))
        if not found:
            no_branch = f"field '{at.path}' has type {shown_type(kind)}, which no type of the union takes"
            raise SchemaError(reasons[0] if len(reasons) == 1 else no_branch)
        others = _labels([branch for place, branch in enumerate(bare) if place != null])
        return _choice(found, NO_MARK if null is None else 2 * null, at.path, others)

    def _record(self, schema: dict[str, Any], kind: pa.DataType, at: _Spot) -> Planned:
        if not isinstance(kind, pa.StructType):
            raise disagree(at.path, kind, f"the {type_name(schema)}")
        fields = schema.get("fields")
        if not isinstance(fields, list) or not all(
            isinstance(each, dict) and is_printable(each.get("name")) and "type" in each for each in fields
        ):
            raise SchemaError(
                f"field '{at.path}': the schema's {type_name(schema)} has no list of fields with names and types"
            )
        ours = {kind.field(place).name: kind.field(place) for place in range(kind.num_fields)}
        _check_fields(kind, [each["name"] for each in fields], at.path)
        children: list[Planned] = []
        names: list[str | None] = []
        for field in fields:
            below = _Spot(path_below(at.path, field["name"]), at.space, at.depth + 1)
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

    def _missing(self, field: dict[str, Any], at: _Spot, ours: dict[str, Any]) -> Planned:
        """Return the plan of a field that the column lacks."""
        if not self._fill or not is_optional(field):
            advice = f"add it, or {_FILL}" if is_optional(field) else "add it"
            raise SchemaError(
                f"field '{at.path}' of the schema is not in the column, whose fields are {shown_names(ours)}; {advice}"
            )
        constant = filling(field, at.space, self._named, at.path)
        self._filled += len(constant)
        if self._filled > MAX_FILLED_BYTES:
            raise SchemaError(
                f"field '{at.path}': the defaults of fields that the column lacks have more than {MAX_FILLED_BYTES} bytes; "
                "add them to the column"
            )
        return Planned(AvroNode(ArrowLayout.CONSTANT, at.path, constant=constant), 1, total=True)

    def _array(self, schema: dict[str, Any], kind: pa.DataType, at: _Spot) -> Planned:
        if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)):
            raise disagree(at.path, kind, "an array")
        field = cast("pa.ListType[Any]", kind).value_field
        item = self._item(_inner(schema, "items", at.path), field, f"{at.path}[]", at)
        return item._replace(node=AvroNode(ArrowLayout.ARRAY, at.path, children=(item.node,)))

    def _map(self, schema: dict[str, Any], kind: pa.DataType, at: _Spot) -> Planned:
        if not pa.types.is_map(kind) or not is_text(kind.key_type):
            raise disagree(at.path, kind, "a map, whose keys are strings")
        path = f"{at.path}{{}}"
        value = self._item(_inner(schema, "values", at.path), kind.item_field, path, at)
        return value._replace(
            node=AvroNode(ArrowLayout.MAP, at.path, children=(AvroNode(ArrowLayout.TEXT, for_log(path)), value.node))
        )

    def _item(self, schema: Schema, field: pa.Field[Any], path: str, at: _Spot) -> Planned:
        """Return the plan of what an array or map holds. One that holds nothing but null fits if it is empty."""
        below = _Spot(for_log(path), at.space, at.depth + 1)
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
    """Return the plan of a union: each value takes the nearest branch that takes it, and of equally near ones the first."""
    found = sorted(found, key=lambda each: each.cost)
    needed = next((place + 1 for place, each in enumerate(found) if each.total), len(found))
    nearest = found[0]
    if needed == 1:
        return nearest._replace(node=nearest.node._replace(null_mark=null_mark))
    node = AvroNode(
        ArrowLayout.UNION,
        path,
        null_mark,
        children=tuple(each.node for each in found[:needed]),
        reason=f"no type of its union takes it: {shown_names(labels)}",
    )
    return Planned(node, nearest.cost, found[needed - 1].total)


def _of_nulls(schema: dict[str, Any], kind: pa.DataType, at: _Spot) -> Planned:
    """Return the plan of a column of nulls, or of the type null, which take each other alone; it has no bytes."""
    if not (pa.types.is_null(kind) and schema.get("type") == "null"):
        raise disagree(at.path, kind, type_name(schema))
    return Planned(AvroNode(ArrowLayout.CONSTANT, at.path), 0, total=True)


def _check_fields(kind: pa.StructType, theirs: list[str], path: str) -> None:
    """Refuse fields that are there twice, and those of the column that the schema does not have."""
    known = set(theirs)
    if len(known) < len(theirs):
        twice = next(name for place, name in enumerate(theirs) if name in theirs[:place])
        raise SchemaError(f"field '{path_below(path, twice)}' is in the schema twice; rename one of them there")
    seen: set[str] = set()
    for name in (kind.field(place).name for place in range(kind.num_fields)):
        if name in seen:
            raise SchemaError(f"field '{path_below(path, name)}' is there twice; rename one of them")
        seen.add(name)
        if name not in known:
            raise SchemaError(
                f"field '{path_below(path, name)}' is not in the schema, whose fields are {shown_names(theirs)}; leave it out"
            )


def _unwrapped(schema: object) -> object:
    """Return a branch of a union with its type: `{"type": {"type": "int"}}` is `{"type": "int"}`, and so is `"int"`."""
    while isinstance(schema, dict) and isinstance(schema.get("type"), dict | list):
        schema = schema["type"]
    if isinstance(schema, dict) and schema.get("type") == "null":
        return {"type": "null"}
    return {"type": schema} if isinstance(schema, str) else schema


def _labels(branches: list[object]) -> list[str]:
    return [type_name(branch) if isinstance(branch, dict) else for_log(str(branch)) for branch in branches]


def _inner(schema: dict[str, Any], part: str, path: str) -> Schema:
    if part not in schema:
        raise SchemaError(f"field '{path}': the schema has an {schema['type']} without '{part}'")
    return cast("Schema", schema[part])


_NAMED_FORMS = tuple(NAMED)
"""A tuple, since JSON's lists and objects, which a hostile schema may have there, have no hash."""

_FORMS = PRIMITIVE | NAMED | {"array", "map"}
