"""Columns of any type as JSON, and as text: lists, maps and structs around scalar types."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from spark_producer.kernel.arrays import from_numbers, numbers
from spark_producer.record.byte_columns import is_bytes, value_type
from spark_producer.record.rendering.leaves import leaf_of, plain
from spark_producer.record.rendering.strings import TEXT, constant, escaped, joined, quoted, unlike_nulls
from spark_producer.record.rendering.untyped import Column, Kind, pa, pc

types = pa.types


class KeptFields(NamedTuple):
    """The fields of a struct whose nulls are written, and the same for the columns below: by field, or below `""` for items.

    `constants` has the JSON of further fields, which the struct itself lacks.
    """

    names: frozenset[str] = frozenset()
    below: Mapping[str, KeptFields] = {}
    constants: Mapping[str, str] = {}


Nulls: TypeAlias = bool | KeptFields
"""Whether null fields are written, or which ones."""


def as_json(column: Column, keep_nulls: Nulls = False) -> Column:
    """Return a column as JSON texts; null stays null. Null fields are left out unless `keep_nulls`.

    Raises:
        pyarrow.ArrowTypeError: a type has no JSON form. pyarrow.ArrowException: a value has none.
    """
    column = plain(column)
    if isinstance(column, pa.DictionaryArray):
        return as_json(column.dictionary, keep_nulls).take(column.indices)
    leaf = leaf_of(column.type)
    if leaf is not None:
        return leaf.json(column)
    for matches, render in _NESTED:
        if matches(column.type):
            return render(column, keep_nulls)
    raise pa.ArrowTypeError(f"the type {column.type} has no JSON form. Cast it, or leave the column out")


def as_text(column: Column, keep_nulls: Nulls = False) -> Column:
    """Return a column as a key, value or header: bytes and text unchanged, nested values as JSON, all others as text.

    Raises: as `as_json`.
    """
    if is_bytes(value_type(column)):
        return column
    column = plain(column)
    if isinstance(column, pa.DictionaryArray):
        return as_text(column.dictionary, keep_nulls).take(column.indices)
    leaf = leaf_of(column.type)
    return as_json(column, keep_nulls) if leaf is None else leaf.text(column)


def objects(names: Sequence[str], values: Sequence[Column], rows: int, keep_nulls: Nulls = False) -> Column:
    """Return one JSON object for each row. The columns `values` are JSON already.

    Commas are placed around the first field without nulls: fields before it end with one, fields after it begin with one.

    Raises:
        pyarrow.ArrowTypeError: two fields have one name.
    """
    if len(set(names)) != len(names):
        doubled = next(name for name in names if names.count(name) > 1)
        raise pa.ArrowTypeError(f"two fields have the name {doubled!r}. Give each a name of its own")
    if not names:
        return constant("{}", rows)
    if keep_nulls:
        kept = frozenset(names) if isinstance(keep_nulls, bool) else keep_nulls.names
        values = [_or_null(value) if name in kept else value for name, value in zip(names, values, strict=True)]
    keys = [f"{name}:" for name in quoted(pa.array(names, TEXT)).to_pylist()]
    full = next((at for at, value in enumerate(values) if value.null_count == 0), None)
    if full is None:
        fields = joined(*(joined(f",{key}", value) for key, value in zip(keys, values, strict=True)), nulls="")
        return joined("{", pc.ascii_ltrim(fields, characters=","), "}")
    parts: list[Column | str] = ["{"]
    for at, (key, value) in enumerate(zip(keys, values, strict=True)):
        before, after = ("," if at > full else "", "," if at < full else "")
        if value.null_count:
            parts.append(joined(before + key, value, after))
        else:
            parts += [before + key, value, after] if after else [before + key, value]
    return joined(*parts, "}", nulls="")


def _below(keep_nulls: Nulls, name: str = "") -> Nulls:
    return keep_nulls if isinstance(keep_nulls, bool) else keep_nulls.below.get(name, False)


def _struct(column: Column, keep_nulls: Nulls) -> Column:
    fields: list[Column] = column.flatten()  # each null where the struct is
    names = [field.name for field in column.type]
    values = [as_json(field, _below(keep_nulls, name)) for name, field in zip(names, fields, strict=True)]
    if isinstance(keep_nulls, KeptFields):
        names += keep_nulls.constants
        values += [constant(text, len(column)) for text in keep_nulls.constants.values()]
    return unlike_nulls(objects(names, values, len(column), keep_nulls), column)


def _list(column: Column, keep_nulls: Nulls) -> Column:
    return unlike_nulls(joined("[", _joined_lists(column, _items(column, keep_nulls)), "]"), column)


def _items(column: Column, keep_nulls: Nulls) -> Column:
    return _or_null(as_json(pc.list_flatten(column), _below(keep_nulls)))


def _or_null(values: Column) -> Column:
    return pc.fill_null(values, pa.scalar("null", TEXT)) if values.null_count else values


def _joined_lists(column: Column, items: Column) -> Column:
    """Return the texts of each list, joined with commas; for a null list an empty text."""
    lengths = numbers(pc.list_value_length(column).cast(pa.int64()), 0)
    ends = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    return pc.binary_join(pa.LargeListArray.from_arrays(from_numbers(ends), items), pa.scalar(",", TEXT))


def _map(column: Column, keep_nulls: Nulls) -> Column:
    """Return maps as JSON objects, as Spark does: null values are always written."""
    lists = as_lists(column)
    keys, values = pc.list_flatten(lists).flatten()
    entries = joined('"', _names(keys), '":', _or_null(as_json(values, _below(keep_nulls))))
    return unlike_nulls(joined("{", _joined_lists(lists, entries), "}"), column)


def as_lists(column: Column) -> Column:
    """Return maps as lists of structs, which have the same memory layout, and for which Arrow has kernels."""
    entries = column.values
    validity, offsets = column.buffers()[:2]
    return pa.Array.from_buffers(
        pa.list_(entries.type), len(column), [validity, offsets], offset=column.offset, children=[entries]
    )


def _names(keys: Column) -> Column:
    """Return the keys of maps as names of JSON fields.

    Raises:
        pyarrow.ArrowTypeError: Spark writes a memory address for keys of this type. ArrowInvalid: a key is null.
    """
    keys = plain(keys)
    if isinstance(keys, pa.DictionaryArray):
        return _names(keys.dictionary).take(keys.indices)
    leaf = leaf_of(keys.type)
    if leaf is None or leaf.name is None:
        raise pa.ArrowTypeError(f"a map whose keys are {keys.type} has no JSON. Make its keys strings")
    if keys.null_count:
        raise pa.ArrowInvalid("a map has a null key")
    return escaped(leaf.name(keys))


def _union(column: Column, keep_nulls: Nulls) -> Column:
    """Return, for each row, the value of the union's branch that the row names."""
    kind = column.type
    branches = [as_json(column.field(at), _below(keep_nulls)) for at in range(kind.num_fields)]
    starts = np.cumsum([0, *(len(branch) for branch in branches)])
    at_code = np.zeros(128, np.int64)
    at_code[kind.type_codes] = starts[:-1]
    buffers = column.buffers()
    rows: Any = np.arange(len(column))
    if kind.mode == "dense":
        rows = np.frombuffer(buffers[2], np.int32, len(column), column.offset * 4)
    at = at_code[np.frombuffer(buffers[1], np.int8, len(column), column.offset)]
    return pa.concat_arrays(branches).take(pa.array(at + rows))


def _is_list(kind: Kind) -> bool:
    views = types.is_list_view(kind) or types.is_large_list_view(kind)
    return bool(views or types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


_NESTED: list[tuple[Callable[[Kind], bool], Callable[[Column, Nulls], Column]]] = [
    (types.is_struct, _struct),
    (types.is_map, _map),
    (_is_list, _list),
    (types.is_union, _union),
]
