"""Ids of schemas in the headers of records, whose values are then bare (Confluent's `HeaderSchemaIdSerializer`).

The header `__value_schema_id` or `__key_schema_id` holds a one and the 16 bytes of a GUID, or a zero and the four bytes of an
id, as otherwise before the value; for Protobuf the path of the message follows.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from spark_producer.kernel.arrays import ArrowArray, BoolArray, ByteArray, Int64Array
from spark_producer.kernel.column_views import BinaryColumn
from spark_producer.record.byte_columns import binary_column
from spark_producer.record.header_column import entry_field, header_entries
from spark_producer.schemas.registry import SchemaKey
from spark_producer.schemas.wire_format import GUID_BYTES, GUID_MAGIC, ID_BYTES, MAGIC, header_name


class HeaderIds(NamedTuple):
    """The rows of a column that have such a header.

    Attributes:
        name: The name of the header.
        rows: Their numbers, ascending.
        keys: The different ids and GUIDs.
        sources: For each row the index in `keys`, or -1 if the header holds none.
        data: The memory with the headers' values.
        starts, ends: The positions of what follows the id.
    """

    name: str
    rows: Int64Array
    keys: list[SchemaKey]
    sources: Int64Array
    data: ByteArray
    starts: Int64Array
    ends: Int64Array

    @property
    def reason(self) -> str:
        """The reason why a value with another header cannot be decoded."""
        return f"its header {self.name} is not the GUID of a schema, a one and {GUID_BYTES} bytes"


def header_ids(headers: ArrowArray, column: str) -> HeaderIds | None:
    """Return the ids that the headers of rows hold for the column `value` or `key`; None if no row has one.

    Of several such headers of a row the last one counts, as in Kafka's `lastHeader`. A header without a value does not count.

    Raises:
        SchemaError: the headers are no column of headers.
    """
    counted = header_entries(headers)
    if counted is None:
        return None
    counts, entries = counted
    name = header_name(column)
    found = np.flatnonzero(
        keys_equal(BinaryColumn(binary_column("headers.key", entry_field(entries, "key")).array), name.encode())
    )
    if not len(found):
        return None
    rows = np.searchsorted(np.cumsum(counts), found, side="right")
    last = np.append(rows[1:] != rows[:-1], True)
    rows, found = rows[last], found[last]
    values = BinaryColumn(binary_column("headers.value", entry_field(entries, "value")).array)
    if values.valid is not None:
        rows, found = rows[values.valid[found]], found[values.valid[found]]
    if not len(rows):
        return None
    return _parsed(name, rows, values, found)


def record_header(headers: Iterable[tuple[str, bytes | None]], column: str) -> HeaderIds | None:
    """Return the id that the headers of a single record hold for the column `value` or `key`; None if there is none."""
    name = header_name(column)
    found = [{"key": key, "value": value} for key, value in headers if key == name]
    return header_ids(pa.array([found], _HEADERS), column) if found else None


_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def keys_equal(keys: BinaryColumn, name: bytes) -> BoolArray:
    """Return which of the keys are this name."""
    same: BoolArray = keys.lengths == len(name)
    places = np.flatnonzero(same)
    wanted = np.frombuffer(name, np.uint8)
    same[places] = (_bytes_at(keys.data, keys.offsets[:-1][places], len(name)) == wanted).all(axis=1)
    return same


def _bytes_at(data: ByteArray, starts: Any, count: int) -> Any:
    """Return `count` bytes from each position on, as the rows of an array."""
    return data[starts.astype(np.int64)[:, None] + np.arange(count)]


def _parsed(name: str, rows: Int64Array, values: BinaryColumn, found: Int64Array) -> HeaderIds:
    starts, ends = values.offsets[:-1][found].astype(np.int64), values.offsets[1:][found].astype(np.int64)
    sources = np.full(len(rows), -1, np.int64)
    keys: list[SchemaKey] = []
    for magic, size in ((GUID_MAGIC, GUID_BYTES), (MAGIC, ID_BYTES)):
        these = np.flatnonzero(ends - starts > size)
        these = these[values.data[starts[these]] == magic[0]]
        if not len(these):
            continue
        content = _bytes_at(values.data, starts[these] + 1, size)
        different, places = _different(content)
        sources[these] = places + len(keys)
        keys += [_key(each.tobytes()) for each in different]
        starts[these] += 1 + size
    return HeaderIds(name, rows, keys, sources, values.data, starts, ends)


def _different(content: Any) -> tuple[Any, Int64Array]:
    """Return the different rows of an array, and for each row the index of its own."""
    if not (content != content[0]).any():  # nearly all batches have one schema
        return content[:1], np.zeros(len(content), np.int64)
    found, places = np.unique(content, axis=0, return_inverse=True)
    return found, places.reshape(-1).astype(np.int64)


def _key(content: bytes) -> SchemaKey:
    return str(uuid.UUID(bytes=content)) if len(content) == GUID_BYTES else int.from_bytes(content, "big")
