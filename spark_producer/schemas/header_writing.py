"""Adds the ids of schemas to the headers of a batch, for values that are written bare."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from spark_producer.kernel.arrays import ArrowArray, BoolArray, Int64Array, buffer_of, from_numbers, one_row
from spark_producer.kernel.column_views import BinaryColumn
from spark_producer.record.byte_columns import binary_column
from spark_producer.record.header_column import entry_field, header_entries
from spark_producer.schemas.header_ids import keys_equal


class SchemaHeader(NamedTuple):
    """A header with the GUID of a schema: its name and value."""

    name: str
    value: bytes


def with_schema_headers(
    headers: ArrowArray | None, rows: int, added: Sequence[tuple[SchemaHeader, BoolArray]]
) -> ArrowArray:
    """Return the column of headers with further ones, each in the rows where its mask is true.

    Such a row's own headers of the same name are left out: it may be a copy of a record that another schema was written with.

    Raises:
        SchemaError: `headers` is no column of headers.
    """
    keys: list[Any] = [one_row(header.name.encode()) for header, _ in added]
    values: list[Any] = [one_row(header.value) for header, _ in added]
    places: list[Int64Array] = [np.flatnonzero(mask) for _, mask in added]
    sources: list[Int64Array] = [np.full(len(at), index, np.int64) for index, at in enumerate(places)]
    counted = None if headers is None else header_entries(headers)
    if counted is not None:
        counts, entries = counted
        own = [binary_column(f"headers.{name}", entry_field(entries, name)).array for name in ("key", "value")]
        at = np.repeat(np.arange(rows), counts)
        kept = np.flatnonzero(~_replaced(BinaryColumn(own[0]), at, added))
        keys.append(own[0].cast(pa.binary()))
        values.append(own[1].cast(pa.binary()))
        places.insert(0, at[kept])
        sources.insert(0, kept + len(added))
    every = np.concatenate(places)
    order = np.argsort(every, kind="stable")
    chosen = from_numbers(np.concatenate(sources)[order])
    taken = [pa.concat_arrays(parts).take(chosen) for parts in (keys, values)]
    fields = [pa.field("key", pa.binary(), nullable=False), pa.field("value", pa.binary())]
    found = pa.StructArray.from_arrays(taken, fields=fields)
    offsets = np.concatenate(([0], np.cumsum(np.bincount(every, minlength=rows)))).astype(np.int32)
    kind = pa.list_(found.type)
    joined: ArrowArray = pa.Array.from_buffers(kind, rows, [None, buffer_of(offsets)], children=[found])
    return joined


def _replaced(keys: BinaryColumn, rows: Int64Array, added: Sequence[tuple[SchemaHeader, BoolArray]]) -> BoolArray:
    """Return which headers have the name of one that is added to their row."""
    found: BoolArray = np.zeros(len(rows), np.bool_)
    for header, mask in added:
        found |= keys_equal(keys, header.name.encode()) & mask[rows]
    return found
