"""Matches a writer's schema with a reader's (Avro 1.12, Schema Resolution), and returns the program that decodes values."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa

from spark_producer.common.escape import for_log
from spark_producer.errors import SchemaError
from spark_producer.kernel.avro_program import NO_COLUMN, NO_SYMBOL, ColumnPlan, Op, OpCode, Program, Storage
from spark_producer.schemas.defaults import encoded_default
from spark_producer.schemas.names import NAMED, named_types
from spark_producer.schemas.reader_types import (
    MAX_STEPS,
    UNITS,
    ReaderType,
    decimal_of,
    fields_of,
    logical_unit,
    name_within,
    size_of,
    symbols_of,
    unwrapped,
)
from spark_producer.schemas.texts import is_printable, path_below
from spark_producer.schemas.types import Schema


def program_of(writer: Schema, reader: ReaderType, reader_schema: Schema) -> Program:
    """Return the program that decodes values of `writer` into the columns of `reader`, which is the type of `reader_schema`.

    Raises:
        SchemaError: the schemas do not match; the message has the field and both types.
    """
    try:
        resolver = _Resolver(writer, reader_schema)
        first = resolver.op(writer, "", reader, reader.path)
    except RecursionError:
        raise SchemaError(f"field '{reader.path}': the writer's schema is nested too deeply") from None
    return Program(tuple(resolver.ops), first, _columns(reader))


def _columns(reader: ReaderType) -> tuple[ColumnPlan, ...]:
    """Return all columns by their numbers; those of fields that are left out hold nothing."""
    found: dict[int, ColumnPlan] = {}
    left = [reader]
    while left:
        each = left.pop()
        left += each.children
        symbols = pa.array(each.symbols, pa.string()) if each.schema is not None and _is(each.schema, "enum") else None
        children = tuple(child.column for child in each.children)
        found[each.column] = ColumnPlan(
            each.storage, each.kind, each.path, each.nullable, children, symbols, each.packed_uuid
        )
    nothing = ColumnPlan(Storage.NOTHING, pa.null(), "")
    return tuple(found.get(number, nothing) for number in range(max(found) + 1))


def _is(schema: dict[str, Any], form: str) -> bool:
    return bool(schema["type"] == form)


class _Resolver:
    """Adds the ops of one pair of schemas."""

    def __init__(self, writer: Schema, reader: Schema) -> None:
        self.ops: list[Op] = []
        self._writer = named_types(writer)
        self._reader = named_types(reader)
        self._known: dict[tuple[int, int], int] = {}
        """The op of each record of the writer, by the record and its column."""
        self._steps = 0

    def op(self, writer: object, space: str, reader: ReaderType | None, path: str) -> int:
        """Return the number of the op for a type of the writer; `reader` is None for values that are skipped."""
        self._steps += 1
        if self._steps > MAX_STEPS:
            raise SchemaError(f"field '{path}': the schemas are too large, or can be matched in too many ways")
        known, space = unwrapped(writer, space, self._writer, path)
        if isinstance(known, list):
            return self._union(known, space, reader, path)
        if reader is not None and reader.schema is None:
            return self._member(known, space, reader, path)
        if reader is not None and reader.nullable and _is(known, "null"):
            return self._add(Op(OpCode.ABSENT, reader.column, path=path))
        form = known["type"]
        if form in ("record", "error"):
            return self._record(known, space, reader, path)
        if form in ("array", "map"):
            return self._items(known, space, reader, path)
        return self._plain(known, space, reader, path)

    def _add(self, op: Op) -> int:
        self.ops.append(op)
        return len(self.ops) - 1

    def _union(self, branches: list[Any], space: str, reader: ReaderType | None, path: str) -> int:
        """Return the op of a union. A branch that the reader does not take fails when a value has it."""
        children, reasons = [], []
        for branch in branches:
            if isinstance(unwrapped(branch, space, self._writer, path)[0], list):
                raise SchemaError(f"field '{path}': the schema has a union directly in a union, which Avro forbids")
            try:
                children.append(self.op(branch, space, reader, path))
            except SchemaError as error:
                reasons.append(str(error))
                children.append(self._add(Op(OpCode.FAIL, path=path, reason=str(error))))
        if reasons and len(reasons) == len(branches):
            raise SchemaError(reasons[0])
        return self._add(Op(OpCode.UNION, children=tuple(children), path=path))

    def _member(self, writer: dict[str, Any], space: str, reader: ReaderType, path: str) -> int:
        """Return the op of a value that becomes a member of the reader's union: the first of its type, else of a promotion."""
        if _is(writer, "null") and reader.nullable:
            return self._add(Op(OpCode.ABSENT, reader.column, path=path))
        if _is(writer, "null"):
            raise _mismatch(path, writer, reader)
        equal = [member for member in reader.children if _is_same(writer, space, member)]
        for member in (*equal, *reader.children):
            if _is_named(writer) and member not in equal:
                continue
            try:
                value = self.op(writer, space, member, path)
            except SchemaError:
                continue
            number = reader.children.index(member)
            return self._add(Op(OpCode.MEMBER, reader.column, width=number, children=(value,), path=path))
        raise SchemaError(f"field '{path}': no type of the reader's union takes the writer's {_label(writer)}")

    def _record(self, writer: dict[str, Any], space: str, reader: ReaderType | None, path: str) -> int:
        if reader is not None and (reader.schema is None or reader.schema["type"] not in ("record", "error")):
            raise _mismatch(path, writer, reader)
        key = (id(writer), NO_COLUMN if reader is None else reader.column)
        if key in self._known:
            return self._known[key]
        column = NO_COLUMN if reader is None else reader.column
        known = dict(self._known)
        number = self._known[key] = self._add(Op(OpCode.RECORD, column, path=path))
        try:
            children = self._fields(writer, space, reader, path)
        except SchemaError:
            self._known = known  # records within it may refer to this one
            raise
        self.ops[number] = self.ops[number]._replace(children=tuple(children))
        return number

    def _fields(self, writer: dict[str, Any], space: str, reader: ReaderType | None, path: str) -> list[int]:
        fields = fields_of(writer, path)
        matched = {} if reader is None else _matched([field["name"] for field in fields], reader)
        children = []
        for field in fields:
            below = path_below(path, field["name"])
            index = matched.get(field["name"])
            child = None if reader is None or index is None else reader.children[index]
            children.append(self.op(field["type"], space, child, child.path if child is not None else below))
        if reader is not None:
            missing = [index for index in range(len(reader.children)) if index not in matched.values()]
            children += [self._default(reader, index) for index in missing]
        return children

    def _default(self, reader: ReaderType, index: int) -> int:
        """Return the op of a field that the writer's schema lacks."""
        child, field = reader.children[index], reader.fields[index]
        if "default" not in field:
            raise SchemaError(
                f"field '{child.path}' of the reader's schema is not in the writer's, and has no default. Give it one"
            )
        try:
            constant = encoded_default(field, reader.space, self._reader, child.path)
        except SchemaError:
            raise SchemaError(
                f"field '{child.path}': the default of the reader's schema is not a value of its type, or is too large"
            ) from None
        writer, self._writer = self._writer, self._reader
        try:
            value = self.op(field["type"], reader.space, child, child.path)
        finally:
            self._writer = writer
        return self._add(Op(OpCode.DEFAULT, constant=constant, children=(value,), path=child.path))

    def _items(self, writer: dict[str, Any], space: str, reader: ReaderType | None, path: str) -> int:
        form = writer["type"]
        if reader is not None and (reader.schema is None or reader.schema["type"] != form):
            raise _mismatch(path, writer, reader)
        part = "values" if form == "map" else "items"
        if part not in writer:
            raise SchemaError(f"field '{path}': its type {form} lacks '{part}'. Correct the schema")
        children = []
        if form == "map":
            key = NO_COLUMN if reader is None else reader.children[0].column
            children.append(self._add(Op(OpCode.BYTES, key, path=path)))
        item = None if reader is None else reader.children[-1]
        children.append(self.op(writer[part], space, item, for_log(f"{path}[]") if item is None else item.path))
        column = NO_COLUMN if reader is None else reader.column
        return self._add(Op(OpCode.ARRAY, column, children=tuple(children), path=path))

    def _plain(self, writer: dict[str, Any], space: str, reader: ReaderType | None, path: str) -> int:
        form = writer["type"]
        op = Op(_CODES[form], NO_COLUMN if reader is None else reader.column, path=path)
        if form == "fixed":
            op = op._replace(width=size_of(writer, path))
        if form == "enum":
            op = op._replace(children=tuple(range(len(symbols_of(writer, path)))))
        if reader is None:
            return self._add(op)
        if reader.schema is None or reader.schema["type"] not in _READ_AS[form]:
            raise _mismatch(path, writer, reader)
        if form in NAMED and not _is_same(writer, space, reader):
            raise _mismatch(path, writer, reader)
        if form == "fixed" and op.width != size_of(reader.schema, path):
            raise _mismatch(path, writer, reader)
        if form == "enum":
            op = _symbols(op, writer, reader)
        _check_decimals(path, writer, reader)
        return self._add(_in_unit(op, writer, reader))


def _matched(names: list[str], reader: ReaderType) -> dict[str, int]:
    """Return the reader's field for each field of the writer that the reader has, under that name or as an alias."""
    found: dict[str, int] = {}
    for index, field in enumerate(reader.fields):
        if field["name"] in names:
            found[field["name"]] = index
    for index, field in enumerate(reader.fields):
        aliases = field.get("aliases")
        if index not in found.values() and isinstance(aliases, list):
            free = [alias for alias in aliases if alias in names and alias not in found]
            if free:
                found[free[0]] = index
    return found


def _symbols(op: Op, writer: dict[str, Any], reader: ReaderType) -> Op:
    assert reader.schema is not None
    numbers = {symbol: index for index, symbol in enumerate(reader.symbols)}
    default = reader.schema.get("default")
    other = numbers.get(default, NO_SYMBOL) if isinstance(default, str) else NO_SYMBOL
    reason = "the reader's enum does not have its symbol, and no default"
    children = tuple(numbers.get(symbol, other) for symbol in symbols_of(writer, op.path))
    return op._replace(children=children, reason=reason)


def _in_unit(op: Op, writer: dict[str, Any], reader: ReaderType) -> Op:
    """Return the op of a number with the conversion from the writer's unit of time into the column's."""
    assert reader.schema is not None
    counts, unit = logical_unit(reader.schema)
    theirs, own = logical_unit(writer)
    if not counts or not theirs:
        own = unit
    elif counts.removeprefix("local-") != theirs.removeprefix("local-"):
        raise _mismatch(op.path, writer, reader)
    if not reader.unit or not own:
        return op
    have, want = UNITS[own], UNITS[reader.unit]
    return op._replace(factor=max(1, want // have), divisor=max(1, have // want))


def _check_decimals(path: str, writer: dict[str, Any], reader: ReaderType) -> None:
    assert reader.schema is not None
    own, theirs = decimal_of(reader.schema), decimal_of(writer)
    if own is not None and theirs is not None and own[1] != theirs[1]:
        raise _mismatch(path, writer, reader)


def _is_named(schema: dict[str, Any]) -> bool:
    return schema["type"] in NAMED


def _is_same(writer: dict[str, Any], space: str, reader: ReaderType) -> bool:
    """Return whether both are of one type; named types by the name without namespace, or an alias of the reader's."""
    if reader.schema is None or reader.schema["type"] != writer["type"]:
        return False
    if not _is_named(writer):
        return True
    full = name_within(writer, space)
    short = full.rpartition(".")[2]
    aliases = reader.schema.get("aliases")
    known = [name for name in aliases if isinstance(name, str)] if isinstance(aliases, list) else []
    return short == str(reader.schema["name"]).rpartition(".")[2] or short in known or full in known


def _mismatch(path: str, writer: dict[str, Any], reader: ReaderType) -> SchemaError:
    wanted = "a union" if reader.schema is None else _label(reader.schema)
    return SchemaError(
        f"field '{path}' was written as {_label(writer)}, which the reader's schema does not take: {wanted}"
    )


def _label(schema: dict[str, Any]) -> str:
    name = f" '{for_log(str(schema['name']))}'" if is_printable(schema.get("name")) else ""
    logical = schema.get("logicalType")
    more = f" ({for_log(json.dumps(logical))[1:-1]})" if isinstance(logical, str) else ""
    size = f" of {schema['size']} bytes" if schema["type"] == "fixed" and type(schema.get("size")) is int else ""
    return f"{schema['type']}{name}{size}{more}"


_CODES = {
    "null": OpCode.NULL,
    "boolean": OpCode.BOOLEAN,
    "int": OpCode.INT,
    "long": OpCode.LONG,
    "float": OpCode.FLOAT,
    "double": OpCode.DOUBLE,
    "bytes": OpCode.BYTES,
    "string": OpCode.BYTES,
    "fixed": OpCode.FIXED,
    "enum": OpCode.ENUM,
}

_READ_AS = {
    "null": {"null"},
    "boolean": {"boolean"},
    "int": {"int", "long", "float", "double"},
    "long": {"long", "float", "double"},
    "float": {"float", "double"},
    "double": {"double"},
    "bytes": {"bytes", "string"},
    "string": {"string", "bytes"},
    "fixed": {"fixed"},
    "enum": {"enum"},
}
"""The reader's types that take each type of the writer: the type itself and its promotions."""
