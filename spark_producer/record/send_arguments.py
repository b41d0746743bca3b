"""Reads the arguments of `Producer.send` as one record, with the checks of rows.

Nearly all records consist of bytes and text, which are used directly. All other values go through a RecordBatch of one row and
its checks, so that both paths accept the same values and report the same errors.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from spark_producer.errors import RecordError
from spark_producer.kernel import (
    MAX_HEADERS,
    NO_HEADERS,
    BinaryColumn,
    RecordColumns,
    SingleRecord,
    header_block,
)
from spark_producer.kernel.arrays import ArrowArray, one_row
from spark_producer.record.columns import CheckedColumns, read_columns
from spark_producer.record.record_cursor import RecordCursor

Field = bytes | str | None
Header = tuple[str, bytes | None]

NO_PARTITION = -1
_COUNT_BYTES = 5
"""Maximum bytes of the number of headers."""
_LAST_TIME, _LAST_PARTITION = 2**63 - 1, 2**31 - 1


def read_record(
    topic: str, value: Field, key: Field, headers: Sequence[Header], partition: int | None, timestamp_ms: int
) -> tuple[SingleRecord, int]:
    """Return a record, and its explicit partition, or `NO_PARTITION`.

    Raises:
        RecordError, SchemaError: As in `read_columns`, or a value cannot be put into its column.
    """
    if (
        (type(value) is bytes or value is None)
        and (type(key) is bytes or key is None)
        and type(headers) is tuple
        and not headers
        and type(timestamp_ms) is int
        and 0 <= timestamp_ms <= _LAST_TIME
        and (partition is None or (type(partition) is int and 0 <= partition <= _LAST_PARTITION))
        and type(topic) is str
    ):
        return SingleRecord(key, value, NO_HEADERS, timestamp_ms), NO_PARTITION if partition is None else partition
    try:
        if type(value) is str:
            return read_record(topic, value.encode(), key, headers, partition, timestamp_ms)
        if type(key) is str:
            return read_record(topic, value, key.encode(), headers, partition, timestamp_ms)
        if type(headers) is not tuple or headers:
            encoded = _encoded(headers)
            if encoded is not None:
                plain, explicit = read_record(topic, value, key, (), partition, timestamp_ms)
                return SingleRecord(plain.key, plain.value, encoded, plain.timestamp), explicit
    except UnicodeEncodeError:  # the checks of the columns report it below
        return _read_row(topic, value, key, headers, partition, timestamp_ms)
    return _read_row(topic, value, key, headers, partition, timestamp_ms)


def integers(entries: Sequence[int | None], type_: pa.DataType) -> ArrowArray:
    """Return integers as a column.

    Raises:
        TypeError, pa.ArrowInvalid: an entry is no integer, or too large.
    """
    column = pa.array(entries)  # of a type given here Arrow would cut the fraction of floats
    if not (pa.types.is_integer(column.type) or pa.types.is_null(column.type)):
        raise TypeError(f"expected integers, got {column.type}")
    return column.cast(type_)


def as_columns(topic: str, record: SingleRecord) -> CheckedColumns:
    """Return the record as a batch of one row; payload bytes are not copied."""
    key = None if record.key is None else BinaryColumn(one_row(record.key))
    headers = None if record.headers == NO_HEADERS else BinaryColumn(one_row(record.headers))
    value = pa.nulls(1, pa.binary()) if record.value is None else one_row(record.value)
    records = RecordColumns(BinaryColumn(value), key, headers, record.timestamp, largest=record.size)
    return CheckedColumns(records, (topic,))


def read_headers(record: SingleRecord) -> tuple[Header, ...]:
    """Return the headers of a record as a consumer reads them, whatever the types that were given."""
    if record.headers == NO_HEADERS:
        return ()
    cursor = RecordCursor(memoryview(record.headers))
    found: list[Header] = []
    for _ in range(cursor.varint("header count", _COUNT_BYTES)):
        name, content = cursor.sized("header key"), cursor.sized("header value")
        found.append((bytes(name or b"").decode(), None if content is None else bytes(content)))
    return tuple(found)


def _encoded(headers: Sequence[Header]) -> bytes | None:
    """Return the header block; None if it has values other than text and bytes, or too many."""
    if type(headers) not in (list, tuple) or len(headers) > MAX_HEADERS:
        return None
    entries = []
    for entry in headers:
        if type(entry) is not tuple or len(entry) != 2:
            return None
        name, content = entry
        if type(name) is not str or not (type(content) is bytes or content is None):
            return None
        entries.append((name.encode(), content))
    return header_block(entries)


def _read_row(
    topic: str, value: Field, key: Field, headers: Sequence[Header], partition: int | None, timestamp_ms: int
) -> tuple[SingleRecord, int]:
    row = _row(topic, value, key, headers, partition, timestamp_ms)
    read_columns(row, topic=topic, now_ms=0).rejected.raise_first()
    found = row.to_pylist()[0]
    entries = [(header["key"].encode(), header["value"]) for header in found["headers"]]
    block = header_block(entries) if entries else NO_HEADERS
    explicit = found["partition"]
    return SingleRecord(found["key"], found["value"], block, found["timestamp"]), (
        NO_PARTITION if explicit is None else explicit
    )


def _row(
    topic: str, value: Field, key: Field, headers: Sequence[Header], partition: int | None, timestamp_ms: int
) -> pa.RecordBatch:
    entry = pa.struct([("key", pa.string()), ("value", pa.binary())])
    try:
        return pa.record_batch(
            {
                "value": pa.array([value], pa.binary()),
                "key": pa.array([key], pa.binary()),
                "headers": pa.array([[{"key": name, "value": content} for name, content in headers]], pa.list_(entry)),
                "partition": integers([partition], pa.int32()),
                "timestamp": integers([timestamp_ms], pa.int64()),
            }
        )
    except (pa.ArrowException, OverflowError, ValueError, TypeError) as error:
        raise RecordError(f"a record for topic {topic!r} cannot be written: {error}") from error
