"""The column that a reader's Avro schema becomes: its Arrow types, with Spark's types for from_avro where Spark has them."""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import pyarrow as pa

from spark_producer.common.escape import for_log
from spark_producer.errors import SchemaError
from spark_producer.kernel.avro_program import MAX_NESTING, Storage
from spark_producer.schemas.names import (
    FORMS,
    NAMED,
    PRIMITIVE,
    NamedTypes,
    full_name,
    named_types,
    resolve_name,
    space_of,
)
from spark_producer.schemas.texts import is_printable, path_below
from spark_producer.schemas.types import Schema

MAX_STEPS = 100_000
"""Maximum types that are visited for one column, about a second's work."""

_MAX_DECIMAL_DIGITS = 38
"""Maximum digits of Spark's decimals."""

UNITS = {"ms": 1000, "us": 1_000_000, "ns": 1_000_000_000}
"""The number per second of each unit of time."""

LOGICAL_UNITS: dict[tuple[object, object], tuple[str, str]] = {
    ("int", "date"): ("date", ""),
    ("int", "time-millis"): ("time", "ms"),
    ("long", "time-micros"): ("time", "us"),
    ("long", "timestamp-millis"): ("timestamp", "ms"),
    ("long", "timestamp-micros"): ("timestamp", "us"),
    ("long", "timestamp-nanos"): ("timestamp", "ns"),
    ("long", "local-timestamp-millis"): ("local-timestamp", "ms"),
    ("long", "local-timestamp-micros"): ("local-timestamp", "us"),
    ("long", "local-timestamp-nanos"): ("local-timestamp", "ns"),
}
"""The kind of time of each logical type of a number, and its unit."""


class TypeRules(NamedTuple):
    """What a schema's types become.

    Attributes:
        times: Whether the times of day become Spark's TIME, which Spark has from 4.1 on; otherwise they stay numbers.
        recursion: How often a record may occur within itself; below that its fields are left out. 0 refuses such schemas.
            Spark's `recursiveFieldMaxDepth`.
    """

    times: bool = False
    recursion: int = 0


class ReaderType(NamedTuple):
    """One type of a reader's schema, and the column of its values.

    Attributes:
        column: The number of the column; those of the children are greater.
        storage, kind, nullable, symbols, packed_uuid: As in `ColumnPlan`.
        path: The name of its field in messages.
        schema: The type without names of others and unions of one type; None for a struct of a union's members.
        space: The namespace within it.
        children: The fields of a record, the item of an array, the key and value of a map, the members of a union.
        fields: The definitions of a record's fields.
        unit: The unit of times, or nothing.
    """

    column: int
    storage: Storage
    kind: pa.DataType
    path: str
    schema: dict[str, Any] | None
    space: str = ""
    nullable: bool = False
    children: tuple[ReaderType, ...] = ()
    fields: tuple[dict[str, Any], ...] = ()
    symbols: tuple[str, ...] = ()
    unit: str = ""
    packed_uuid: bool = False


def reader_type(schema: Schema, path: str, rules: TypeRules) -> ReaderType:
    """Return the column of a reader's schema; `path` is the column's name for messages.

    Raises:
        SchemaError: the schema is not valid, is nested too deeply, or has a type that Spark does not have.
    """
    try:
        found = _Types(schema, rules).of(schema, "", path, 0, {})
    except RecursionError:
        raise SchemaError(f"field '{path}': the reader's schema is nested too deeply") from None
    if found is None:
        raise SchemaError(f"field '{path}': nothing is left of the reader's schema, which only refers to itself")
    return found


def unwrapped(schema: object, space: str, named: NamedTypes, path: str) -> tuple[dict[str, Any] | list[Any], str]:
    """Return a type in the form of an object or a union, and the namespace within it.

    Raises:
        SchemaError: it is not a type, or refers to a type that is not defined.
    """
    while True:
        if isinstance(schema, list):
            return schema, space
        if isinstance(schema, str):
            if schema in PRIMITIVE:
                return {"type": schema}, space
            known = resolve_name(schema, space, named)
            if known is None:
                raise SchemaError(
                    f"field '{path}': the schema refers to the type '{for_log(schema)}', which it does not define"
                )
            return known
        if not isinstance(schema, dict):
            raise SchemaError(f"field '{path}': the schema has {type(schema).__name__} in place of a type")
        form = schema.get("type")
        if isinstance(form, str) and form in FORMS:
            return schema, _space_within(schema, space, path)
        schema = form


def _space_within(schema: dict[str, Any], space: str, path: str) -> str:
    if schema["type"] not in NAMED:
        return space
    if not isinstance(schema.get("name"), str) or not schema["name"]:
        raise SchemaError(f"field '{path}': the schema has a {schema['type']} without a name")
    return space_of(full_name(schema, space))


def name_within(schema: dict[str, Any], space: str) -> str:
    """Return the full name of a named type whose inner namespace is `space`."""
    name = str(schema["name"]).rpartition(".")[2]
    return f"{space}.{name}" if space else name


def fields_of(schema: dict[str, Any], path: str) -> list[dict[str, Any]]:
    """Return the fields of a record.

    Raises:
        SchemaError: they are not a list of fields with different names and types.
    """
    fields = schema.get("fields")
    if not isinstance(fields, list) or not all(
        isinstance(each, dict) and is_printable(each.get("name")) and "type" in each for each in fields
    ):
        raise SchemaError(f"field '{path}': the schema has a record without a list of fields with names and types")
    names = [each["name"] for each in fields]
    if len(set(names)) < len(names):
        twice = next(name for index, name in enumerate(names) if name in names[:index])
        raise SchemaError(f"field '{path_below(path, twice)}' is in the schema twice. Rename one of them")
    return fields


def decimal_of(schema: dict[str, Any]) -> tuple[int, int] | None:
    """Return the precision and scale of a decimal on bytes or fixed; None for other types, and if they are not valid."""
    precision, scale = schema.get("precision"), schema.get("scale", 0)
    if schema.get("type") not in ("bytes", "fixed") or schema.get("logicalType") != "decimal":
        return None
    if type(precision) is not int or type(scale) is not int or precision < 1 or not 0 <= scale <= precision:
        return None
    if schema["type"] == "fixed" and precision > max(0, 8 * size_of(schema, "") - 1) * 30_103 // 100_000:
        return None
    return precision, scale


def size_of(schema: dict[str, Any], path: str) -> int:
    """Return the size of a fixed type.

    Raises:
        SchemaError: it has none.
    """
    size = schema.get("size")
    if type(size) is not int or not 0 <= size < 1 << 31:
        raise SchemaError(f"field '{path}': the schema has a fixed type without a size")
    return size


def symbols_of(schema: dict[str, Any], path: str) -> tuple[str, ...]:
    """Return the symbols of an enum.

    Raises:
        SchemaError: they are not a list of names.
    """
    symbols = schema.get("symbols")
    if not isinstance(symbols, list) or not all(isinstance(each, str) for each in symbols):
        raise SchemaError(f"field '{path}': the schema has an enum without a list of symbols")
    return tuple(symbols)


def logical_unit(schema: dict[str, Any]) -> tuple[str, str]:
    """Return the kind of time that a number is, such as `timestamp`, and its unit; two empty texts for other numbers."""
    form, logical = schema.get("type"), schema.get("logicalType")
    return LOGICAL_UNITS.get((form, logical), ("", "")) if isinstance(logical, str) else ("", "")


class _Types:
    """Builds the types of one schema, and numbers their columns."""

    def __init__(self, schema: Schema, rules: TypeRules) -> None:
        self._named = named_types(schema)
        self._rules = rules
        self._columns = itertools.count()
        self._steps = 0

    def of(self, schema: object, space: str, path: str, depth: int, within: dict[str, int]) -> ReaderType | None:
        """Return a type, or None if it is left out because it recurs."""
        self._steps += 1
        if self._steps > MAX_STEPS or depth > MAX_NESTING:
            raise SchemaError(
                f"field '{path}': the reader's schema is too large, or nested more than {MAX_NESTING} deep"
            )
        known, space = unwrapped(schema, space, self._named, path)
        if isinstance(known, list):
            return self._union(known, space, path, depth, within)
        form = known["type"]
        if form in ("record", "error"):
            return self._record(known, space, path, depth, within)
        if form in ("array", "map"):
            return self._items(known, space, path, depth, within)
        return self._plain(known, space, path)

    def _union(
        self, branches: list[Any], space: str, path: str, depth: int, within: dict[str, int]
    ) -> ReaderType | None:
        bare = [unwrapped(branch, space, self._named, path)[0] for branch in branches]
        if any(isinstance(branch, list) for branch in bare):
            raise SchemaError(f"field '{path}': the schema has a union directly in a union, which Avro forbids")
        forms = [branch["type"] for branch in bare if isinstance(branch, dict)]
        others = [branch for branch, form in zip(branches, forms, strict=True) if form != "null"]
        optional = len(others) < len(branches)
        if not others:
            return self._plain({"type": "null"}, space, path)
        wide = _WIDE.get(frozenset(form for form in forms if form != "null")) if len(others) > 1 else None
        if wide is not None:
            others = [wide]
        if len(others) == 1:
            one = self.of(others[0], space, path, depth, within)
            return None if one is None else one._replace(nullable=optional)
        column = next(self._columns)
        members = []
        for index, branch in enumerate(others):
            one = self.of(branch, space, path_below(path, f"member{index}"), depth + 1, within)
            if one is not None:
                members.append((f"member{index}", one._replace(nullable=True)))
        kind = pa.struct([pa.field(name, member.kind, True) for name, member in members])
        children = tuple(member for _, member in members)
        return ReaderType(column, Storage.RECORD, kind, path, None, space, optional, children)

    def _record(
        self, schema: dict[str, Any], space: str, path: str, depth: int, within: dict[str, int]
    ) -> ReaderType | None:
        name = name_within(schema, space)
        recurs = within.get(name, 0)
        if recurs and not self._rules.recursion:
            raise SchemaError(
                f"field '{path}': the record {for_log(name)} is recursive, and Spark's types are not. Give a reader's "
                "schema without it, or set recursive_field_max_depth in from_confluent_avro"
            )
        if recurs and recurs >= self._rules.recursion:
            return None
        column = next(self._columns)
        children, fields, arrow = [], [], []
        for field in fields_of(schema, path):
            one = self.of(field["type"], space, path_below(path, field["name"]), depth + 1, within | {name: recurs + 1})
            if one is not None:
                children.append(one)
                fields.append(field)
                arrow.append(pa.field(field["name"], one.kind, one.nullable or pa.types.is_null(one.kind)))
        return ReaderType(
            column,
            Storage.RECORD,
            pa.struct(arrow),
            path,
            schema,
            space,
            children=tuple(children),
            fields=tuple(fields),
        )

    def _items(
        self, schema: dict[str, Any], space: str, path: str, depth: int, within: dict[str, int]
    ) -> ReaderType | None:
        is_map = schema["type"] == "map"
        part = "values" if is_map else "items"
        if part not in schema:
            raise SchemaError(f"field '{path}': its type {schema['type']} lacks '{part}'. Correct the schema")
        column = next(self._columns)
        keys = (self._plain({"type": "string"}, space, for_log(f"{path}{{}}")),) if is_map else ()
        item = self.of(schema[part], space, for_log(path + ("{}" if is_map else "[]")), depth + 1, within)
        if item is None:
            return None
        nullable = item.nullable or pa.types.is_null(item.kind)
        kind: pa.DataType
        if is_map:
            kind = pa.map_(pa.string(), pa.field("value", item.kind, nullable))  # type: ignore[call-overload]
        else:
            kind = pa.list_(pa.field("element", item.kind, nullable))
        return ReaderType(column, Storage.ARRAY, kind, path, schema, space, children=(*keys, item))

    def _plain(self, schema: dict[str, Any], space: str, path: str) -> ReaderType:
        form = schema["type"]
        found = ReaderType(next(self._columns), *_PLAIN[form], path, schema, space)
        decimal = decimal_of(schema)
        if decimal is not None:
            if decimal[0] > _MAX_DECIMAL_DIGITS:
                raise SchemaError(
                    f"field '{path}': a decimal of {decimal[0]} digits is not supported; the maximum is "
                    f"{_MAX_DECIMAL_DIGITS}. Give a reader's schema without the logical type, to get its bytes"
                )
            return found._replace(kind=pa.decimal128(*decimal))
        if form == "enum":
            return found._replace(symbols=symbols_of(schema, path))
        if form == "fixed":
            size, logical = size_of(schema, path), schema.get("logicalType")
            if logical == "uuid" and size == 16:
                return found._replace(kind=pa.string(), packed_uuid=True)
            return found._replace(kind=pa.duration("us")) if logical == "duration" and size == 12 else found
        return self._time(found, *logical_unit(schema))

    def _time(self, found: ReaderType, counts: str, unit: str) -> ReaderType:
        if counts == "date":
            return found._replace(kind=pa.date32())
        if counts == "time":
            return found._replace(kind=pa.time64("ns"), unit="ns") if self._rules.times else found._replace(unit=unit)
        if counts:
            return found._replace(kind=pa.timestamp("us", "UTC" if counts == "timestamp" else None), unit="us")
        return found


_WIDE = {frozenset(("int", "long")): "long", frozenset(("float", "double")): "double"}
"""Unions that become one type, as in Spark's from_avro."""

_PLAIN: dict[str, tuple[Storage, pa.DataType]] = {
    "null": (Storage.NOTHING, pa.null()),
    "boolean": (Storage.BOOLEAN, pa.bool_()),
    "int": (Storage.LONG, pa.int32()),
    "long": (Storage.LONG, pa.int64()),
    "float": (Storage.FLOAT, pa.float32()),
    "double": (Storage.DOUBLE, pa.float64()),
    "bytes": (Storage.BYTES, pa.binary()),
    "string": (Storage.BYTES, pa.string()),
    "fixed": (Storage.BYTES, pa.binary()),
    "enum": (Storage.LONG, pa.string()),
}
