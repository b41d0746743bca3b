"""The input and the result of both decoders of V2 records: batches with the facts of their headers, and Arrow columns."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from spark_producer.kernel.arrays import ArrowArray, BinaryArray, buffer_of, empty

MAX_HEADERS = 100_000
"""Maximum number of headers of a record, when read and when written. Kafka has no limit, and real records have fewer than a
hundred; but a header takes two bytes, of which zstd compresses 32,768 into four, and in Arrow's columns it takes 9."""

COLUMNS = frozenset({"offset", "timestamp", "key", "value", "headers"})
"""The names of the columns that can be decoded."""


class V2Batch(NamedTuple):
    """A batch to decode. `records` are its bytes after the header, decompressed, in memory without gaps.

    records_count: The number of records that the batch claims to have there.
    append_time: The timestamp of all records, if the broker set it; else None, and each record has its own.
    previous: The offset delta that the first record must exceed: that of the last record decoded before, or -1.
    """

    records: memoryview
    records_count: int
    base_offset: int
    last_offset_delta: int
    base_timestamp: int
    append_time: int | None = None
    previous: int = -1


class Limits(NamedTuple):
    """The maximum number of rows, headers and bytes of records of one call, which ends before the record that exceeds one.

    The first record may exceed the bytes, and the first one with headers the headers, so that each call makes progress.
    """

    rows: int = 1 << 16
    headers: int = 1 << 19
    bytes: int = 4 << 20


class HeaderColumns(NamedTuple):
    """The headers of all rows. Those of row r are the entries `ends[r]` to `ends[r + 1]` (32 bits) of keys and values."""

    ends: pa.Buffer
    keys: BinaryArray
    values: BinaryArray


class DecodedV2(NamedTuple):
    """The valid records before the point at which decoding stopped, as columns; None for a column that was not requested.

    batch: The index of the batch in which it stopped; the number of batches if all records are there.
    row: The number of rows that are from this batch.
    position: The bytes of this batch before the next record, or before bytes after its last record.
    previous: The offset delta of the batch's last row, or the batch's `previous`.
    full: Whether decoding stopped because the next record would exceed a limit. Otherwise that record is invalid (a field, the
        offset delta or the timestamp), the batch ends before it, or the batch has bytes after its last record.
    """

    rows: int
    batch: int
    row: int
    position: int
    previous: int
    full: bool
    offsets: ArrowArray | None
    timestamps: ArrowArray | None
    keys: BinaryArray | None
    values: BinaryArray | None
    headers: HeaderColumns | None


def binary_array(rows: int, ends: pa.Buffer, data: pa.Buffer, valid: pa.Buffer | None, nulls: int) -> BinaryArray:
    """Return a binary array of these buffers; `ends` holds the end of each value after a 0, and `valid` a bit for each."""
    return pa.Array.from_buffers(pa.binary(), rows, [valid if nulls else None, ends, data], nulls)


def int64_array(rows: int, data: pa.Buffer) -> ArrowArray:
    """Return an int64 array without nulls of this buffer."""
    return pa.Array.from_buffers(pa.int64(), rows, [None, data], 0)


def no_header_columns(rows: int) -> HeaderColumns:
    """Return the headers of `rows` rows that have none."""
    return HeaderColumns(buffer_of(np.zeros(rows + 1, dtype=np.int32)), empty(pa.binary()), empty(pa.binary()))
