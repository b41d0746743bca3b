"""Encodes a column as JSON by its plan, and finds the rows that do not fit their schema."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from spark_producer.common.escape import for_log
from spark_producer.kernel.arrays import ArrowArray, BoolArray, Int64Array, is_valid, numbers
from spark_producer.kernel.avro_columns import SchemaMismatchRows
from spark_producer.record.rendering import KeptFields, as_json, as_lists
from spark_producer.schemas.json_schema.validation import SchemaValidator
from spark_producer.schemas.types import is_text

_MIN_DAY, _END_DAY = -719_162, 2_932_897
"""The first of January of the year 1, and that of the year 10000, in days since 1970."""

_UNITS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


class JsonNode(NamedTuple):
    """The checks of a column.

    Attributes:
        path: Its field, for messages.
        takes_null: Whether null is valid.
        symbols: The texts that are valid; None for all.
        rfc_3339: Whether its years must have four digits.
        children: Those of a struct's fields, a list's items, or a map's values.
        required: For each field of a struct, whether it must be present.
        names: The names that a map must have.
        constants: The JSON of fields that a struct lacks and its schema requires, by their names.
    """

    path: str
    takes_null: bool = True
    symbols: frozenset[str] | None = None
    rfc_3339: bool = False
    children: tuple[JsonNode, ...] = ()
    required: tuple[bool, ...] = ()
    names: tuple[str, ...] = ()
    constants: tuple[tuple[str, str], ...] = ()


class JsonPlan(NamedTuple):
    """How a column is written: its checks, and the fields whose nulls are written. `schema` is the text to validate rows by."""

    node: JsonNode
    kept: KeptFields
    schema: str | None = None

    @property
    def form(self) -> str:
        """The name of the format in messages."""
        return "JSON"

    def encode(self, column: ArrowArray) -> tuple[ArrowArray | None, list[SchemaMismatchRows]]:
        """Return a column as texts, as `encode_json`."""
        return encode_json(self, column)


def encode_json(plan: JsonPlan, column: ArrowArray) -> tuple[ArrowArray | None, list[SchemaMismatchRows]]:
    """Return a column as JSON texts, or None and the rows that do not fit their schema. Null stays null.

    Raises:
        ConfigError: rows must be validated, and the validator is not installed.
    """
    unfit = unfit_rows(plan.node, column)
    if unfit and plan.schema is None:
        return None, unfit
    if unfit:
        bad = np.zeros(len(column), np.bool_)
        bad[np.concatenate([each.rows for each in unfit])] = True
        column = column.take(pa.array(np.arange(len(column)), pa.int64(), mask=bad))
    texts = as_json(column, plan.kept)
    if plan.schema is not None:
        unfit += _invalid(_validator(plan.schema), texts, plan.node.path)
    return (None, unfit) if unfit else (texts, [])


def unfit_rows(node: JsonNode, column: ArrowArray) -> list[SchemaMismatchRows]:
    """Return the rows of a column that do not fit their schema, apart from its rules for validators."""
    return _Checker().check(node, column)


@functools.lru_cache(maxsize=20)
def _validator(text: str) -> SchemaValidator:
    return SchemaValidator(text, "the schema")


def _invalid(validator: SchemaValidator, texts: Any, path: str) -> list[SchemaMismatchRows]:
    """Return the rows that are not valid."""
    found = []
    for row, text in enumerate(texts.to_pylist()):
        reason = None if text is None else validator.reason(text, path)
        if reason is not None:
            field, _, why = reason.removeprefix("field '").partition("': ")
            found.append(SchemaMismatchRows(field, why, np.array([row], np.int64)))
    return found


class _Values(NamedTuple):
    """Values of a column: the rows that have them, and which of them are live; the others lie below a null."""

    array: Any
    rows: Int64Array
    live: BoolArray


class _Checker:
    def __init__(self) -> None:
        self._found: list[SchemaMismatchRows] = []

    def check(self, node: JsonNode, column: ArrowArray) -> list[SchemaMismatchRows]:
        """Return the rows that do not fit. A null row has no bytes, and always fits."""
        self._check(node, _Values(column, np.arange(len(column)), is_valid(column)))
        return self._found

    def _mismatch(self, node: JsonNode, bad: Any, values: _Values, reason: str) -> None:
        bad = bad & values.live
        if bad.any():
            self._found.append(SchemaMismatchRows(node.path, reason, np.unique(values.rows[bad])))

    def _check(self, node: JsonNode, values: _Values) -> None:
        array, kind = values.array, values.array.type
        if pa.types.is_null(kind):
            return
        values = values._replace(live=values.live & is_valid(array))
        if isinstance(kind, pa.StructType):
            self._struct(node, values)
        elif pa.types.is_map(kind):
            lists = as_lists(array)
            self._items(node, values, lists, 1)
        elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
            self._items(node, values, array, None)
        elif pa.types.is_floating(kind):
            self._mismatch(
                node, ~np.isfinite(numbers(array, 0)), values, "JSON has no such number (NaN or an infinity)"
            )
        elif is_text(kind):
            self._texts(node, values)
        elif node.rfc_3339:
            self._years(node, values)

    def _struct(self, node: JsonNode, values: _Values) -> None:
        array = values.array
        for at in range(array.type.num_fields):
            field = array.field(at)
            if not node.children:
                self._check(JsonNode(f"{node.path}.{array.type.field(at).name}"), values._replace(array=field))
                continue
            child = node.children[at]
            if node.required[at] and not child.takes_null:
                self._nulls(child, values._replace(array=field))
            self._check(child, values._replace(array=field))

    def _nulls(self, node: JsonNode, values: _Values) -> None:
        if values.array.null_count:
            self._mismatch(node, ~is_valid(values.array), values, "it is null, and its schema does not take null")

    def _items(self, node: JsonNode, values: _Values, lists: Any, part: int | None) -> None:
        """Check the items of lists, or the values of maps, which are the second part of their items."""
        import pyarrow.compute as pc  # loaded only if used

        lengths = numbers(pc.list_value_length(lists).cast(pa.int64()), 0)
        flat = pc.list_flatten(lists)
        inner = _Values(flat, np.repeat(values.rows, lengths), np.repeat(values.live, lengths))
        if part is not None:
            if node.names:
                self._names(node, values, flat.field(0), np.repeat(np.arange(len(lists)), lengths))
            self._check(JsonNode(node.path), inner._replace(array=flat.field(0)))
            inner = inner._replace(array=flat.field(part))
        child = node.children[0] if node.children else JsonNode(f"{node.path}[]")
        if not child.takes_null:
            self._nulls(child, inner)
        self._check(child, inner)

    def _names(self, node: JsonNode, values: _Values, keys: Any, owners: Int64Array) -> None:
        """Check that maps have the names that their schema requires; `owners` has the map of each of the keys."""
        import pyarrow.compute as pc

        for name in node.names:
            lacks = np.ones(len(values.rows), np.bool_)
            same = pc.equal(keys.cast(pa.large_string()), pa.scalar(name, pa.large_string()))
            lacks[owners[numbers(same.cast(pa.int8()), 0) == 1]] = False
            self._mismatch(node, lacks, values, f"it lacks '{for_log(name)}', which its schema requires")

    def _texts(self, node: JsonNode, values: _Values) -> None:
        array = values.array
        try:
            array.validate(full=True)
        except pa.ArrowInvalid:
            bad = np.array([not _is_utf8(each) for each in array], np.bool_)
            self._mismatch(node, bad, values, "it is not UTF-8")
            values = values._replace(live=values.live & ~bad)
            array = array.take(pa.array(np.arange(len(array)), pa.int64(), mask=bad))
        if node.symbols is not None:
            import pyarrow.compute as pc

            known = pc.is_in(array, value_set=pa.array(sorted(node.symbols), array.type))
            self._mismatch(
                node, numbers(known.cast(pa.int8()), 1) == 0, values, "it is not one of the values of enum or const"
            )

    def _years(self, node: JsonNode, values: _Values) -> None:
        array, kind = values.array, values.array.type
        days = numbers(array.cast(pa.int32() if pa.types.is_date32(kind) else pa.int64()), 0).astype(np.int64)
        if pa.types.is_timestamp(kind):
            days = days // (86_400 * _UNITS[kind.unit])
        self._mismatch(node, (days < _MIN_DAY) | (days >= _END_DAY), values, "RFC 3339 has only the years 1 to 9999")


def _is_utf8(value: Any) -> bool:
    if not value.is_valid:
        return True
    try:
        value.as_buffer().to_pybytes().decode()
    except UnicodeDecodeError:
        return False
    return True
