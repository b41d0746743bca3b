"""One record as columns of one row, and its exact size: for tools and tests, which write record by record."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from spark_producer.errors import RecordBatchError
from spark_producer.kernel import MAX_HEADERS, BinaryColumn, RecordColumns, encode_headers
from spark_producer.kernel.varint import encode_varint
from spark_producer.legacy_formats import message_set
from spark_producer.record import batch_v2

Header = tuple[str, bytes | None]


def single_row(timestamp: int, key: bytes | None, value: bytes | None, headers: Sequence[Header]) -> RecordColumns:
    """Return the columns of one row. `timestamp` is in milliseconds.

    Raises:
        RecordBatchError: There are more than `MAX_HEADERS` headers, which the reader would refuse.
    """
    if len(headers) > MAX_HEADERS:
        raise RecordBatchError(f"a record has {len(headers)} headers, more than {MAX_HEADERS}")
    block = None
    if headers:
        keys = BinaryColumn(pa.array([name.encode() for name, _ in headers], pa.binary()))
        values = BinaryColumn(pa.array([content for _, content in headers], pa.binary()))
        block = encode_headers(np.array([len(headers)], dtype=np.int64), keys, values)
    return RecordColumns(_column(value), None if key is None else _column(key), block, timestamp)


def record_size(
    magic: int,
    timestamp_delta: int,
    offset_delta: int,
    key: bytes | None,
    value: bytes | None,
    headers: Sequence[Header],
) -> int:
    """Return the exact bytes of a record in the format `magic`, length included; deltas and headers count in V2 only."""
    if magic < batch_v2.MAGIC:
        return batch_v2.LOG_OVERHEAD + message_set.OVERHEAD[magic] + len(key or b"") + len(value or b"")
    body = 1 + _varint_size(timestamp_delta) + _varint_size(offset_delta) + _field_size(key) + _field_size(value)
    body += _varint_size(len(headers)) + sum(
        _field_size(name.encode()) + _field_size(content) for name, content in headers
    )
    return body + _varint_size(body)


def _column(value: bytes | None) -> BinaryColumn:
    return BinaryColumn(pa.array([value], pa.binary()))


def _field_size(value: bytes | None) -> int:
    return _varint_size(-1) if value is None else _varint_size(len(value)) + len(value)


def _varint_size(value: int) -> int:
    return len(encode_varint(value))
